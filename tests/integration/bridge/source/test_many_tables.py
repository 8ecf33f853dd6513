"""What the catalog is asked costs in proportion to the tables: with thousands of them a square would take minutes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import psycopg
import pytest
from psycopg.abc import Params, Query
from psycopg.sql import SQL, Composed

from cdc.bridge.capture.reading import published_part
from cdc.bridge.source.catalog import find_tables, table_info
from cdc.bridge.source.membership import memberships
from cdc.bridge.source.publication import creation_command, inspect_publication
from tests.support.servers import Database

_FEW, _MANY = 30, 240


class Explained(psycopg.Connection[Any]):
    """Has the server say how many rows each statement handles, before it runs it."""

    rows = 0.0

    def execute(self, query: Query, params: Params | None = None, **options: Any) -> psycopg.Cursor[Any]:
        assert isinstance(query, bytes | str | SQL | Composed)
        text = query if isinstance(query, bytes | str) else query.as_string(self)
        explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {text if isinstance(text, str) else text.decode()}".encode()
        found = super().execute(explain, params).fetchone()
        assert found is not None
        self.rows += sum(map(_rows, _nodes(found[0][0]["Plan"])))
        return super().execute(query, params, **options)


def _nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield plan
    for each in plan.get("Plans", ()):
        yield from _nodes(each)


def _rows(node: Mapping[str, Any]) -> float:
    removed = sum(value for name, value in node.items() if name.startswith("Rows Removed by"))
    return float((node["Actual Rows"] + removed) * node["Actual Loops"])


def _rows_handled(database: Database, question: Callable[[psycopg.Connection[Any]], object]) -> float:
    # so few rows would be read through, where there is an index for many
    with Explained.connect(database.dsn, autocommit=True, options="-c enable_seqscan=off") as conn:
        question(conn)
        return conn.rows


def _make_tables(database: Database, first: int, last: int) -> None:
    for number in range(first, last + 1):
        database.execute(f"CREATE TABLE t_{number} (id int PRIMARY KEY, a text, b text, c text)")
    with database.connect() as conn:
        tables = find_tables(conn, ["public.*"], (), {})
        conn.execute("DROP PUBLICATION IF EXISTS many")
        conn.execute(creation_command("many", "filtered", tables).encode())
        conn.execute("ANALYZE")


@pytest.mark.pg(16, 18)
def test_eight_times_as_many_tables_do_not_cost_much_more_than_that(database: Database) -> None:
    def tables(conn: psycopg.Connection[Any]) -> object:
        return find_tables(conn, ["public.*"], (), {})

    def publication(conn: psycopg.Connection[Any]) -> object:
        return inspect_publication(conn, "many")

    def members(conn: psycopg.Connection[Any]) -> object:
        return memberships(conn, "many", infos)

    def part(conn: psycopg.Connection[Any]) -> object:
        return published_part(conn, infos[0], "many")

    def one(conn: psycopg.Connection[Any]) -> object:
        return table_info(conn, "public", "t_1", {})

    questions, costs = (tables, publication, members, part, one), []
    for first, last in ((1, _FEW), (_FEW + 1, _MANY)):
        _make_tables(database, first, last)
        with database.connect() as conn:
            infos = find_tables(conn, ["public.*"], (), {})
        costs.append([_rows_handled(database, question) for question in questions])

    times = {question.__name__: many / max(few, 1) for question, few, many in zip(questions, *costs, strict=True)}
    assert {name: ratio for name, ratio in times.items() if ratio > 3 * _MANY / _FEW} == {}
    assert {name: ratio for name, ratio in times.items() if name in ("part", "one") and ratio > 2} == {}
