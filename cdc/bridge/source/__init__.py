"""The source database as it is: connections, catalog, rights, publication, slot. Every question here is a query."""
