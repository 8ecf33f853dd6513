"""The measured load: an orders table of nine columns, and WAL backlogs of known length built inside the server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import psycopg
from psycopg import errors, sql

from cdc.base.lsn import LSN
from tests.benchmarks.processes import wait_until
from tests.benchmarks.servers import Servers

PUBLICATION = "bench"
SLOT = "bench_untouched"
INSERT_BATCH_ROWS = 1000
UPDATE_BATCH_ROWS = 100

CREATE_TABLE = """
CREATE TABLE orders (
    id bigint PRIMARY KEY, customer_id int, status text, amount numeric(12,2), note text, tags text[],
    created_at timestamptz, updated_at timestamptz, payload jsonb
) WITH (autovacuum_enabled = false)
"""

# One row as a function of its key: about 270 bytes as the topic's JSON value, without TOAST.
CREATE_ROW_FUNCTION = """
CREATE FUNCTION bench_row(n bigint) RETURNS orders LANGUAGE sql STABLE BEGIN ATOMIC
SELECT n, (n * 7919 % 50000)::int, (ARRAY['new', 'paid', 'packed', 'sent'])[1 + n % 4], (n * 104729 % 99999999) / 100.0,
    'note ' || left(md5(n::text), 16), ARRAY['tag' || n % 97, 'express'],
    '2025-01-01 00:00:00.123456+00'::timestamptz + n * interval '1.000017 s', clock_timestamp(),
    jsonb_build_object('channel', 'web', 'items', n % 9, 'gift', n % 2 = 0);
END
"""

ORDERS = (CREATE_TABLE, CREATE_ROW_FUNCTION)

INSERTS = """
DO $$
BEGIN
    FOR low IN {first}..{last} BY {batch} LOOP
        INSERT INTO orders
        SELECT made.* FROM generate_series(low, least(low + {batch} - 1, {last})) n, bench_row(n) made;
        COMMIT;
    END LOOP;
END $$
"""

# A permutation of the keys spreads each transaction over the table. Four transactions of updates are followed by one of
# deletes, which takes every fourth row that those have just updated.
UPDATES_AND_DELETES = """
DO $$
DECLARE
    block bigint[];
BEGIN
    FOR low IN 0..{updates} - 1 BY 4 * {batch} LOOP
        SELECT array_agg(1 + n::bigint * 48271 % {rows} ORDER BY n) INTO block
        FROM generate_series(low, least(low + 4 * {batch}, {updates}) - 1) n;
        FOR part IN 0..3 LOOP
            UPDATE orders SET status = 'done', amount = amount + 1, updated_at = clock_timestamp()
            WHERE id = ANY (block[part * {batch} + 1:(part + 1) * {batch}]);
            COMMIT;
        END LOOP;
        DELETE FROM orders WHERE id IN (SELECT key FROM unnest(block) WITH ORDINALITY b (key, n) WHERE n % 4 = 0);
        COMMIT;
    END LOOP;
END $$
"""

# The same permutation: each row once, updated, or deleted from the given one on.
EACH_ONCE = """
DO $$
BEGIN
    FOR low IN 0..{rows} - 1 BY {batch} LOOP
        IF low < {updates} THEN
            UPDATE orders SET status = 'done', amount = amount + 1, updated_at = clock_timestamp()
            WHERE id IN (SELECT 1 + n::bigint * 48271 % {rows} FROM generate_series(low, low + {batch} - 1) n);
        ELSE
            DELETE FROM orders
            WHERE id IN (SELECT 1 + n::bigint * 48271 % {rows} FROM generate_series(low, low + {batch} - 1) n);
        END IF;
        COMMIT;
    END LOOP;
END $$
"""

MESSAGES = """
SELECT coalesce(max(lsn), '0/0') AS last_commit, coalesce(sum(length(data)), 0)::bigint AS stream_bytes,
    count(*) FILTER (WHERE get_byte(data, 0) = ascii('I')) AS inserts,
    count(*) FILTER (WHERE get_byte(data, 0) = ascii('U')) AS updates,
    count(*) FILTER (WHERE get_byte(data, 0) = ascii('D')) AS deletes,
    count(*) FILTER (WHERE get_byte(data, 0) = ascii('C')) AS transactions
FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL, 'proto_version', '1', 'publication_names', %s)
"""


FILL = "INSERT INTO {} SELECT made.* FROM generate_series(1, %s::bigint) n, LATERAL bench_row(n) made"


class Backlog(NamedTuple):
    """What the untouched slot holds, as its messages were counted; ``end`` is the end LSN of the last commit."""

    end: LSN
    stream_bytes: int
    inserts: int
    updates: int
    deletes: int
    transactions: int

    @property
    def changes(self) -> int:
        return self.inserts + self.updates + self.deletes


def connect(dsn: str) -> psycopg.Connection:
    """An autocommit connection: DO blocks with COMMIT inside refuse to run in a transaction."""
    return psycopg.connect(dsn, autocommit=True, application_name="bench")


@contextmanager
def source(
    servers: Servers, database: str, *, create: Sequence[str] = ORDERS, published: str = "TABLE orders"
) -> Iterator[tuple[str, psycopg.Connection]]:
    """A source database with empty tables, publication and logical slot; the slot sees everything from here on."""
    with servers.database(database) as dsn, connect(dsn) as conn:
        prepare(conn, create, published)
        try:
            yield dsn, conn
        finally:
            drop_slot(conn, SLOT)


def prepare(conn: psycopg.Connection, create: Sequence[str], published: str) -> None:
    """Make tables, publication and the untouched slot."""
    for statement in (*create, f"CREATE PUBLICATION {PUBLICATION} FOR {published}"):
        conn.execute(statement.encode())
    conn.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [SLOT])


@contextmanager
def copied_slot(conn: psycopg.Connection, name: str) -> Iterator[str]:
    """A copy of the untouched slot, for one contender."""
    conn.execute("SELECT pg_copy_logical_replication_slot(%s, %s)", [SLOT, name])
    try:
        yield name
    finally:
        drop_slot(conn, name)


def drop_slot(conn: psycopg.Connection, name: str) -> None:
    """Drop a slot as soon as the walsender of a client that has ended lets go of it."""

    def dropped() -> bool:
        try:
            conn.execute("SELECT pg_drop_replication_slot(%s)", [name])
        except errors.ObjectInUse:
            return False
        return True

    wait_until(dropped, f"slot {name} to become free")


def insert_rows(conn: psycopg.Connection, first: int, last: int, *, batch: int = INSERT_BATCH_ROWS) -> None:
    """Insert the rows of keys ``first`` to ``last`` (both included), ``batch`` rows a transaction."""
    build(conn, INSERTS.format(first=first, last=last, batch=batch))


def fill(conn: psycopg.Connection, table: str, rows: int) -> None:
    """Put rows 1 to ``rows`` into an empty table in one go, and leave it as a table at rest is."""
    name = sql.Identifier(table)
    conn.execute(sql.SQL(FILL).format(name), [rows])
    conn.execute(sql.SQL("VACUUM ANALYZE {}").format(name))
    conn.execute("CHECKPOINT")


def build_mixed(conn: psycopg.Connection, changes: int) -> None:
    """Build a backlog of half inserts, two fifths updates and one tenth deletes; ``changes`` a multiple of 4,000."""
    for statement in mixed(changes):
        build(conn, statement)


def mixed(changes: int) -> list[str]:
    """The statements of ``build_mixed``."""
    rows, updates = changes // 2, changes * 2 // 5
    inserted = INSERTS.format(first=1, last=rows, batch=INSERT_BATCH_ROWS)
    return [inserted, UPDATES_AND_DELETES.format(rows=rows, updates=updates, batch=UPDATE_BATCH_ROWS)]


def change_each(conn: psycopg.Connection, rows: int, updates: int) -> None:
    """Update ``updates`` of the rows 1 to ``rows`` and delete the others; both multiples of the batch."""
    build(conn, EACH_ONCE.format(rows=rows, updates=updates, batch=UPDATE_BATCH_ROWS))


def scattered(place: int, rows: int) -> int:
    """The key at a place, from 0, of the order in which ``change_each`` goes."""
    return 1 + place * 48271 % rows


def count_backlog(conn: psycopg.Connection, slot: str = SLOT) -> Backlog:
    """Decode the slot once without consuming it. A CHECKPOINT first, so that no run pays for the building."""
    conn.execute("VACUUM ANALYZE")
    conn.execute("CHECKPOINT")
    row = conn.execute(MESSAGES, [slot, PUBLICATION]).fetchone()
    assert row is not None
    return Backlog(LSN.parse(row[0]), *row[1:])


def build(conn: psycopg.Connection, statement: str) -> None:
    """Run a building statement; waiting for each commit's fsync would only make the building slower."""
    conn.execute("SET synchronous_commit = off")
    conn.execute(statement.encode())
    conn.execute("RESET synchronous_commit")
