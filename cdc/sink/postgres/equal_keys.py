"""Keys that the database calls equal and that are different bytes in the topic, such as numeric ``1.0`` and ``1``.

Theory of operation. The records of these keys lie in different partitions. When a transaction is applied in parts, they
may arrive in any order. The source holds only one of the keys at a time. Therefore the row is the upsert with the
greatest position, unless a tombstone with the same key bytes followed:

- A tombstone removes a row whose key prints as the tombstone's key does, and no other row (``printed_alike``).
- An upsert replaces the row's key, too, so the row always prints as it was last written.
- Of staged rows with equal keys, only the newest is applied. None is applied that is older than what the open
  transaction already wrote (``sift``, which keeps positions in a table of its own). Earlier transactions wrote only
  older rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from psycopg import sql

from cdc.sink.postgres.tables import Equality


def equal(equalities: Mapping[str, Equality]) -> sql.Composed:
    """Returns the condition that the index calls the keys of ``t`` and ``s`` equal.

    The operator has its schema, because the sink's search path does not include those of extensions (citext, ltree).
    """
    return sql.SQL(" AND ").join(
        sql.SQL("t.{0} OPERATOR({1}.{2}) s.{0}").format(
            sql.Identifier(name), sql.Identifier(each.namespace), sql.SQL(each.operator)
        )
        for name, each in equalities.items()
    )


def printed_alike(key: Iterable[str]) -> sql.Composed:
    """Returns the condition that the keys of ``t`` and ``s`` have the same text, hence the same bytes in the topic."""
    names = list(key)
    return sql.SQL('ROW({})::text COLLATE "C" = ROW({})::text COLLATE "C"').format(
        qualified("t", names), qualified("s", names)
    )


def sift(
    rows: sql.Identifier, memory: sql.Identifier, equalities: Mapping[str, Equality], position: Sequence[str]
) -> sql.Composed:
    """Returns the statement that deletes staged rows which a newer row with an equal key replaces.

    Args:
        rows: the staged rows.
        memory: keys and positions of the rows that the open transaction has already written.
        equalities: the equality of each key column.
        position: the columns of both tables that hold LSN and seq.
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
    """Returns ``row.a, row.b``."""
    return sql.SQL(", ").join([sql.Identifier(row, name) for name in names])
