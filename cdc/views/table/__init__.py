"""Compacted topics as tables that can be queried: rows by key, ranges, indexes, counts, and what changes."""
