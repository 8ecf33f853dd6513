"""State topics copied by many executors: into replica tables of PostgreSQL, or into a lake of Parquet files."""
