"""What each kind of change becomes: one running bridge and sink, each test with tables of its own."""

from __future__ import annotations

import time
from typing import NamedTuple

import msgspec

from cdc.base.lsn import LSN
from cdc.contract.naming import topic_name
from cdc.lab.proof.comparison import describe, pinned
from cdc.lab.proof.topic_side import read_header
from tests.support.deployment import Deployment
from tests.support.servers import Database
from tests.support.topic_audit import audit, read_records
from tests.support.waiting import eventually

BIG = "(SELECT string_agg(md5(({}+i)::text), '') FROM generate_series(1, 300) i)"


class Seen(NamedTuple):
    """A record as these tests look at it."""

    op: str
    key: dict[str, object]
    value: dict[str, object] | None
    seq: int


def seen(live: Deployment, table: str) -> list[Seen]:
    """Records of a table in stream order; within one change the tombstone comes first."""
    records = live.records(table)
    assert audit(records) == []
    found = []
    for record in records:
        lsn, seq, fields = read_header(record.header)
        value = msgspec.json.decode(record.value) if record.value is not None else None
        found.append(
            (lsn, seq, value is not None, Seen(fields["op"], msgspec.json.decode(record.key or b""), value, seq))
        )
    return [each for *_, each in sorted(found, key=lambda each: each[:3])]


def test_insert_update_delete_and_their_headers(live: Deployment) -> None:
    live.source.execute("CREATE TABLE plain (id integer PRIMARY KEY, note text, n numeric(5,2))")
    with live.source.connect() as connection, connection.transaction():
        xid = connection.execute("SELECT pg_current_xact_id()::text").fetchone()
        connection.execute("INSERT INTO plain VALUES (1, 'a', 1.10), (2, NULL, NULL)")
        connection.execute("UPDATE plain SET note = 'b' WHERE id = 1")
        connection.execute("DELETE FROM plain WHERE id = 2")
    live.assert_equal("public.plain")
    assert seen(live, "public.plain") == [
        Seen("c", {"id": 1}, {"id": 1, "note": "a", "n": "1.10"}, 1),
        Seen("c", {"id": 2}, {"id": 2, "note": None, "n": None}, 2),
        Seen("u", {"id": 1}, {"id": 1, "note": "b", "n": "1.10"}, 3),
        Seen("d", {"id": 2}, None, 4),
    ]
    headers = [read_header(record.header)[2] for record in live.records("public.plain")]
    assert {header["lsn"] for header in headers} == {headers[0]["lsn"]}
    assert {header["xid"] for header in headers} == set(xid or ())
    assert all(0 < time.time() - int(header["ts"]) / 1e6 < 60 for header in headers)


def test_rolled_back_work_is_never_published(live: Deployment) -> None:
    live.source.execute("CREATE TABLE rolled (id integer PRIMARY KEY)")
    with live.source.connect() as connection:
        with connection.transaction(force_rollback=True):
            connection.execute("INSERT INTO rolled VALUES (1)")
        with connection.transaction():
            connection.execute("INSERT INTO rolled VALUES (2)")
            with connection.transaction(force_rollback=True):
                connection.execute("INSERT INTO rolled VALUES (3)")
                connection.execute("DELETE FROM rolled WHERE id = 2")
            with connection.transaction():
                connection.execute("INSERT INTO rolled VALUES (4)")
    live.assert_equal("public.rolled")
    assert [each.key for each in seen(live, "public.rolled")] == [{"id": 2}, {"id": 4}]


def test_a_changed_key_is_a_tombstone_and_an_upsert(live: Deployment) -> None:
    live.source.execute("CREATE TABLE moved (a text, b integer, note text, PRIMARY KEY (b, a))")
    live.source.execute("INSERT INTO moved VALUES ('x', 1, 'n'), ('y', 2, 'n')")
    live.source.execute("UPDATE moved SET a = 'z' WHERE b = 1")
    live.source.execute("UPDATE moved SET b = b, a = a, note = 'same' WHERE b = 2")
    live.assert_equal("public.moved")
    assert [each[:3] for each in seen(live, "public.moved")[2:]] == [
        ("u", {"b": 1, "a": "x"}, None),
        ("u", {"b": 1, "a": "z"}, {"a": "z", "b": 1, "note": "n"}),
        ("u", {"b": 2, "a": "y"}, {"a": "y", "b": 2, "note": "same"}),
    ]


