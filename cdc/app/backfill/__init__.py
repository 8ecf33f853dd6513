"""The online backfill."""
