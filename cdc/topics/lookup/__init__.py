"""Rows straight from a topic: ``cdc get`` reads one, ``cdc watch`` prints each row that changes."""
