"""Replica tables: made, mapped, widened, refused; and tables that stop while the others go on."""

from __future__ import annotations

import re
from typing import Any

import orjson
import pytest
import sqlalchemy as sa

from cdc.base.config import Config
from cdc.base.errors import ConfigError, ReplicaRefused, ReplicaUnavailable
from cdc.contract.record import SchemaColumn, SourceIdentity, TableSchema
from cdc.sink.postgres.tables import establish
from cdc.sink.replica import ReplicaName
from tests.integration.sink.postgres.conftest import Mirror, running, sink_config
from tests.integration.sink.postgres.test_exactness import wait_for_state
from tests.support.servers import Database
from tests.support.topic_writer import TopicWriter
from tests.support.waiting import eventually


def publish(topics: TopicWriter, lsn: int, table: TableSchema, *rows: dict[str, Any], define: bool = True) -> None:
    with topics.kafka_transaction():
        if define:
            topics.define(table)
        for seq, row in enumerate(rows, 1):
            topics.upsert(table, row, lsn, seq)
        topics.progress(lsn + 1)


def columns_of(database: Database, table: str) -> dict[str, str]:
    return dict(
        database.execute(
            "select attname, format_type(atttypid, atttypmod) from pg_attribute "
            f"where attrelid = '{table}'::regclass and attnum > 0 and not attisdropped order by attnum"
        )
    )


def state_of(database: Database, table: TableSchema) -> tuple[Any, ...]:
    query = (
        "select state, reason, stopped_key, stopped_partition, stopped_offset from cdc.mirrored_table where topic = %s"
    )
    found: tuple[Any, ...] = database.execute(query, [table.topic])[0]
    return found


def test_created_from_the_definition(topics: TopicWriter, database: Database, mirror: Mirror) -> None:
    database.execute("create type \"odd Type\" as enum ('a')")
    table = topics.table(
        "t", ("b", "a"), a="int8", b="varchar(10)", c="numeric(12,2)", d="timestamptz(3)", e="text[]", f='"char"',
        g='"public"."odd Type"', h='"public"."unknown"', i='"public"."unknown"[]', j="interval day to second(3)",
        k="bit(5)", l="char(8)", m="jsonb", n="oid",
    )  # fmt: skip
    publish(topics, 10, table)
    mirror.wait_for_cut(11)
    assert columns_of(database, "t") == {
        "a": "bigint", "b": "character varying(10)", "c": "numeric(12,2)", "d": "timestamp(3) with time zone",
        "e": "text[]", "f": '"char"', "g": '"odd Type"', "h": "text", "i": "text", "j": "interval day to second(3)",
        "k": "bit(5)", "l": "character(8)", "m": "jsonb", "n": "oid",
    }  # fmt: skip
    assert database.execute(
        "select pg_get_constraintdef(oid) from pg_constraint where contype = 'p' and conrelid = 't'::regclass"
    ) == [("PRIMARY KEY (b, a)",)]


def test_names_may_be_anything(topics: TopicWriter, database: Database, mirror: Mirror) -> None:
    names = ['q"uote', "per%cent", "per%(s)s", "dot.ted", "Camel", "select", "ünï", " ", "back\\slash", ":colon", "{0}"]
    table = topics.table("odd %s", ("per%cent", 'q"uote'), **dict.fromkeys(names, "text"))
    row = {name: f"<{name}>" for name in names}
    publish(topics, 10, table, row)
    mirror.wait_for_cut(11)
    assert database.execute('select * from public."odd %s"') == [tuple(row.values())]
    with topics.kafka_transaction():
        topics.delete(table, row, 20)
        topics.progress(21)
    mirror.wait_for_cut(21)
    assert database.execute('select * from public."odd %s"') == []


