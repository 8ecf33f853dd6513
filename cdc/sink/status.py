"""What the replica tells of its sink: the cut, and how each table fares. Reads, and takes no lock."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from cdc.lsn import LSN
from cdc.sink.control import cut, mirrored_table
from cdc.sink.errors import replica_errors
from cdc.sink.naming import CONTROL_SCHEMA
from cdc.sink.session import is_locked


@dataclass(frozen=True, slots=True)
class TableStatus:
    """A replica table; ``reason`` says why it is stopped or rebuilt."""

    topic: str
    replica_table: str
    state: str
    rows_applied: int
    reason: str


@dataclass(frozen=True, slots=True)
class SinkStatus:
    """The replica.

    Attributes:
        lsn: of the cut; None before the first, and while the sink catches up.
        applied_lsn: how far rows are applied; None before the first cut.
        commit_ts: of the newest transaction in the cut, µs since 1970.
        running: a sink of this name holds its lock.
    """

    lsn: LSN | None
    applied_lsn: LSN | None
    commit_ts: int
    running: bool
    tables: tuple[TableStatus, ...]


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
                TableStatus(row.topic, row.replica_table, row.state, row.rows_applied, row.reason or "")
                for row in tables
            ),
        )
