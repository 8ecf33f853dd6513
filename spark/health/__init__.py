"""Health of compacted topics: what they hold beside the state, and whether the cleaner keeps up."""
