"""The report of a reconciliation: one document and several views of it."""
