"""Positions and states that a comparison has to wait for, in the source and in the replica."""

from __future__ import annotations

from collections import Counter
from typing import Any

import psycopg

from cdc.base.lsn import LSN


def is_captured(connection: psycopg.Connection[Any], name: str) -> bool:
    """Whether the bridge ``name`` will receive everything that is committed in the source from now on.

    That the slot is active is not enough: it is also active while it is being created, before it has a position.
    """
    row = connection.execute(
        "SELECT active AND confirmed_flush_lsn IS NOT NULL FROM pg_replication_slots WHERE slot_name = %s",
        (f"cdc_{name}",),
    ).fetchone()
    return row == (True,)


def fence(connection: psycopg.Connection[Any]) -> LSN:
    """Commit a message to the stream; returns a position that follows everything committed in the source so far."""
    row = connection.execute("SELECT pg_logical_emit_message(true, 'cdc-proof', 'fence')::text").fetchone()
    assert row is not None
    return LSN.parse(row[0])


def recorded_cut(connection: psycopg.Connection[Any], name: str) -> LSN | None:
    """Returns the LSN of the replica's cut for the bridge ``name``; None if it has no cut yet."""
    try:
        row = connection.execute("SELECT lsn::text FROM cdc.cut WHERE name = %s", (name,)).fetchone()
    except psycopg.errors.UndefinedTable:
        return None
    return LSN.parse(row[0]) if row and row[0] else None


def table_states(connection: psycopg.Connection[Any], name: str) -> Counter[str]:
    """Returns how many tables of the bridge ``name`` are in each state in the replica."""
    try:
        rows = connection.execute("SELECT state FROM cdc.mirrored_table WHERE name = %s", (name,)).fetchall()
    except psycopg.errors.UndefinedTable:
        return Counter()
    return Counter(state for (state,) in rows)
