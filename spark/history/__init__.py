"""The audit trail of a table, out of its history topic."""
