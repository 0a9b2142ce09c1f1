"""Delta Lake tables of an archive: schema, Parquet files, commits, content hashes and locks."""
