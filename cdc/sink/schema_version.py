"""Brings the sink's own tables to the version that this program needs, through Alembic's ``migrations`` package."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

from cdc.sink.control import SCHEMA
from cdc.sink.errors import replica_errors

_REMEDY: Final = "as the database's owner: GRANT CREATE ON DATABASE … TO …; for the role of sink.dsn"


def upgrade(engine: sa.Engine) -> None:
    """Create or migrate the tables of schema ``cdc``; changes nothing, and needs no right to, when they are current.

    Raises:
        ReplicaUnavailable: the replica cannot be reached.
        ReplicaRefused: the role may not create schema or tables.
    """
    config = Config()
    config.set_main_option("script_location", "migrations:")
    config.set_main_option("path_separator", "os")
    newest = ScriptDirectory.from_config(config).get_current_head()
    with replica_errors("creating the sink's own tables", remedy=_REMEDY), engine.begin() as connection:
        # Several sinks may start at once on an empty replica
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(hashtextextended('cdc migrations', 0))"))
        if _current(connection) == newest:
            return
        if not sa.inspect(connection).has_schema(SCHEMA):
            connection.execute(sa.schema.CreateSchema(SCHEMA))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def _current(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table("alembic_version", schema=SCHEMA):
        return None
    version: str | None = connection.scalar(sa.text(f"SELECT version_num FROM {SCHEMA}.alembic_version"))
    return version
