"""Converts data of others to points and back; only these modules know a library or a format by name."""
