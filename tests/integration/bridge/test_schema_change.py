"""Tables that change their shape while they are captured."""

from __future__ import annotations

import msgspec

from cdc.contract.naming import schemas_topic
from cdc.contract.record import TableSchema
from cdc.contract.schema import parse_schema
from cdc.lab.proof.topic_side import read_header
from tests.support.deployment import Deployment
from tests.support.topic_audit import read_records


def schemas(live: Deployment, table: str) -> dict[str, TableSchema]:
    """Published definitions of a table by fingerprint."""
    found = (parse_schema(record.value or b"") for record in read_records(live.bootstrap, [schemas_topic(live.name)]))
    return {schema.fingerprint: schema for schema in found if f"{schema.namespace}.{schema.name}" == table}


def columns(live: Deployment, table: str) -> list[tuple[str, str]]:
    """Columns of the replica table with their types."""
    return live.replica.execute(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
        " WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        [table],
    )


def test_columns_come_and_go(live: Deployment) -> None:
    with live.source.connect() as connection:
        connection.execute("CREATE TABLE shape (id integer PRIMARY KEY, a text, b integer)")
        connection.execute("INSERT INTO shape SELECT i, 'a' || i, i FROM generate_series(1, 5) i")
        with connection.transaction():  # both shapes in one transaction
            connection.execute("UPDATE shape SET b = 0 WHERE id = 1")
            connection.execute("ALTER TABLE shape ADD COLUMN c numeric(6,2)")
            connection.execute("UPDATE shape SET c = 1.10 WHERE id = 2")
        connection.execute("ALTER TABLE shape DROP COLUMN a")
        connection.execute("ALTER TABLE shape RENAME COLUMN b TO renamed")
        connection.execute("ALTER TABLE shape ADD COLUMN d text[] DEFAULT '{x}'")
        connection.execute("UPDATE shape SET renamed = renamed")  # every row in its last shape
    live.assert_equal("public.shape")
    known = schemas(live, "public.shape")
    records = live.records("public.shape")
    for record in records:
        schema = known[read_header(record.header)[2]["schema"]]
        value = msgspec.json.decode(record.value or b"{}")
        assert list(value) == [column.name for column in schema.columns]
    shapes = [[column.name for column in schema.columns] for schema in known.values()]
    assert shapes[0] == ["id", "a", "b"]
    assert ["id", "a", "b", "c"] in shapes
    assert shapes[-1] == ["id", "renamed", "c", "d"]
    # What the source dropped stays in the replica, and is NULL in rows written later.
    assert {name for name, _ in columns(live, "shape")} == {"id", "a", "b", "renamed", "c", "d"}
    assert live.replica.execute("SELECT DISTINCT a, b FROM shape") == [(None, None)]


def test_a_column_is_added_beside_a_steady_load(live: Deployment) -> None:
    live.source.execute("CREATE TABLE busy (id integer PRIMARY KEY, note text)")
    with live.source.connect() as connection:
        for round_ in range(4):
            for number in range(100):
                connection.execute("INSERT INTO busy (id, note) VALUES (%s, 'x')", (1000 * round_ + number,))
            connection.execute(f"ALTER TABLE busy ADD COLUMN c{round_} integer".encode())
            connection.execute(f"UPDATE busy SET c{round_} = id".encode())
    live.assert_equal("public.busy")
    assert len(columns(live, "busy")) == 6


def test_a_table_that_is_dropped_and_made_again(live: Deployment) -> None:
    live.source.execute("CREATE TABLE again (id integer PRIMARY KEY, note text)")
    live.source.execute("INSERT INTO again SELECT i, 'old' FROM generate_series(1, 5) i")
    live.assert_equal("public.again")
    live.source.execute(
        "TRUNCATE again; DROP TABLE again; CREATE TABLE again (id integer PRIMARY KEY, note text, n int)"
    )
    live.source.execute("INSERT INTO again SELECT i, 'new', i FROM generate_series(4, 8) i")
    live.assert_equal("public.again")


def test_a_column_that_changes_its_type(live: Deployment) -> None:
    live.source.execute("CREATE TABLE typed (id integer PRIMARY KEY, n integer)")
    live.source.execute("INSERT INTO typed VALUES (1, 1)")
    live.assert_equal("public.typed")
    live.source.execute("ALTER TABLE typed ALTER COLUMN n TYPE bigint")
    live.source.execute("INSERT INTO typed VALUES (2, 9007199254740993)")
    live.assert_published("public.typed")
    live.sink.wait_said("table is stopped")
    said = live.sink.said()
    assert "column 'n' of replica table public.typed has type integer, and the source's is bigint" in said
    assert 'ALTER TABLE \\"public\\".\\"typed\\" ALTER COLUMN \\"n\\" TYPE int8' in said
    live.replica.execute("ALTER TABLE typed ALTER COLUMN n TYPE int8")
    live.sink.stop()
    live.sink.start()
    live.wait_table_equal("public.typed")
    live.assert_equal("public.typed")