def test_mapping(topics: TopicWriter, database: Database) -> None:
    config = sink_config(topics, database, schema="mirror", prefix="m_", tables={"public.b": "other.named"})
    a, b = topics.table("a", id="int4"), topics.table("b", id="int4")
    publish(topics, 10, a, {"id": 1})
    publish(topics, 20, b, {"id": 2})
    with running(config, database) as mirror:
        mirror.wait_for_cut(21)
    assert database.execute("select (select id from mirror.m_a), (select id from other.named)") == [(1, 2)]
    moved = sink_config(topics, database, schema="elsewhere")
    publish(topics, 30, topics.table("c", id="int4"), {"id": 3})
    with running(moved, database) as mirror:
        mirror.wait_for_cut(31)
    state, reason = state_of(database, a)[:2]
    assert state == "stopped"
    assert "was mirrored into mirror.m_a until now, but the configuration says elsewhere.a" in reason
    assert database.execute("select id from elsewhere.c") == [(3,)]
    # the second of the two ways that the reason names, for the tables that were mirrored before
    for table, place in ((a, "elsewhere.a"), (b, "elsewhere.b")):
        said = state_of(database, table)[1] or ""
        database.execute(f"alter table {said.split('mirrored into ')[1].split(' ')[0]} set schema elsewhere")
        update = re.search("UPDATE cdc.mirrored_table .*?;", said)
        assert update is not None
        assert f"'{place}'" in update[0]
        database.execute(update[0])
    database.execute("alter table elsewhere.m_a rename to a; alter table elsewhere.named rename to b")
    publish(topics, 40, a, {"id": 4})
    with running(moved, database) as mirror:
        mirror.wait_for_cut(41)
        eventually(lambda: {state_of(database, each)[0] for each in (a, b)} == {"exact"})
    assert database.execute("select id from elsewhere.a order by id") == [(1,), (4,)]
    assert database.execute("select id from elsewhere.b") == [(2,)]


def test_new_columns_are_added_and_dropped_ones_stay(topics: TopicWriter, database: Database, mirror: Mirror) -> None:
    publish(
        topics,
        10,
        topics.table("t", id="int4", a="text", b="text"),
        {"id": 1, "a": "a", "b": "b"},
        {"id": 2, "a": "a", "b": "b"},
    )
    mirror.wait_for_cut(11)
    publish(topics, 20, topics.table("t", id="int4", a="text", c="numeric(6,2)"), {"id": 2, "a": "A", "c": "1.10"})
    mirror.wait_for_cut(21)
    rows = [(1, "a", "b", None), (2, "A", None, "1.10")]
    assert database.execute("select id, a, b, c::text from t order by id") == rows
    with topics.kafka_transaction():
        topics.delete(topics.table("t", id="int4"), {"id": 1}, 30)
        topics.progress(31)
    mirror.wait_for_cut(31)
    assert database.execute("select id, a, b, c::text from t order by id") == rows[1:]


def test_definitions_published_again(topics: TopicWriter, database: Database, mirror: Mirror) -> None:
    """Each session of a bridge publishes its definitions again; going back to an older one is a change, too."""
    narrow, wide = topics.table("t", id="int4"), topics.table("t", id="int4", v="text")
    publish(topics, 10, narrow, {"id": 1})
    mirror.wait_for_cut(11)
    for lsn, table in ((20, narrow), (30, wide), (40, wide), (50, narrow), (60, narrow), (70, wide)):
        publish(topics, lsn, table, {"id": lsn, "v": "v"} if table is wide else {"id": lsn})
        mirror.wait_for_cut(lsn + 1)
    rows = [(1, None), (20, None), (30, "v"), (40, "v"), (50, None), (60, None), (70, "v")]
    assert database.execute("select id, v from t order by id") == rows
    staging = "select count(*) from pg_class where relname like 'cdc rows %'"
    assert database.execute(staging) == [(1,)]


def test_fresh_replica_reads_old_definitions(topics: TopicWriter, database: Database, config: Config) -> None:
    publish(topics, 10, topics.table("t", id="int4", a="int4", gone="text"), {"id": 1, "a": 5, "gone": "x"})
    publish(topics, 20, topics.table("t", id="int4", a="text", new="text[]"), {"id": 2, "a": "six", "new": ["n"]})
    with running(config, database) as mirror:
        mirror.wait_for_cut(21)
    assert columns_of(database, "t") == {"id": "integer", "a": "text", "new": "text[]", "gone": "text"}
    assert database.execute("select id, a, new, gone from t order by id") == [
        (1, "5", None, "x"),
        (2, "six", ["n"], None),
    ]


