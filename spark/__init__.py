"""Spark jobs over PostgreSQL and compacted topics: an independent second path beside the bridge."""
