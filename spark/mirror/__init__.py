"""Copies state topics into a lake of Parquet files, with many executors."""