def test_keys_that_change_places(live: Deployment) -> None:
    live.source.execute("CREATE TABLE swapped (id integer PRIMARY KEY, note text)")
    live.source.execute("INSERT INTO swapped SELECT i, 'row ' || i FROM generate_series(1, 50) i")
    with live.source.connect() as connection, connection.transaction():
        connection.execute("UPDATE swapped SET id = -1 WHERE id = 1")
        connection.execute("UPDATE swapped SET id = 1 WHERE id = 2")
        connection.execute("UPDATE swapped SET id = 2 WHERE id = -1")
        connection.execute("DELETE FROM swapped WHERE id = 3")
        connection.execute("INSERT INTO swapped VALUES (3, 'again')")
        connection.execute("UPDATE swapped SET id = id + 1000 WHERE id > 40")
    live.assert_equal("public.swapped")


def test_truncate_leaves_no_key_behind(live: Deployment) -> None:
    for name in ("cut_one", "cut_two", "cut_three"):
        live.source.execute(f"CREATE TABLE {name} (id serial PRIMARY KEY, note text)")
    live.source.execute("CREATE TABLE cut_child (id integer PRIMARY KEY REFERENCES cut_three)")
    tables = [f"public.{name}" for name in ("cut_one", "cut_two", "cut_three", "cut_child")]
    with live.source.connect() as connection:
        for name in ("cut_one", "cut_two", "cut_three"):
            connection.execute(f"INSERT INTO {name} (note) SELECT 'old' FROM generate_series(1, 30)".encode())
        connection.execute("INSERT INTO cut_child VALUES (1), (2)")
        connection.execute("TRUNCATE cut_one")
        live.assert_equal(*tables)
        with connection.transaction():
            connection.execute("INSERT INTO cut_one (note) VALUES ('gone too')")
            connection.execute("UPDATE cut_two SET note = 'about to go'")
            connection.execute("TRUNCATE cut_one, cut_two RESTART IDENTITY")
            connection.execute("INSERT INTO cut_one (note) VALUES ('stays')")
            connection.execute("TRUNCATE cut_three CASCADE")
            connection.execute("TRUNCATE cut_two")
            connection.execute("INSERT INTO cut_two (note) VALUES ('stays, too')")
    live.assert_equal(*tables)
    truncated = [each for each in seen(live, "public.cut_three") if each.op == "t"]
    assert sorted(str(each.key["id"]) for each in truncated) == sorted(str(n) for n in range(1, 31))
    assert all(each.value is None for each in truncated)
    assert live.source.execute("SELECT count(*) FROM cut_one")[0][0] == 1


def test_a_value_the_stream_left_out_is_read_again(live: Deployment) -> None:
    """Unchanged TOAST, with the key changed as well, under every identity."""
    names = []
    with live.source.connect() as connection:
        for name, identity in (
            ("toast_default", "DEFAULT"),
            ("toast_full", "FULL"),
            ("toast_index", "USING INDEX toast_index_other_key"),
        ):
            connection.execute(
                f"CREATE TABLE {name} (id int PRIMARY KEY, other int NOT NULL, n int, big text, also bytea);"
                f"CREATE UNIQUE INDEX {name}_other_key ON {name} (other);"
                f"ALTER TABLE {name} REPLICA IDENTITY {identity};"
                f"INSERT INTO {name} SELECT i, -i, 0, {BIG.format('i')}, convert_to({BIG.format('-i')}, 'UTF8')"
                " FROM generate_series(1, 9) i;".encode()
            )
            for statement in (
                "UPDATE {} SET n = 1 WHERE id < 8",
                "UPDATE {} SET id = id + 100 WHERE id < 3",
                "UPDATE {} SET other = other - 100, n = 2 WHERE id IN (3, 4)",
                "UPDATE {} SET n = 3, big = 'small' WHERE id = 5",
                "UPDATE {} SET n = 4, big = NULL WHERE id = 6",
                "UPDATE {} SET n = 5 WHERE id IN (5, 6); DELETE FROM {} WHERE id = 7",
            ):
                connection.execute(statement.replace("{}", name).encode())
            names.append(f"public.{name}")
    with pinned(live.source.dsn) as source:
        by_index = describe(source, names[2], ("other",))
    live.assert_equal(*names[:2], by_index)
    for name in names:
        assert all(each.value is None or len(each.value) == 5 for each in seen(live, name))


