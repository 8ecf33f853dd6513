"""Finds out what ``cdc status`` and ``cdc check`` show, and returns it as plain values."""
