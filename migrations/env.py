"""Alembic's entry point: runs the migrations on the connection that ``cdc.sink.postgres.schema_version`` hands over."""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"], version_table_schema="cdc")
with context.begin_transaction():
    context.run_migrations()
