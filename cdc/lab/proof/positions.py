"""Where the source is, where the replica is and whether that is whole: what a comparison has to wait for."""

from __future__ import annotations

from collections import Counter
from typing import Any

import psycopg

from cdc.base.lsn import LSN


def is_captured(connection: psycopg.Connection[Any], name: str) -> bool:
    """Whether what is committed in the source from now on reaches the bridge called ``name``.

    A slot is active while it is being made, too, and before it has a position it sees nothing.
    """
    row = connection.execute(
        "SELECT active AND confirmed_flush_lsn IS NOT NULL FROM pg_replication_slots WHERE slot_name = %s",
        (f"cdc_{name}",),
    ).fetchone()
    return row == (True,)


def fence(connection: psycopg.Connection[Any]) -> LSN:
    """A position after everything that is committed in the source now, which the stream will pass."""
    row = connection.execute("SELECT pg_logical_emit_message(true, 'cdc-proof', 'fence')::text").fetchone()
    assert row is not None
    return LSN.parse(row[0])


def recorded_cut(connection: psycopg.Connection[Any], name: str) -> LSN | None:
    """The LSN that the replica records for what it holds of the database called ``name``; None while it knows none."""
    try:
        row = connection.execute("SELECT lsn::text FROM cdc.cut WHERE name = %s", (name,)).fetchone()
    except psycopg.errors.UndefinedTable:
        return None
    return LSN.parse(row[0]) if row and row[0] else None


def table_states(connection: psycopg.Connection[Any], name: str) -> Counter[str]:
    """How many tables of the database called ``name`` are in which state in the replica."""
    try:
        rows = connection.execute("SELECT state FROM cdc.mirrored_table WHERE name = %s", (name,)).fetchall()
    except psycopg.errors.UndefinedTable:
        return Counter()
    return Counter(state for (state,) in rows)
