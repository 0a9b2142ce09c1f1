"""Recordings of order books that others published, as changes of levels or as books; one module per shape."""