def test_partitions_publish_under_their_root(live: Deployment) -> None:
    live.source.execute(
        "CREATE TABLE parts (region text, id integer, note text, PRIMARY KEY (id, region)) PARTITION BY LIST (region);"
        "CREATE TABLE parts_eu PARTITION OF parts FOR VALUES IN ('eu');"
        "CREATE TABLE parts_us PARTITION OF parts FOR VALUES IN ('us') PARTITION BY RANGE (id);"
        "CREATE TABLE parts_us_low PARTITION OF parts_us FOR VALUES FROM (0) TO (100);"
        "CREATE TABLE parts_us_high PARTITION OF parts_us FOR VALUES FROM (100) TO (200);"
    )
    with live.source.connect() as connection:
        connection.execute("INSERT INTO parts SELECT 'eu', i, 'n' FROM generate_series(1, 20) i")
        connection.execute("INSERT INTO parts_us_low SELECT 'us', i, 'n' FROM generate_series(1, 20) i")
        connection.execute("UPDATE parts SET region = 'us', id = id + 50 WHERE region = 'eu' AND id < 5")
        connection.execute("UPDATE parts SET id = id + 100 WHERE region = 'us' AND id > 15 AND id < 50")
        connection.execute("UPDATE parts SET note = 'changed' WHERE id % 2 = 0")
        connection.execute("DELETE FROM parts WHERE id % 3 = 0")
        connection.execute("CREATE TABLE parts_asia PARTITION OF parts FOR VALUES IN ('asia')")
        connection.execute("INSERT INTO parts VALUES ('asia', 1, 'new partition')")
    live.assert_equal("public.parts")
    live.source.execute("TRUNCATE parts")
    live.assert_equal("public.parts")


def test_other_keys_than_the_primary_one(live: Deployment) -> None:
    live.source.execute(
        "CREATE TABLE by_index (code text NOT NULL, region text NOT NULL, note text);"
        "CREATE UNIQUE INDEX by_index_key ON by_index (region, code);"
        "ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_index_key;"
        "CREATE TABLE keyed (note text, b integer, a integer);"  # its key is in source.keys
        "ALTER TABLE keyed REPLICA IDENTITY FULL;"
    )
    with live.source.connect() as connection:
        connection.execute("INSERT INTO by_index SELECT 'c' || i, 'r', 'n' FROM generate_series(1, 9) i")
        connection.execute("UPDATE by_index SET code = 'moved' WHERE code = 'c1'")
        connection.execute("UPDATE by_index SET note = 'changed' WHERE code = 'c2'")
        connection.execute("DELETE FROM by_index WHERE code = 'c3'")
        connection.execute("INSERT INTO keyed SELECT 'n', i, -i FROM generate_series(1, 9) i")
        connection.execute("UPDATE keyed SET a = 0 WHERE b = 1")
        connection.execute("UPDATE keyed SET note = 'changed' WHERE b = 2")
        connection.execute("DELETE FROM keyed WHERE b = 3")
    with pinned(live.source.dsn) as source:
        keyed = describe(source, "public.keyed", ("a", "b"))
    live.assert_equal("public.by_index", keyed)
    assert seen(live, "public.by_index")[0].key == {"region": "r", "code": "c1"}


def test_names_of_all_kinds(live: Deployment) -> None:
    schema, name = 'Quoted_" . Schema', 'dot.ted "naïve"\\%s'
    live.source.execute(
        'CREATE SCHEMA "Quoted_"" . Schema";'
        'CREATE TABLE "Quoted_"" . Schema"."dot.ted ""naïve""\\%s" ("Id" integer PRIMARY KEY, "id" text, "a.b" text);'
        'CREATE TABLE "CamelCase" (id integer PRIMARY KEY, "select" text, "per%cent" text, "Ünï" text);'
        'CREATE TABLE "camelcase" (id integer PRIMARY KEY)'
    )
    with live.source.connect() as connection:
        connection.execute('INSERT INTO "Quoted_"" . Schema"."dot.ted ""naïve""\\%s" VALUES (1, \'x\', \'y\')')
        connection.execute("INSERT INTO \"CamelCase\" VALUES (1, 's', 'p', 'u')")
        connection.execute("INSERT INTO camelcase VALUES (2)")
    live.assert_equal("public.CamelCase", "public.camelcase")
    records = read_records(live.bootstrap, [topic_name(live.name, schema, name)])
    assert [(record.key, record.value) for record in records] == [(b'{"Id":1}', b'{"Id":1,"id":"x","a.b":"y"}')]
    mirrored = live.replica.execute('SELECT * FROM "Quoted_"" . Schema"."dot.ted ""naïve""\\%s"')
    assert mirrored == [(1, "x", "y")]


def test_an_idle_slot_advances_beside_a_busy_database(live: Deployment, database: Database) -> None:
    """Nothing to publish for a while, but WAL must not pile up behind the slot."""
    live.wait_published()
    before = len(live.records("public.first"))
    database.execute("CREATE TABLE busy AS SELECT i, md5(i::text) FROM generate_series(1, 20000) i")
    target = LSN.parse(database.execute("SELECT pg_current_wal_flush_lsn()::text")[0][0])
    live.wait_published(target)
    confirmed = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s"
    # What is published is confirmed a moment later: the server hears it after Kafka has it, never before
    eventually(lambda: LSN.parse(live.source.execute(confirmed, [live.slot()])[0][0]) >= target)
    live.wait_mirrored(target)
    assert len(live.records("public.first")) == before
