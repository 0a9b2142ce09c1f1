"""The files and Delta tables of an archive, on a disk or in an object store."""