def test_column_of_another_type_stops_that_table(topics: TopicWriter, database: Database, config: Config) -> None:
    database.execute("create table t (id int8 primary key, v int4)")
    database.execute("create table nokey (id int4)")
    table, good, nokey = (
        topics.table("t", id="int4", v="timestamptz"),
        topics.table("good", id="int4"),
        topics.table("nokey", id="int4"),
    )
    publish(topics, 10, table, {"id": 1, "v": "2026-01-01 00:00:00+00"})
    publish(topics, 20, nokey, {"id": 1})
    publish(topics, 30, good, {"id": 1})
    with running(config, database) as mirror:
        mirror.wait_for_cut(31)
    state, reason, *_ = state_of(database, table)
    assert state == "stopped"
    assert (
        "column 'v' of replica table public.t has type integer, and the source's is timestamp with time zone" in reason
    )
    assert 'ALTER TABLE "public"."t" ALTER COLUMN "v" TYPE timestamptz USING' in reason
    assert "no primary key or unique constraint on exactly the key columns" in state_of(database, nokey)[1]
    assert state_of(database, good)[0] == "exact"
    database.execute("alter table t drop column v, add column v timestamptz")
    database.execute("alter table nokey add unique (id)")
    with running(config, database) as mirror:
        mirror.wait_for_cut(31)
    assert database.execute("select id, v::text from t") == [(1, "2026-01-01 00:00:00+00")]
    assert database.execute("select id from nokey") == [(1,)]
    assert state_of(database, table) == ("exact", None, None, None, None)


def test_replica_may_be_wider(topics: TopicWriter, database: Database, mirror: Mirror) -> None:
    database.execute(
        "create table t (id int8 generated always as identity primary key, v text not null default 'x', "
        "doubled int8 generated always as (id * 2) stored, own text default 'mine')"
    )
    publish(
        topics, 10, topics.table("t", id="int4", v="varchar(10)", doubled="int8"), {"id": 7, "v": "a", "doubled": 14}
    )
    mirror.wait_for_cut(11)
    assert database.execute("select id, v, doubled, own from t") == [(7, "a", 14, "mine")]


def test_rejected_record_stops_its_table_only(topics: TopicWriter, database: Database, config: Config) -> None:
    database.execute("create table bad (id int4 primary key, v int4 check (v < 1000))")
    bad, good = topics.table("bad", id="int4", v="int4"), topics.table("good", id="int4", v="int4")
    publish(topics, 10, bad, {"id": 1, "v": 1})
    publish(topics, 12, good, {"id": 1, "v": 1})
    with running(config, database) as mirror:
        mirror.wait_for_cut(13)
        with topics.kafka_transaction():
            for i in range(100):
                topics.upsert(bad, {"id": i, "v": 1000 if i == 77 else 2}, 20, i)
                topics.upsert(good, {"id": i, "v": 2}, 20, i + 100)
            topics.progress(21)
        mirror.wait_for_cut(21)
        publish(topics, 30, good, {"id": 500, "v": 3}, define=False)
        publish(topics, 40, bad, {"id": 501, "v": 3}, define=False)
        mirror.wait_for_cut(41)
        assert database.execute("select v, count(*) from good group by v order by v") == [(2, 100), (3, 1)]
        assert database.execute("select id, v from bad") == [(1, 1)], "as it was, not half of a cut"
        state, reason, key, partition, offset = state_of(database, bad)
        assert (state, key) == ("stopped", '{"id":77}')
        assert "check constraint" in reason
        assert "(77, 1000)" in reason
        assert offset is not None
        assert partition is not None
    database.execute("alter table bad drop constraint bad_v_check")
    with running(config, database) as mirror:
        mirror.wait_for_cut(41)
    assert database.execute("select count(*), max(v) from bad") == [(101, 1000)]
    assert state_of(database, bad)[0] == "exact"


@pytest.mark.parametrize(
    ("poison", "shown"), [(b"\0\0\0\0\x07\x02", "\\0\\0\\0\\0\x07\x02"), (b"a\xff\0", "a\ufffd\\0")]
)
def test_a_key_of_any_bytes_stops_its_table_only(
    topics: TopicWriter, database: Database, mirror: Mirror, poison: bytes, shown: str
) -> None:
    """PostgreSQL takes no NUL in a text, and the sink ended when it recorded such a key."""
    table, good = topics.table("t", id="int4"), topics.table("good", id="int4")
    publish(topics, 10, table, {"id": 1})
    mirror.wait_for_cut(11)
    with topics.kafka_transaction():
        topics.define(good)
        topics.upsert(good, {"id": 1}, 20)
        topics.write(table.topic, poison, None, topics.header(table, 20, 2))
        topics.progress(21)
    mirror.wait_for_cut(21)
    assert database.execute("select id from good") == [(1,)]
    assert state_of(database, table)[:3:2] == ("stopped", shown)


