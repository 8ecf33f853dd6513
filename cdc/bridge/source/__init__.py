"""The source database: connections, catalog, rights, publication, slot. Every question here is a query."""
