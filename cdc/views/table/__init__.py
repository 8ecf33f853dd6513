"""Compacted topics as tables that can be asked: rows by key, ranges, indexes, counts, and what changes."""
