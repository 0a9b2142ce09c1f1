"""Data of others as points: the only rooms that know a library or a format by name."""
