"""The writer for PostgreSQL: shapes the replica tables, and writes rows, offsets and the cut in one transaction."""
