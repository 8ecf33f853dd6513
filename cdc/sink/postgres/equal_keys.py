"""Rows whose keys are equal to the database and different bytes in the topic: numeric ``1.0`` and ``1``.

Theory of operation. Such keys lie in different partitions, so parts of a transaction that are applied one by one may
bring them in any order. The source has one of them at a time. Therefore the row is the upsert with the greatest
position, unless a tombstone of its own bytes followed:

- A tombstone removes a row that prints as the tombstone's key does, and no other (``printed_alike``).
- An upsert replaces the row's key, too, so that the row always prints as it was written last.
- Of staged rows with equal keys the newest is taken, and none that is older than what the open transaction wrote before
  (``sift``; positions are kept in a table of their own). What earlier transactions wrote is older than all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from psycopg import sql

from cdc.sink.postgres.tables import Equality


def equal(equalities: Mapping[str, Equality]) -> sql.Composed:
    """Keys of ``t`` and ``s`` are equal to the index.

    Its operator is named in full: our search path does not lead to those of extensions (citext, ltree).
    """
    return sql.SQL(" AND ").join(
        sql.SQL("t.{0} OPERATOR({1}.{2}) s.{0}").format(
            sql.Identifier(name), sql.Identifier(each.namespace), sql.SQL(each.operator)
        )
        for name, each in equalities.items()
    )


def printed_alike(key: Iterable[str]) -> sql.Composed:
    """Keys of ``t`` and ``s`` have the same text, hence the same bytes in the topic."""
    names = list(key)
    return sql.SQL('ROW({})::text COLLATE "C" = ROW({})::text COLLATE "C"').format(
        qualified("t", names), qualified("s", names)
    )


def sift(
    rows: sql.Identifier, memory: sql.Identifier, equalities: Mapping[str, Equality], position: Sequence[str]
) -> sql.Composed:
    """Delete staged rows that a newer one of an equal key outlives.

    Args:
        rows: the staged rows.
        memory: keys and positions of what the open transaction wrote before.
        equalities: of the key columns.
        position: columns of both that hold LSN and seq.
    """
    newest_first = [sql.SQL("{} DESC").format(sql.Identifier(each)) for each in position]
    return sql.SQL(
        "DELETE FROM {rows} WHERE ctid = ANY (ARRAY(SELECT ctid FROM ("
        " SELECT s.ctid, row_number() OVER (PARTITION BY {key} ORDER BY {newest_first}) > 1 OR EXISTS"
        "  (SELECT FROM {memory} AS t WHERE {equal} AND ({there}) > ({here})) AS is_late FROM {rows} AS s"
        ") AS ranked WHERE is_late))"
    ).format(
        rows=rows,
        memory=memory,
        key=qualified("s", equalities),
        newest_first=sql.SQL(", ").join(newest_first),
        equal=equal(equalities),
        there=qualified("t", position),
        here=qualified("s", position),
    )


def qualified(row: str, names: Iterable[str]) -> sql.Composed:
    """``row.a, row.b``."""
    return sql.SQL(", ").join([sql.Identifier(row, name) for name in names])
