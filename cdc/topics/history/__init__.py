"""``cdc history``: the audit trail of one key, from a history topic."""
