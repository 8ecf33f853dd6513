"""State topics copied by many executors: into a lake of Parquet files."""
