"""Readers that others wrote: each reads a table from its topic, and what it holds is compared with the source."""
