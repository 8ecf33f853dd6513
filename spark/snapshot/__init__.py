"""Writes tables, as their topics hold them at one point, to Parquet files with a manifest."""