@pytest.mark.parametrize("poison", [b"", b"null", b'{"id":1,"v":"no number"}', b'{"id":1,"v":"x\\u0000"}', b"not json"])
def test_poison_value_is_no_delete(topics: TopicWriter, database: Database, mirror: Mirror, poison: bytes) -> None:
    table, good = topics.table("t", id="int4", v="int4"), topics.table("good", id="int4")
    publish(topics, 10, table, {"id": 1, "v": 1})
    mirror.wait_for_cut(11)
    with topics.kafka_transaction():
        topics.define(good)
        topics.upsert(good, {"id": 1}, 20)
        topics.write(table.topic, b'{"id":1}', poison, topics.header(table, 20, 2))
        topics.progress(21)
    mirror.wait_for_cut(21)
    assert database.execute("select v from t") == [(1,)]
    assert database.execute("select id from good") == [(1,)]
    assert state_of(database, table)[:3:2] == ("stopped", '{"id":1}')


def test_superseded_poison_is_no_problem(topics: TopicWriter, database: Database, mirror: Mirror) -> None:
    table = topics.table("t", id="int4", v="int4")
    with topics.kafka_transaction():
        topics.define(table)
        topics.write(table.topic, b'{"id":1}', b"", topics.header(table, 10))
        topics.upsert(table, {"id": 1, "v": 2}, 11)
        topics.progress(12)
    mirror.wait_for_cut(12)
    assert database.execute("select id, v from t") == [(1, 2)]


def test_missing_topic_stops_that_table(topics: TopicWriter, database: Database, mirror: Mirror) -> None:
    lost = topics.table("lost", id="int4")
    gone = TableSchema("0" * 16, "public", "gone", f"{topics.name}.public.never_made", ("id",), lost.columns)
    with topics.kafka_transaction():
        topics.define(gone)
        topics.define(lost)
        topics.upsert(lost, {"id": 1}, 10)
        topics.progress(11)
    mirror.wait_for_cut(11)
    assert database.execute("select id from lost") == [(1,)]
    assert state_of(database, gone)[:2] == ("stopped", f"topic '{gone.topic}' does not exist")


def test_type_that_is_none_is_not_run(topics: TopicWriter, database: Database, mirror: Mirror) -> None:
    database.execute("create table precious ()")
    table = topics.table("t", id="int4", v="int4); drop table precious; --")
    publish(topics, 10, table, {"id": 1, "v": 1})
    mirror.wait_for_cut(11)
    assert database.execute("select count(*) from precious") == [(0,)]
    assert "is not a type" in state_of(database, table)[1] or columns_of(database, "t")["v"] == "text"


def test_another_source_is_refused(topics: TopicWriter, database: Database, mirror: Mirror) -> None:
    table = topics.table("t", id="int4")
    publish(topics, 10, table, {"id": 1})
    mirror.wait_for_cut(11)
    with topics.kafka_transaction():
        topics.progress(99, source=SourceIdentity("7300000000000000001", 2, 16384))
    mirror.wait_for_cut(99)
    with topics.kafka_transaction():
        topics.progress(100, source=SourceIdentity("7300000000000000002", 1, 16384))
    error = mirror.wait_for_error()
    assert isinstance(error, ReplicaRefused)
    assert "of system 7300000000000000002" in error.message


def test_own_source_is_refused(topics: TopicWriter, database: Database, config: Config) -> None:
    ((system, oid),) = database.execute(
        "select system_identifier::text, oid::int8 from pg_control_system(), pg_database "
        "where datname = current_database()"
    )
    database.execute("create table t (id int4 primary key)")
    with topics.kafka_transaction():
        topics.define(topics.table("t", id="int4"))
        topics.progress(5, source=SourceIdentity(system, 1, oid))
    with running(config, database) as mirror:
        error = mirror.wait_for_error()
    assert isinstance(error, ConfigError)
    assert "table public.t would be mirrored into itself" in error.message
    assert database.execute("select count(*) from cdc.mirrored_table") == [(0,)]
    with running(sink_config(topics, database, prefix="copy_"), database) as mirror:
        mirror.wait_for_cut(5)


def test_no_right_to_create(topics: TopicWriter, database: Database) -> None:
    role = f"{database.name}_weak"
    database.execute(f"create role {role} login")
    try:
        weak = Database(database.name, database.dsn.replace("postgres@", f"{role}@", 1))
        with running(sink_config(topics, weak), weak) as mirror:
            error = mirror.wait_for_error()
        assert isinstance(error, ReplicaRefused)
        assert f"schema cdc: is missing, and role {role} may not make it" in error.message
        assert "CREATE SCHEMA IF NOT EXISTS" in error.remedy
    finally:
        database.execute(f"drop role {role}")


