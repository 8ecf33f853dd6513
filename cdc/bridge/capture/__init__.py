"""Reads rows from the source: the replication stream, and tables beside it."""
