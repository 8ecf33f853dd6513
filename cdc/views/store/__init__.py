"""Ordered key-value stores: spaces of keys that change together, and readers that see all of them at one moment."""
