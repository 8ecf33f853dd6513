"""Converts rows to the bytes of keyed records and back, in the form that the topic contract defines. Pure."""
