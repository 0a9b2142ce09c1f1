"""Fill an archive from a service, once or round after round."""
