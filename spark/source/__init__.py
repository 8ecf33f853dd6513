"""Reads rows of a live database under one snapshot, from many Spark tasks."""
