"""I/O on the PostgreSQL side: the catalog, the slot and the replication stream."""
