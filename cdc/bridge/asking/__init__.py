"""What people ask of a running bridge, through the progress topic: backfills and repairs, followed to their end."""
