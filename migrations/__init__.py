"""Alembic migrations of the tables that the sink owns in the replica (schema ``cdc``). Replica tables have none."""
