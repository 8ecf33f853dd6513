"""Ordered key-value stores: several spaces of keys that change together, and readers that see one moment of all."""
