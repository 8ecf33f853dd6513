"""``cdc learn``: lessons about compacted topics, each run on a real broker and checked against it."""
