"""Makes the audit trail of a table from its history topic."""
