"""What the replica tells of its sink: the cut, and how each table fares. Reads, and takes no lock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from psycopg.errors import LockNotAvailable

from cdc.base.errors import ReplicaUnavailable, remedy_apart
from cdc.base.lsn import LSN
from cdc.sink.postgres.control import cut, mirrored_table
from cdc.sink.postgres.errors import replica_errors
from cdc.sink.postgres.locks import NOBODY, WAIT_FOR_SHAPE, Session, describe, lockers, waits_of
from cdc.sink.postgres.naming import CONTROL_SCHEMA
from cdc.sink.postgres.session import lock_holder, psycopg_of

_STILL: Final = """
SELECT CASE WHEN state <> 'active' THEN extract(epoch FROM clock_timestamp() - state_change)::float8 END
FROM pg_catalog.pg_stat_activity WHERE pg_stat_activity.pid = :pid
"""


@dataclass(frozen=True, slots=True)
class TableStatus:
    """A replica table.

    Attributes:
        reason: why it is stopped or rebuilt.
    """

    topic: str
    replica_table: str
    state: str
    rows_applied: int
    reason: str


@dataclass(frozen=True, slots=True)
class Blocker:
    """Somebody in the replica whose lock the sink needs.

    Attributes:
        table: the locked table; empty when it is a row or a transaction that the sink waits for.
        who: pids, with the application, user and query of each as far as we may see them.
        remedy: what ends it.
        seconds: that the sink has waited, or that the table has been left out.
        is_left_out: the sink goes on without this table; else all tables wait.
    """

    table: str
    who: str
    remedy: str
    seconds: float
    is_left_out: bool


@dataclass(frozen=True, slots=True)
class SinkStatus:
    """The replica. Ages are by its own clock.

    Attributes:
        lsn: of the cut; None before the first, and while the sink catches up.
        applied_lsn: how far rows are applied; None before the first cut.
        commit_ts: of the newest transaction in the cut, µs since 1970.
        running: a sink of this name holds its lock.
        applied_s: since the cut was committed; None before the first.
        level_s: since the topics held nothing that the replica did not.
        still_s: since the sink's session began or ended a statement; None when it has none, or we may not see it, or a
            statement is at work.
        blockers: who keeps a sink that runs from its tables.
    """

    lsn: LSN | None
    applied_lsn: LSN | None
    commit_ts: int
    running: bool
    tables: tuple[TableStatus, ...]
    applied_s: float | None = None
    level_s: float | None = None
    still_s: float | None = None
    blockers: tuple[Blocker, ...] = ()


def read_status(engine: sa.Engine, name: str) -> SinkStatus:
    """How the sink of this name stands; a replica that it has not touched yet has nothing to tell.

    Raises:
        ReplicaUnavailable: the replica cannot be reached, or somebody keeps its state to himself.
        ReplicaRefused: the role may not read the sink's tables.
    """
    with engine.connect() as connection, replica_errors("telling its cut"):
        if not sa.inspect(connection).has_table(cut.name, schema=CONTROL_SCHEMA):
            return SinkStatus(None, None, 0, running=False, tables=())
        connection.execute(sa.text(WAIT_FOR_SHAPE))
        try:
            return _status(connection, name)
        except sa.exc.OperationalError as error:
            if not isinstance(error.orig, LockNotAvailable):
                raise
            connection.rollback()
            session = psycopg_of(connection)
            told = describe(session, lockers(session, (cut.fullname, mirrored_table.fullname)))
            raise ReplicaUnavailable(
                f"the sink's own tables are locked in the replica, and every table waits: {told.who} keeps them",
                remedy=told.remedy,
            ) from error


def _status(connection: sa.Connection, name: str) -> SinkStatus:
    at = connection.execute(
        sa.select(
            cut.c.lsn, cut.c.applied_lsn, cut.c.commit_ts, _age(cut.c.applied_at), _age(cut.c.caught_up_at)
        ).where(cut.c.name == name)
    ).first()
    pid = lock_holder(connection, name)
    tables = connection.execute(
        sa.select(mirrored_table, _age(mirrored_table.c.held_since).label("held_s"))
        .where(mirrored_table.c.name == name)
        .order_by(mirrored_table.c.topic)
    ).all()
    return SinkStatus(
        lsn=at.lsn if at else None,
        applied_lsn=at.applied_lsn if at else None,
        commit_ts=at.commit_ts if at else 0,
        running=pid is not None,
        tables=tuple(
            TableStatus(row.topic, row.replica_table, row.state, row.rows_applied, row.reason or "") for row in tables
        ),
        applied_s=at[3] if at else None,
        level_s=at[4] if at else None,
        still_s=None if pid is None else connection.scalar(sa.text(_STILL), {"pid": pid}),
        blockers=() if pid is None else (*_left_out(tables), *_waited_for(psycopg_of(connection), pid)),
    )


def _age(moment: sa.ColumnElement[Any]) -> sa.ColumnElement[float]:
    """Seconds since then, by the replica's clock; the sink's, which wrote it, may be a little ahead."""
    elapsed = sa.extract("epoch", sa.func.clock_timestamp() - moment)
    return sa.func.greatest(sa.cast(elapsed, sa.Float), 0.0)


def _left_out(tables: Sequence[sa.Row[Any]]) -> Iterator[Blocker]:
    """As the sink wrote it down: it tries such a table again when the lock is gone."""
    for row in tables:
        if row.held_by is not None:
            who, remedy = remedy_apart(row.held_by)
            yield Blocker(row.replica_table, who, remedy or NOBODY, row.held_s, is_left_out=True)


def _waited_for(session: Session, pid: int) -> Iterator[Blocker]:
    """At this moment, by the sink's session."""
    for wait in waits_of(session, [pid]):
        told = describe(session, wait.blockers)
        yield Blocker(wait.relation, told.who, told.remedy, wait.seconds, is_left_out=False)
