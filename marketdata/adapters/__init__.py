"""Data of others as points and back: the only modules that know a library or a format by name."""
