"""Applies ``--where`` to a replica: decides by the rows of both sides which differences count.

The source's rows are the truth, so there the condition is asked of the row alone. A replica's row may be wrong in the
very column that the condition looks at. So a difference is left out only if the condition holds neither for the
replica's row nor for the topic's. The topic's row is not in any database: its texts are sent to the replica's server to
ask.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count, islice
from typing import Any, Final, NamedTuple

import psycopg
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from cdc.contract.jobspec.deployment import JobTable
from cdc.spark.source.held_snapshot import reading
from cdc.spark.source.sql import quoted

_AT_ONCE: Final = 1_000
_TYPES: Final = """
SELECT a.attname::text, pg_catalog.format_type(a.atttypid, a.atttypmod) FROM pg_catalog.pg_attribute a
WHERE a.attrelid = pg_catalog.to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped
"""

Texts = Mapping[str, str | None]


class Chosen(NamedTuple):
    """The findings that count.

    Attributes:
        beside: how many of them count for the topic's row only: the condition does not hold for the replica's.
        left_out: how many findings do not count.
    """

    findings: DataFrame
    beside: int
    left_out: int


def chosen(
    findings: DataFrame, where: str, table: JobTable, connection: psycopg.Connection[Any], *, all_rows: bool
) -> Chosen:
    """Leaves out differences that the condition does not select. A key without a row in the replica always counts.

    Args:
        findings: the findings of the replica's second look.
        where: the condition.
        table: the replica's table.
        connection: a connection to the replica, under the snapshot.
        all_rows: ask about identical rows, too, and leave them out likewise.
    """
    asked = "source IS NOT NULL" if all_rows else "source IS NOT NULL AND difference <> 'identical'"
    left_out: list[int] = []
    beside = 0
    rows = findings.where(asked).select("key_hash", "source", "other").toLocalIterator()
    with reading("asking which rows --where is about"):
        question = _question(connection, table, where)
        while some := list(islice(rows, _AT_ONCE)):
            here = _held(connection, question, {n: row["source"] for n, row in enumerate(some)})
            # Only keys with a row in the topic have a second row to ask about.
            others = {n: row["other"] for n, row in enumerate(some) if row["other"] is not None}
            there = _held(connection, question, others)
            left_out += [row["key_hash"] for n, row in enumerate(some) if n not in here and n not in there]
            beside += len(there - here)
    if not left_out:
        return Chosen(findings, beside, 0)
    gone = findings.sparkSession.createDataFrame([(each,) for each in left_out], "key_hash bigint")
    is_row = fn.col("source").isNotNull()
    kept = findings.where(is_row).join(gone, "key_hash", "left_anti").select(*findings.columns)
    return Chosen(findings.where(~is_row).unionByName(kept), beside, len(left_out))


class _Question(NamedTuple):
    """A query whose parameters are the row numbers, and an array of texts for each of the columns in ``names``."""

    query: bytes
    names: tuple[str, ...]


def _question(connection: psycopg.Connection[Any], table: JobTable, where: str) -> _Question:
    """Builds the query that asks for which of the given rows the condition holds."""
    types = dict(connection.execute(_TYPES, (quoted(table.namespace, table.name),)).fetchall())
    columns = [(each.name, types[each.name]) for each in table.columns if each.name in types]
    number = quoted(next(name for n in count() if (name := f"cdc row {n}") not in types))
    casts = "".join(f", c{n}::{kind} AS {quoted(name)}" for n, (name, kind) in enumerate(columns))
    rows = f"(SELECT r AS {number}{casts} FROM given) AS {quoted(table.name)}"
    query = f"SELECT {number} FROM {rows} WHERE coalesce(({where}\n), false)".replace("%", "%%")
    arrays = ", ".join(["%s::int[]", *["%s::text[]"] * len(columns)])
    listed = ", ".join(["r", *(f"c{n}" for n in range(len(columns)))])
    given = f"WITH given ({listed}) AS (SELECT * FROM unnest({arrays}))"
    return _Question(f"{given} {query}".encode(), tuple(name for name, _ in columns))


def _held(connection: psycopg.Connection[Any], question: _Question, rows: Mapping[int, Texts]) -> set[int]:
    """Returns the numbers of the rows for which the condition holds, or of which it cannot be asked."""
    if not rows:
        return set()
    texts = [[row.get(name) for row in rows.values()] for name in question.names]
    try:
        with connection.transaction():
            return {row[0] for row in connection.execute(question.query, [[*rows], *texts])}
    except psycopg.DataError:
        # Some text is not a valid value of its column's type. Halve the rows until the bad one is alone: it counts.
        if len(rows) == 1:
            return {*rows}
        numbers = [*rows]
        halves = numbers[: len(rows) // 2], numbers[len(rows) // 2 :]
        return {n for half in halves for n in _held(connection, question, {each: rows[each] for each in half})}
