"""Decides in which order changes become records. Pure: it asks, and never calls."""
