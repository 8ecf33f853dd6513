"""Replica tables: what they look like, and how rows, offsets and the cut's LSN get there in one transaction."""
