"""What the shapes section sends: backlogs that differ in how rows and transactions look."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.benchmarks import workload

INSERTS: Final = """
DO $$
BEGIN
    FOR low IN 1..{rows} BY {batch} LOOP
        INSERT INTO {table} SELECT {values} FROM generate_series(low, least(low + {batch} - 1, {rows})) n;
        COMMIT;
    END LOOP;
END $$
"""

# A transaction for each table in turn.
INSERTS_IN_TURN: Final = """
DO $$
BEGIN
    FOR low IN 1..{rows} BY {batch} LOOP
        EXECUTE format('INSERT INTO many_%s SELECT {values} FROM generate_series($1, $2) n', low / {batch} % {tables})
        USING low, least(low + {batch} - 1, {rows});
        COMMIT;
    END LOOP;
END $$
"""

CREATE_MANY: Final = """
DO $$
BEGIN
    FOR number IN 0..{tables} - 1 LOOP
        EXECUTE format('CREATE TABLE many_%s (id bigint PRIMARY KEY, status text, amount numeric(12,2), note text)',
            number);
    END LOOP;
END $$
"""

UPDATES: Final = """
DO $$
BEGIN
    FOR low IN 0..{updates} - 1 BY {batch} LOOP
        UPDATE toasted SET n = n + 1 WHERE id IN (SELECT 1 + m % {rows} FROM generate_series(low, low + {batch} - 1) m);
        COMMIT;
    END LOOP;
END $$
"""

BATCH_ROWS: Final = 1000
TOASTED_ROWS: Final = 1000
LINES: Final = (
    "jsonb_build_object('sku', md5((n + m)::text), 'price', (n * m % 99991) / 100.0, 'tags', "
    "jsonb_build_array('a', m, NULL, true))"
)
DOCUMENT: Final = (
    f"n, jsonb_build_object('order', n, 'lines', (SELECT jsonb_agg({LINES}) FROM generate_series(1, 5) m)), "
    "n / 7.0, n * 1.000001::numeric, (n % 1000003) / 3.0::numeric(38, 10)"
)


class Shape(NamedTuple):
    """One backlog.

    Attributes:
        name: for people.
        rows: how many changes it is, about.
        create: statements that make its tables.
        build: statements that make its changes.
        tables: what the bridge captures.
    """

    name: str
    rows: int
    create: Sequence[str]
    build: Sequence[str]
    tables: Sequence[str]


def inserts(name: str, rows: int, create: str, values: str, *, batch: int = BATCH_ROWS) -> Shape:
    """``rows`` inserts into one table, ``batch`` a transaction; ``values`` are made of the number n."""
    table = create.split()[2]
    build = INSERTS.format(rows=rows, batch=batch, table=table, values=values)
    return Shape(name, rows, [create], [build], [f"public.{table}"])


def narrow(rows: int) -> Shape:
    """Rows of 20 bytes, all in one transaction."""
    create = "CREATE TABLE narrow (id bigint PRIMARY KEY, n int, note text)"
    values = "n, (n % 1000)::int, left(md5(n::text), 7)"
    return inserts(f"20-byte inserts, {rows:,} in one transaction", rows, create, values, batch=rows)


def wide(rows: int, width_bytes: int) -> Shape:
    """Rows of one text of that length, kept in line and not compressed."""
    create = "CREATE TABLE wide (id bigint PRIMARY KEY, body text STORAGE PLAIN)"
    values = f"n, left(repeat(md5(n::text), {1 + width_bytes // 32}), {width_bytes})"
    return inserts(f"{width_bytes:,}-byte rows", rows, create, values, batch=100)


def in_tables(rows: int, tables: int) -> Shape:
    """Transactions of ten rows, each in the next one of so many tables."""
    values = "n, ''paid'', n / 100.0, md5(n::text)"
    build = INSERTS_IN_TURN.format(rows=rows, batch=10, tables=tables, values=values)
    names = [f"public.many_{number}" for number in range(tables)]
    return Shape(f"{tables} tables, ten rows a transaction", rows, [CREATE_MANY.format(tables=tables)], [build], names)


def toasted(updates: int) -> Shape:
    """Updates that leave a column of 4 KB as it is, so that the server does not send it."""
    create = "CREATE TABLE toasted (id bigint PRIMARY KEY, n int, body text STORAGE EXTERNAL)"
    fill = INSERTS.format(rows=TOASTED_ROWS, batch=100, table="toasted", values="n, 0, repeat(md5(n::text), 128)")
    build = UPDATES.format(updates=updates, rows=TOASTED_ROWS, batch=100)
    return Shape(
        "updates, 4 KB of TOAST unchanged", TOASTED_ROWS + updates, [create], [fill, build], ["public.toasted"]
    )


def all_shapes(changes: int, narrow_rows: int) -> list[Shape]:
    """The section's shapes, sized so that each takes seconds; of a million changes, there are 200 tables."""
    documents = (
        "CREATE TABLE documents (id bigint PRIMARY KEY, doc jsonb, a numeric(20,6), b numeric, c numeric(38,10))"
    )
    single = workload.INSERTS.format(first=1, last=changes // 5, batch=1)
    return [
        Shape("nine columns, mixed", changes, workload.ORDERS, workload.mixed(changes), ["public.orders"]),
        narrow(narrow_rows),
        wide(changes // 5, 1600),
        inserts("jsonb of 600 bytes and three numerics", changes // 5, documents, DOCUMENT),
        Shape("single-row transactions, nine columns", changes // 5, workload.ORDERS, [single], ["public.orders"]),
        in_tables(changes // 2, min(200, changes // 2000)),
        toasted(changes // 20),
    ]