@pytest.mark.parametrize(
    ("dsn", "error"),
    [
        ("host=127.0.0.1 port=1 connect_timeout=2 password=hush", ReplicaUnavailable),
        ("postgresql://127.0.0.1:1/x?nonsense=1", ConfigError),
    ],
)
def test_unreachable_or_wrong_dsn(topics: TopicWriter, database: Database, dsn: str, error: type[Exception]) -> None:
    with running(sink_config(topics, Database("x", dsn)), database) as mirror:
        caught = mirror.wait_for_error()
    assert isinstance(caught, error)
    assert "hush" not in str(caught)


def test_missing_database(topics: TopicWriter, database: Database) -> None:
    wrong = Database("x", database.dsn.replace(database.name, "no_such_database"))
    with running(sink_config(topics, wrong), database) as mirror:
        error = mirror.wait_for_error()
    assert isinstance(error, ReplicaRefused)
    assert '"no_such_database" does not exist' in error.message


def test_json_values_verbatim(topics: TopicWriter, database: Database, mirror: Mirror) -> None:
    table = topics.table("t", id="int4", j="json", b="jsonb", ja="jsonb[]", d="float8")
    with topics.kafka_transaction():
        topics.define(table)
        row = {
            "id": 1,
            "j": orjson.Fragment(b'{"a" : 1.10,  "a": [null, "\\u00e9\\\\"]}'),
            "b": orjson.Fragment(b"12345678901234567890.10"),
            "ja": [orjson.Fragment(b'{"x": 1.0}'), None],
            "d": orjson.Fragment(b"-0"),
        }
        topics.upsert(table, row, 10)
        topics.progress(11)
    mirror.wait_for_cut(11)
    assert database.execute("select j::text, b::text, ja::text, d::text from t") == [
        ('{"a" : 1.10,  "a": [null, "\\u00e9\\\\"]}', "12345678901234567890.10", '{"{\\"x\\": 1.0}",NULL}', "-0")
    ]


def test_change_of_type_while_running_stops_that_table(topics: TopicWriter, database: Database, mirror: Mirror) -> None:
    before, good = topics.table("t", id="int4", v="int4"), topics.table("good", id="int4")
    publish(topics, 10, before, {"id": 1, "v": 1})
    publish(topics, 20, good, {"id": 1})
    mirror.wait_for_cut(21)
    publish(topics, 30, topics.table("t", id="int4", v="text"), {"id": 2, "v": "two"})
    publish(topics, 40, good, {"id": 2}, define=False)
    mirror.wait_for_cut(41)
    assert database.execute("select id, v from t") == [(1, 1)]
    assert database.execute("select id from good order by id") == [(1,), (2,)]
    state, reason, *_ = state_of(database, before)
    assert state == "stopped"
    assert "TYPE text" in reason


def test_table_dropped_under_the_sink(topics: TopicWriter, database: Database, config: Config) -> None:
    table, good = topics.table("t", id="int4"), topics.table("good", id="int4")
    publish(topics, 10, table, {"id": 1})
    publish(topics, 20, good, {"id": 1})
    with running(config, database) as mirror:
        mirror.wait_for_cut(21)
        database.execute("drop table t")
        publish(topics, 30, table, {"id": 2}, define=False)
        publish(topics, 40, good, {"id": 2}, define=False)
        assert "was dropped, renamed or recreated under the running sink: public.t" in str(mirror.wait_for_error())
    with running(config, database) as mirror:
        mirror.wait_for_cut(41)
        wait_for_state(database, "t", "exact")
    assert database.execute("select id from t order by id") == [(1,), (2,)]
    assert database.execute("select count(*) from good") == [(2,)]


def test_a_server_that_goes_away_while_it_is_asked_for_a_type_refuses_no_table(database: Database) -> None:
    """The table was stopped, with a session that had ended: the sink ended with a traceback."""
    engine = sa.create_engine(
        database.dsn.replace("postgresql://", "postgresql+psycopg://"), poolclass=sa.pool.NullPool
    )
    table = TableSchema("0" * 16, "public", "t", "x.public.t", ("a",), (SchemaColumn("a", "int8"),))
    with engine.connect() as connection:
        pid = connection.scalar(sa.text("SELECT pg_backend_pid()"))

        @sa.event.listens_for(connection, "before_cursor_execute")
        def end(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
            if "to_regtype" in statement:
                database.execute(f"SELECT pg_terminate_backend({pid}, 10000)")

        with pytest.raises(sa.exc.OperationalError):
            establish(connection, ReplicaName("public", "t"), [table])
