"""Migrates the sink's own tables to the version that this program needs, with Alembic."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import psycopg
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

from cdc.base.errors import ReplicaRefused
from cdc.sink.postgres.control import CONTROL_SCHEMA
from cdc.sink.postgres.errors import replica_errors
from cdc.sink.postgres.grants import lacking
from cdc.sink.postgres.session import psycopg_of
from cdc.sink.replica import Lack

_REMEDY: Final = "run the SQL that `cdc grants sink` prints; the sink's role must also own schema cdc and its tables"

_UNLOGGED: Final = """
SELECT format('%%I.%%I', n.nspname, c.relname) FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relpersistence = 'u' AND c.relkind IN ('r', 'p') ORDER BY 1
"""


def upgrade(engine: sa.Engine) -> None:
    """Creates or migrates the tables of schema ``cdc``. If they are current, changes nothing and needs no right to.

    Raises:
        ReplicaUnavailable: the replica cannot be reached.
        ReplicaRefused: the role lacks a right, or the tables are UNLOGGED, so that a crash would empty them.
    """
    config = Config()
    config.set_main_option("script_location", "cdc.sink.migrations:")
    config.set_main_option("path_separator", "os")
    newest = ScriptDirectory.from_config(config).get_current_head()
    with replica_errors("creating the sink's own tables", remedy=_REMEDY), engine.begin() as connection:
        # Several sinks may start at the same time on an empty replica
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(hashtextextended('cdc migrations', 0))"))
        session = psycopg_of(connection)
        if _current(connection) == newest:
            _refuse(lacking(session, schemas=()))
            _refuse_unlogged(session)
            return
        _refuse(lacking(session, [CONTROL_SCHEMA]))
        if not sa.inspect(connection).has_schema(CONTROL_SCHEMA):
            connection.execute(sa.schema.CreateSchema(CONTROL_SCHEMA))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def _refuse(lacks: Sequence[Lack]) -> None:
    if lacks:
        raise ReplicaRefused(
            "; ".join(f"the replica's {lack.subject}: {lack.text}" for lack in lacks),
            remedy=" ".join(lack.remedy for lack in lacks),
        )


def _refuse_unlogged(session: psycopg.Connection[Any]) -> None:
    if found := [name for (name,) in session.execute(_UNLOGGED, [CONTROL_SCHEMA]).fetchall()]:
        raise ReplicaRefused(
            f"the sink's own tables {', '.join(found)} are UNLOGGED: a crash of the replica's server empties them, and "
            "then nobody knows what the replica holds",
            remedy=" ".join(f"ALTER TABLE {name} SET LOGGED;" for name in found)
            + "  and if the server has crashed since they became UNLOGGED: cdc sink --rebuild",
        )


def _current(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table("alembic_version", schema=CONTROL_SCHEMA):
        return None
    version: str | None = None
    # A role that may not read it lacks other rights, too: the caller then reports them all
    with suppress(sa.exc.ProgrammingError), connection.begin_nested():
        version = connection.scalar(sa.text(f"SELECT version_num FROM {CONTROL_SCHEMA}.alembic_version"))
    return version
