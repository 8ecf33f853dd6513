"""Rows out of the source: the replication stream, and readings beside it."""
