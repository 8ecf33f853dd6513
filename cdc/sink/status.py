"""What the replica tells of its sink: the cut, and how each table fares. Reads, and takes no lock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

import psycopg
import sqlalchemy as sa

from cdc.lsn import LSN
from cdc.sink.control import cut, mirrored_table
from cdc.sink.errors import replica_errors
from cdc.sink.locks import describe, holders, waits_of
from cdc.sink.naming import CONTROL_SCHEMA
from cdc.sink.session import is_locked, lock_key


@dataclass(frozen=True, slots=True)
class TableStatus:
    """A replica table.

    Attributes:
        reason: why it is stopped or rebuilt.
        held_by: whose lock keeps rows out, while the table is left out of the cut for that; else empty.
        held_since: since then; else None.
    """

    topic: str
    replica_table: str
    state: str
    rows_applied: int
    reason: str
    held_by: str = ""
    held_since: datetime | None = None


@dataclass(frozen=True, slots=True)
class SinkWait:
    """What the running sink waits for at this moment; all its tables do.

    Attributes:
        relation: ``schema.table`` that is locked; empty when it is a row or a transaction.
        seconds: for so long now.
        held_by: pid, application, user, since when, query.
        remedy: what ends it.
    """

    relation: str
    seconds: float
    held_by: str
    remedy: str


@dataclass(frozen=True, slots=True)
class SinkStatus:
    """The replica.

    Attributes:
        lsn: of the cut; None before the first, and while the sink catches up.
        applied_lsn: how far rows are applied; None before the first cut.
        commit_ts: of the newest transaction in the cut, µs since 1970.
        running: a sink of this name holds its lock.
        wait: for whom it waits now; None when it does not.
    """

    lsn: LSN | None
    applied_lsn: LSN | None
    commit_ts: int
    running: bool
    tables: tuple[TableStatus, ...]
    wait: SinkWait | None = None


def read_status(engine: sa.Engine, name: str) -> SinkStatus:
    """How the sink of this name stands; a replica that it has not touched yet has nothing to tell.

    Raises:
        ReplicaUnavailable: the replica cannot be reached.
        ReplicaRefused: the role may not read the sink's tables.
    """
    with engine.connect() as connection, replica_errors("telling its cut"):
        if not sa.inspect(connection).has_table(cut.name, schema=CONTROL_SCHEMA):
            return SinkStatus(None, None, 0, running=False, tables=())
        at = connection.execute(
            sa.select(cut.c.lsn, cut.c.applied_lsn, cut.c.commit_ts).where(cut.c.name == name)
        ).first()
        tables = connection.execute(
            sa.select(mirrored_table).where(mirrored_table.c.name == name).order_by(mirrored_table.c.topic)
        )
        return SinkStatus(
            lsn=at.lsn if at else None,
            applied_lsn=at.applied_lsn if at else None,
            commit_ts=at.commit_ts if at else 0,
            running=is_locked(connection, name),
            tables=tuple(
                TableStatus(
                    row.topic,
                    row.replica_table,
                    row.state,
                    row.rows_applied,
                    row.reason or "",
                    row.held_by or "",
                    row.held_since,
                )
                for row in tables
            ),
            wait=_wait(connection, name),
        )


def _wait(connection: sa.Connection, name: str) -> SinkWait | None:
    session = cast("psycopg.Connection[Any]", connection.connection.driver_connection)
    for wait in waits_of(session, holders(session, lock_key(name))):
        if wait.blockers:
            told = describe(session, wait.blockers)
            return SinkWait(wait.relation, wait.seconds, told.who, told.remedy)
    return None
