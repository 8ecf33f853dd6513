"""Rows of a live database under one snapshot, for Spark's tasks."""
