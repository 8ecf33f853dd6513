"""Compacted topics, ours or other programs': what they hold, why they are not compacted, what compaction costs."""
