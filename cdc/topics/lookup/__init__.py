"""Rows straight from a topic: ``cdc get`` reads one, ``cdc watch`` tells each that changes."""
