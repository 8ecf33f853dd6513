"""Lets people ask a running bridge, through the progress topic, for backfills and repairs, and follows these."""
