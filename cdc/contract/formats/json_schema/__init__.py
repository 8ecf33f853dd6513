"""Writes the values of topics as JSON with a JSON Schema in a registry, and reads them again. Pure."""
