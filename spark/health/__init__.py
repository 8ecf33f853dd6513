"""Checks the health of compacted topics: what they hold besides the state, and whether the cleaner keeps up."""
