"""Reads the state of the sink from the replica: the cut and the state of each table. Does not take the sink's lock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import sqlalchemy as sa
from psycopg.errors import LockNotAvailable

from cdc.base.errors import ReplicaUnavailable, remedy_apart
from cdc.sink.postgres.control import CONTROL_SCHEMA, cut, mirrored_table, quarantined_row
from cdc.sink.postgres.errors import replica_errors
from cdc.sink.postgres.locks import NOBODY, WAIT_FOR_SHAPE, Session, describe, lockers, waits_of
from cdc.sink.postgres.session import lock_holder, psycopg_of
from cdc.sink.replica import Blocker, RefusedRecord, SinkStatus, TableStatus

_STILL: Final = """
SELECT CASE WHEN state <> 'active' THEN extract(epoch FROM clock_timestamp() - state_change)::float8 END
FROM pg_catalog.pg_stat_activity WHERE pg_stat_activity.pid = :pid
"""


def read_status(engine: sa.Engine, name: str) -> SinkStatus:
    """Returns the state of the sink of this name. It is empty if the sink has never written to this replica.

    Raises:
        ReplicaUnavailable: the replica cannot be reached, or somebody has locked the sink's own tables.
        ReplicaRefused: the role may not read the sink's own tables.
    """
    with engine.connect() as connection, replica_errors("reading its cut"):
        if not sa.inspect(connection).has_table(cut.name, schema=CONTROL_SCHEMA):
            return SinkStatus(None, None, 0, running=False, tables=())
        connection.execute(sa.text(WAIT_FOR_SHAPE))  # a lock must not hang ``cdc status``, which can name its holder
        try:
            return _status(connection, name)
        except sa.exc.OperationalError as error:
            if not isinstance(error.orig, LockNotAvailable):
                raise
            connection.rollback()
            session = psycopg_of(connection)
            told = describe(session, lockers(session, (cut.fullname, mirrored_table.fullname)))
            raise ReplicaUnavailable(
                f"the sink's own tables in the replica are locked by {told.who}, so every table waits",
                remedy=told.remedy,
            ) from error


def read_refused(engine: sa.Engine, name: str) -> list[RefusedRecord]:
    """Returns the records that the tables of the sink of this name refuse and go on without, topic by topic.

    Raises:
        ReplicaUnavailable: the replica cannot be reached.
        ReplicaRefused: the role may not read the sink's own tables.
    """
    with engine.connect() as connection, replica_errors("reading what is in quarantine"):
        if not sa.inspect(connection).has_table(quarantined_row.name, schema=CONTROL_SCHEMA):
            return []
        found = connection.execute(
            sa.select(quarantined_row)
            .where(quarantined_row.c.name == name)
            .order_by(quarantined_row.c.topic, quarantined_row.c.since)
        )
        return [
            RefusedRecord(
                each.topic, each.key, each.partition, each.record_offset, each.reason, int(each.since.timestamp() * 1e6)
            )
            for each in found
        ]


def _refused(connection: sa.Connection, name: str) -> dict[str, int]:
    """Returns how many rows each topic's table lacks because it refused them."""
    if not sa.inspect(connection).has_table(quarantined_row.name, schema=CONTROL_SCHEMA):
        return {}  # the sink's own tables are those of an older version until it starts
    counts = sa.select(quarantined_row.c.topic, sa.func.count()).where(quarantined_row.c.name == name)
    found = connection.execute(counts.group_by(quarantined_row.c.topic))
    return {str(topic): int(count) for topic, count in found}


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
    refused = _refused(connection, name)
    return SinkStatus(
        lsn=at.lsn if at else None,
        applied_lsn=at.applied_lsn if at else None,
        commit_ts=at.commit_ts if at else 0,
        running=pid is not None,
        tables=tuple(
            TableStatus(
                row.topic,
                row.replica_table,
                row.state,
                row.rows_applied,
                row.reason or "",
                refused.get(row.topic, 0),
            )
            for row in tables
        ),
        applied_s=at[3] if at else None,
        level_s=at[4] if at else None,
        still_s=None if pid is None else connection.scalar(sa.text(_STILL), {"pid": pid}),
        blockers=() if pid is None else (*_left_out(tables), *_waited_for(psycopg_of(connection), pid)),
    )


def _age(moment: sa.ColumnElement[Any]) -> sa.ColumnElement[float]:
    """Returns the seconds since a moment, at least 0: the sink's clock, which wrote it, may be a little ahead."""
    elapsed = sa.extract("epoch", sa.func.clock_timestamp() - moment)
    return sa.func.greatest(sa.cast(elapsed, sa.Float), 0.0)


def _left_out(tables: Sequence[sa.Row[Any]]) -> Iterator[Blocker]:
    """Yields the blockers of tables that are left out, as the sink recorded them."""
    for row in tables:
        if row.held_by is not None:
            who, remedy = remedy_apart(row.held_by)
            yield Blocker(row.replica_table, who, remedy or NOBODY, row.held_s, is_left_out=True)


def _waited_for(session: Session, pid: int) -> Iterator[Blocker]:
    """Yields those for whom the sink's session waits at this moment."""
    for wait in waits_of(session, [pid]):
        told = describe(session, wait.blockers)
        yield Blocker(wait.relation, told.who, told.remedy, wait.seconds, is_left_out=False)
