"""A table as its topic tells it at one point, written as Parquet with a manifest."""
