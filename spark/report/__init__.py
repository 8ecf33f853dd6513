"""The report of a reconciliation: one document, several views."""
