"""Spark jobs over PostgreSQL and compacted topics: a second path that is independent of the bridge."""
