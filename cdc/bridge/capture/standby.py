"""Finds out what a reading on a standby certainly sees, which the standby itself cannot tell.

In recovery, ``pg_current_snapshot()`` names no running transaction, so all of them look finished. Therefore the primary
is asked first: for its snapshot P, and after that for the end of its WAL, L. A transaction that is finished in P wrote
its commit before L. Once the standby has replayed L, whatever it shows includes these commits. So P is what a reading
sees for sure.

A transaction that was running in P may be over when the standby is read, and visible or not. It counts as invisible,
which is safe for every use of a snapshot (``order.touched``). The guard waits until a later P has it. Keys that it
touched stay recorded, so the reading's rows are dropped in favour of what the stream has or will have. After its
TRUNCATE, every row of the reading is dropped; rows that it or a later one inserted are among the touched. A prepared
transaction is running in P until COMMIT PREPARED. Subtransactions count as their top-level one, in P and in the stream.

H, up to which the stream must be published, is the end of the primary's WAL after the reading's snapshot: the standby's
own replay position advances only after a commit has become visible there.

Positions belong to one history. After a failover, a standby may still or already follow another server than the source,
and have the same positions with other rows. So both must be on one timeline when the reading thread connects.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import psycopg

from cdc.base.errors import SourceRefused, SourceUnavailable
from cdc.base.lsn import LSN
from cdc.bridge.source.connect import source_errors
from cdc.bridge.source.wal_end import at_rest


class Sight(NamedTuple):
    """What is certainly visible on a standby.

    Attributes:
        primary: a connection to the primary, for H.
        snapshot_text: P.
        lsn: L: the standby must have replayed this before it takes its own snapshot.
    """

    primary: psycopg.Connection[Any]
    snapshot_text: str
    lsn: LSN


def sight(primary: psycopg.Connection[Any]) -> Sight:
    """Ask the primary what is visible.

    Raises:
        SourceUnavailable: the connection broke.
    """
    with source_errors("asking the primary what is visible"):
        row = primary.execute(
            # PostgreSQL takes a statement's snapshot before it calls the statement's functions
            "SELECT pg_catalog.pg_current_snapshot()::text, pg_catalog.pg_current_wal_insert_lsn()::text"
        ).fetchone()
    assert row is not None
    return Sight(primary, row[0], at_rest(LSN.parse(row[1])))


def has_replayed(standby: psycopg.Connection[Any], lsn: LSN) -> bool:
    """Whether a standby shows what committed before ``lsn``.

    Raises:
        SourceUnavailable: the connection broke, or the server is not a standby any more.
    """
    with source_errors("asking how far the standby is"):
        row = standby.execute(
            "SELECT pg_catalog.pg_is_in_recovery(), pg_catalog.pg_last_wal_replay_lsn() >= %s::pg_lsn", (str(lsn),)
        ).fetchone()
    assert row is not None
    if not row[0]:
        raise SourceUnavailable(
            "the standby that snapshot.dsn names was promoted",
            remedy="point snapshot.dsn at a standby of source.dsn, or take it out to read from the primary",
        )
    return bool(row[1])


def refuse_standby(source: psycopg.Connection[Any]) -> None:
    """Refuse a source that is a standby.

    Raises:
        SourceRefused: it is a standby, whose snapshots take every running transaction for finished.
        SourceUnavailable: the connection broke.
    """
    if _server(source).in_recovery:
        raise SourceRefused(
            "source.dsn names a standby, which cannot say which transactions are running",
            remedy="point source.dsn at the primary (target_session_attrs=read-write); snapshot.dsn may name a standby",
        )


def is_standby_of(conn: psycopg.Connection[Any], primary: psycopg.Connection[Any]) -> bool:
    """Whether this is a standby of the primary; False when it is the primary itself.

    Raises:
        SourceRefused: it is neither, or follows another server, so that its rows would not be those of the stream.
        SourceUnavailable: a connection broke, or the standby does not follow the source yet.
    """
    here, there = _server(conn), _server(primary)
    if here == there:
        return False
    if not here.in_recovery or (here.system, here.database) != (there.system, there.database):
        raise SourceRefused(
            f"snapshot.dsn names database {here.name} of another server: neither the source nor a standby of it",
            remedy="correct snapshot.dsn, or leave it out to read the tables from the source",
        )
    if here.timeline != there.timeline:
        where = (
            f"the standby that snapshot.dsn names is on timeline {here.timeline}, and the source on {there.timeline}"
        )
        if here.timeline > there.timeline:
            raise SourceRefused(
                f"{where}: it follows another server, which was promoted",
                remedy="correct source.dsn or snapshot.dsn, or leave snapshot.dsn out",
            )
        raise SourceUnavailable(
            f"{where}: it does not follow the source yet, or has not recorded that",
            remedy="let primary_conninfo of the standby name the source; if it does, run CHECKPOINT on the standby",
        )
    return True


class _StandbyServer(NamedTuple):
    in_recovery: bool
    started: str
    system: str
    database: int
    name: str
    timeline: int


def _server(conn: psycopg.Connection[Any]) -> _StandbyServer:
    with source_errors("identifying the server"):
        row = conn.execute(_SERVER).fetchone()
    assert row is not None
    return _StandbyServer(*row)


_SERVER: Final = """
SELECT pg_catalog.pg_is_in_recovery(), pg_catalog.pg_postmaster_start_time()::text,
  (SELECT system_identifier::text FROM pg_catalog.pg_control_system()), oid::bigint, datname::text,
  CASE WHEN pg_catalog.pg_is_in_recovery()
    THEN greatest((SELECT timeline_id FROM pg_catalog.pg_control_checkpoint()),
      (SELECT min_recovery_end_timeline FROM pg_catalog.pg_control_recovery()))
    ELSE ('x' || left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 8))::bit(32)::int END
FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()
"""
"""A standby records its timeline at restart points, or when it flushes a page: maybe late, but never too early."""
