"""Publishes whole tables, and single rows, beside the stream."""
