"""Key columns that keep their name and not their values: source = folded topic, row by row, whatever was done to them.

Each case is a table of its own, and all tables of a deployment are altered at once, so hundreds of cases cost little
more than one. Behind the change come an UPDATE, which would write a second key, and a DELETE, which would miss the
first.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import psycopg
import pytest

from cdc.contract.formats.written_key import key_bytes
from cdc.contract.key_identity import keeps_text
from tests.support.deployment import Deploy, Deployment
from tests.support.servers import Database
from tests.support.soak import times
from tests.support.waiting import eventually

Change: TypeAlias = Literal["alter", "drop and add", "rename", "swap"]
When: TypeAlias = Literal["online", "stopped", "killed", "killed healing"]

ROWS: Final = 12
NUMBERS: Final = {
    "int2": "{}::int2",
    "int4": "{}::int4",
    "int8": "{}::int8",
    "numeric(10,2)": "{}::numeric(10,2)",
    "numeric(10,0)": "{}::numeric(10,0)",
    "text": "{}::text",
    "varchar(20)": "{}::varchar(20)",
    "char(8)": "{}::char(8)",
}
"""Types, and the value that a table has for a number. The texts of these can be cast to one another."""
TIMES: Final = {
    "timestamp": "'2020-01-01'::timestamp + {} * interval '1 h'",
    "timestamptz": "'2020-01-01'::timestamptz + {} * interval '1 h'",
    "timestamp(3)": "'2020-01-01'::timestamp(3) + {} * interval '1 h'",
}
OTHERS: Final = {"uuid": "md5(({})::text)::uuid", "bytea": "decode(md5(({})::text), 'hex')"}
VALUES: Final = {**NUMBERS, **TIMES, **OTHERS}
WHEN: Final[tuple[When, ...]] = ("online", "stopped", "killed", "killed healing")
DELIVERIES: Final = ("transactional", "idempotent")
CHANGES: Final[tuple[Change, ...]] = ("alter", "drop and add", "rename", "swap")


class Case(NamedTuple):
    """A table ``t<number>`` whose key is of type ``old`` and becomes one of type ``new``."""

    number: int
    change: Change
    old: str
    new: str
    is_full: bool = False

    @property
    def table(self) -> str:
        return f"t{self.number}"

    @property
    def made(self) -> str:
        """With a column before the key that is dropped, so that numbers are not just counted."""
        t, old, new = self.table, VALUES[self.old].format("i"), VALUES[self.new].format("(1000 + i)")
        identity = f"; ALTER TABLE {t} REPLICA IDENTITY FULL" if self.is_full else ""
        return (
            f"CREATE TABLE {t} (gone int, id {self.old} PRIMARY KEY, u {self.new} NOT NULL UNIQUE, n int);"
            f"INSERT INTO {t} SELECT 1, {old}, {new}, i FROM generate_series(1, {ROWS}) i;"
            f"ALTER TABLE {t} DROP COLUMN gone{identity}"
        )

    @property
    def altered(self) -> str:
        t = self.table
        begin, end = f"ALTER TABLE {t} DROP CONSTRAINT {t}_pkey;", f"; ALTER TABLE {t} ADD PRIMARY KEY (id)"
        taken = f"ALTER TABLE {t} RENAME id TO id_old; ALTER TABLE {t} RENAME u TO id"
        match self.change:
            case "alter":
                value = "md5(id)::uuid" if self.new == "uuid" else f"id::{self.new}"
                return f"ALTER TABLE {t} ALTER id TYPE {self.new} USING {value}"
            case "drop and add":
                value = VALUES[self.new].format(f"nextval('{t}_numbers')::int")
                return (
                    f"CREATE SEQUENCE {t}_numbers;"
                    f"ALTER TABLE {t} DROP COLUMN id, ADD COLUMN id {self.new} DEFAULT {value} PRIMARY KEY"
                )
            case "rename":
                return begin + taken + end
            case "swap":
                return f"{begin}{taken}; ALTER TABLE {t} RENAME id_old TO u{end}"

    @property
    def behind(self) -> str:
        return f"UPDATE {self.table} SET n = n + 100 WHERE n <= 4; DELETE FROM {self.table} WHERE n BETWEEN 5 AND 8"

    @property
    def goes_on(self) -> bool:
        """Whether rows keep their keys."""
        return self.change == "alter" and keeps_text(self.old, self.new)


def _pairs(change: Change) -> Iterator[tuple[str, str]]:
    """For ``alter`` those that can be cast and that are two types; else all."""
    if change != "alter":
        yield from product(VALUES, VALUES)
    else:
        for types in (NUMBERS, TIMES):
            yield from ((old, new) for old, new in product(types, types) if old != new)
        yield from ((old, "text") for old in (*TIMES, *OTHERS))
        yield "text", "uuid"


def _cases() -> list[Case]:
    found = [(change, old, new) for change in CHANGES for old, new in _pairs(change)]
    return [Case(number, *each, is_full=number % 3 == 0) for number, each in enumerate(found)]


SEEN: Final = {
    ("alter", "text", "uuid"),
    ("alter", "int4", "text"),
    ("alter", "char(8)", "text"),
    ("alter", "numeric(10,2)", "numeric(10,0)"),
    ("alter", "timestamp", "timestamptz"),
    ("alter", "int4", "int8"),
    ("alter", "varchar(20)", "text"),
    ("drop and add", "int4", "int4"),
    ("rename", "int4", "uuid"),
    ("swap", "int4", "int4"),
}
"""What people saw, and two that keep their keys."""
ALL: Final = _cases()
SAMPLE: Final = [each for each in ALL if each.number % 50 == 7 or (each.change, each.old, each.new) in SEEN]


@contextmanager
def _meanwhile(deployment: Deployment, when: When) -> Iterator[None]:
    """What is done inside happens to a bridge that runs, or does not."""
    if when == "stopped":
        deployment.bridge.stop()
    elif when == "killed":
        deployment.bridge.kill()
    yield
    if when == "killed healing":
        for visit in ("bridge.inside_begin_anew:1", "bridge.inside_begin_anew:2"):
            assert deployment.bridge.wait(60) == -signal.SIGKILL
            deployment.bridge.start(crashpoint=visit)
        assert deployment.bridge.wait(60) == -signal.SIGKILL
    if when != "online":
        deployment.start_bridge()


def _hold(cases: list[Case], database: Database, deploy: Deploy, delivery: str, when: When) -> None:
    """All tables are altered at once; behind that each topic holds what its table holds, and says so."""
    limit = 60 + len(cases)
    database.execute(";".join(each.made for each in cases))
    tables = {each: f"public.{each.table}" for each in cases}
    deployment = deploy(source={"tables": ["public.t*"], "on_gap": "rebackfill"}, topics={"partitions": 2})
    deployment.deliver(delivery)
    deployment.start_bridge(crashpoint="bridge.inside_begin_anew:1" if when == "killed healing" else "")
    deployment.wait_backfilled(*tables.values(), timeout_s=limit)
    before = deployment.backfills()
    with _meanwhile(deployment, when):
        for each in cases:
            database.execute(f"{each.altered}; {each.behind}")
    deployment.wait_published(timeout_s=limit)

    def healed() -> bool:
        found = deployment.backfills()
        assert not deployment.bridge.ended, deployment.bridge.tail()
        return all(
            found[name].state == "done" and (each.goes_on or found[name].request != before[name].request)
            for each, name in tables.items()
        )

    eventually(healed, limit, deployment.bridge.tail)
    deployment.assert_published(*tables.values())
    after = deployment.backfills()
    again = [str(each) for each, name in tables.items() if each.goes_on and after[name].request != before[name].request]
    assert not again, f"these keep their keys, and were published again all the same: {again}"
    sys.stdout.write(f"key identity: {len(cases)} cases, {delivery}, {when}: source = folded topic\n")


@pytest.mark.parametrize(
    ("delivery", "when"), [("transactional", "online"), ("idempotent", "stopped"), ("transactional", "killed healing")]
)
def test_no_row_is_left_under_the_key_of_another_column(
    database: Database, deploy: Deploy, delivery: str, when: When
) -> None:
    """40 rows in the source, 70 in topic and replica, and it said exact."""
    _hold(SAMPLE, database, deploy, delivery, when)


WAYS: Final = tuple(product(DELIVERIES, WHEN))


@pytest.mark.long
@pytest.mark.soak
@pytest.mark.parametrize("turn", range(times(1, soak=len(WAYS))))
@pytest.mark.parametrize("place", range(len(WAYS)))
def test_no_row_is_left_under_the_key_of_another_column_whatever_the_types(
    database: Database, deploy: Deploy, place: int, turn: int
) -> None:
    """Every type by every type, for every change: an eighth of them in each way that the bridge can be away.

    In ``make soak`` all of them in all ways.
    """
    _hold(ALL[place :: len(WAYS)], database, deploy, *WAYS[(place + turn) % len(WAYS)])


MADE: Final = (
    "CREATE TABLE t (id int PRIMARY KEY, u int NOT NULL, n int);"
    "INSERT INTO t SELECT i, -i, i FROM generate_series(1, 40) i"
)
RENUMBERED: Final = "ALTER TABLE t DROP COLUMN id, ADD COLUMN id serial PRIMARY KEY"
SWAPPED: Final = (
    "ALTER TABLE t DROP CONSTRAINT t_pkey; ALTER TABLE t RENAME id TO x; ALTER TABLE t RENAME u TO id;"
    "ALTER TABLE t RENAME x TO u; ALTER TABLE t ADD CONSTRAINT t_pkey PRIMARY KEY (id)"
)


@pytest.mark.parametrize("when", ["online", "stopped"])
def test_a_replaced_key_column_is_a_gap_where_a_person_decides(database: Database, deploy: Deploy, when: When) -> None:
    """Not a row was changed, so the stream has nothing of it. The printed remedy heals it."""
    database.execute(MADE)
    deployment = deploy(source={"tables": ["public.t"]})
    deployment.start_bridge()
    deployment.wait_backfilled("public.t")
    if when == "stopped":
        deployment.bridge.stop()
    database.execute(RENUMBERED)
    if when == "stopped":
        deployment.bridge.start()
    else:
        database.execute("DELETE FROM t WHERE id > 30")
    assert deployment.bridge.wait(60) == 3
    said = deployment.bridge.said()
    assert "its key column id is another column than before (attribute 4, before 1)" in said
    assert "set source.on_gap: rebackfill and restart" in said
    deployment.settings["source"]["on_gap"] = "rebackfill"
    deployment.write()
    deployment.start_bridge()
    deployment.wait_equal("public.t")
    deployment.wait_backfilled("public.t")


def test_a_table_without_a_complete_topic_is_not_called_healthy(database: Database, deploy: Deploy) -> None:
    """It said exact, and exit code 0. Somebody has the table locked, so it cannot be published anew yet."""
    database.execute(MADE)
    deployment = deploy(source={"tables": ["public.t"], "on_gap": "rebackfill"})
    deployment.start()
    deployment.wait_backfilled("public.t")
    deployment.wait_mirrored()
    deployment.bridge.stop()
    with database.connect() as other, other.transaction():
        other.execute(RENUMBERED)
        other.execute("UPDATE t SET n = 1 WHERE id <= 20")
    with database.connect() as other, other.transaction():
        other.execute("LOCK TABLE t")
        deployment.start_bridge()
        deployment.wait_published()
        assert not deployment.backfills()["public.t"].whole
        status = deployment.command("status", code=3)
        assert "public.t" in status
    deployment.wait_backfilled("public.t")
    deployment.assert_equal("public.t")
    assert database.execute("SELECT count(*) FROM t") == [(40,)]


def test_what_only_the_catalog_tells_is_noticed_there(database: Database, deploy: Deploy) -> None:
    """A value of an enum that got another name, and a column that was replaced in a table that nobody writes to."""
    database.execute(
        f"{MADE}; CREATE TYPE mood AS ENUM ('a', 'b', 'c'); CREATE DOMAIN tone AS mood;"
        "CREATE TABLE e (id tone PRIMARY KEY, n int);"
        "INSERT INTO e VALUES ('a', 1), ('b', 2), ('c', 3)"
    )
    deployment = deploy(source={"tables": ["public.t", "public.e"], "on_gap": "rebackfill"})
    deployment.start_bridge()
    deployment.wait_backfilled("public.t", "public.e")
    database.execute("ALTER TYPE mood ADD VALUE 'before' BEFORE 'a'")
    database.execute("INSERT INTO e VALUES ('before', 0)")
    database.execute("ALTER TYPE mood RENAME VALUE 'a' TO 'z'; ALTER TYPE mood RENAME VALUE 'b' TO 'a'")
    database.execute("UPDATE e SET n = 9; DELETE FROM e WHERE id::text = 'c'")
    database.execute(RENUMBERED)
    deployment.bridge.wait_said("a value was renamed", 60)
    deployment.wait_equal("public.t", "public.e")
    deployment.wait_backfilled("public.t", "public.e")


def test_columns_that_exchange_their_names_for_a_while(database: Database, deploy: Deploy) -> None:
    """The catalog is as it was when the bridge comes to it: only the order of the columns in the stream tells."""
    database.execute(MADE)
    deployment = deploy(source={"tables": ["public.t"], "on_gap": "rebackfill"})
    deployment.start_bridge()
    deployment.wait_backfilled("public.t")
    deployment.bridge.stop()
    database.execute(SWAPPED)
    database.execute("UPDATE t SET n = 1 WHERE id > -20")
    database.execute(SWAPPED)
    database.execute("UPDATE t SET n = 2 WHERE id < 10")
    deployment.start_bridge()
    deployment.wait_equal("public.t")
    deployment.wait_backfilled("public.t")


def test_a_table_that_was_renamed_while_the_bridge_was_down_is_named(database: Database, deploy: Deploy) -> None:
    """No table matches, it said, although it knew what became of it. Both printed ways go on."""
    database.execute(f"{MADE}; CREATE SCHEMA other")
    deployment = deploy(source={"tables": ["public.t"]})
    deployment.start_bridge()
    deployment.wait_backfilled("public.t")
    deployment.bridge.stop()
    database.execute("ALTER TABLE t RENAME TO u; ALTER TABLE u SET SCHEMA other")
    deployment.bridge.start()
    assert deployment.bridge.wait(60) == 3
    said = deployment.bridge.said()
    assert "public.t is called other.u now" in said
    back = 'ALTER TABLE "other"."u" SET SCHEMA "public"; ALTER TABLE "public"."u" RENAME TO "t";'
    assert back in said.replace('\\"', '"')
    database.execute(back)
    database.execute("UPDATE t SET n = 3 WHERE id = 1")
    deployment.start_bridge()
    deployment.wait_equal("public.t")
    deployment.bridge.stop()
    database.execute("ALTER TABLE t RENAME TO u; UPDATE u SET n = 4 WHERE id = 2")
    deployment.settings["source"]["tables"] = ["public.u"]
    deployment.write()
    deployment.start_bridge()
    deployment.wait_equal("public.u")


KEPT: Final = {
    "int2": ("int4", "int8"),
    "int4": ("int8",),
    "varchar(5)": ("varchar(6)", "varchar", "text"),
    "varchar": ("text",),
    "text": ("varchar",),
    "numeric(10,2)": ("numeric(12,2)", "numeric"),
    "varbit(9)": ("varbit(10)", "varbit"),
    "time(3)": ("time(4)", "time"),
    "timetz(0)": ("timetz(6)", "timetz"),
    "timestamp(3)": ("timestamp(6)", "timestamp"),
    "timestamp": ("timestamp(6)",),
    "timestamptz(3)": ("timestamptz(5)", "timestamptz"),
    "interval(2)": ("interval(3)", "interval"),
}
"""Every way to a new type that the list has."""
SAMPLES: Final = {
    "int2": ("-32768", "0", "32767"),
    "int4": ("-2147483648", "7"),
    "varchar": ("", "a ", 'Ä\\"', "00001"),
    "text": ("", "a ", " 1.0", "{}"),
    "numeric": ("-1.10", "0", "12345678.9", "NaN"),
    "varbit": ("", "1", "010101010"),
    "time": ("00:00", "23:59:59.12", "24:00"),
    "timetz": ("00:00+00", "23:59:59.9-11:30"),
    "timestamp": ("infinity", "2020-01-01 00:00:00.100", "0044-03-15 10:00 BC"),
    "timestamptz": ("-infinity", "2020-01-01 00:00:00.120+02", "1900-01-01"),
    "interval": ("1 day 02:03:04.25", "-1 mon", "0"),
}


def test_the_types_that_keep_a_key_keep_its_text(database: Database) -> None:
    """On a real server: text and bytes of the record's key before and after."""
    for old, news in KEPT.items():
        for new in news:
            assert keeps_text(old, new)
            with database.connect() as connection:
                connection.execute(f"CREATE TABLE k (n int, id {old} PRIMARY KEY)".encode())
                for number, text in enumerate(SAMPLES[old.partition("(")[0]]):
                    connection.execute(f"INSERT INTO k VALUES ({number}, %s::text::{old})".encode(), (text,))
                before = _keys(connection, old)
                connection.execute(f"ALTER TABLE k ALTER id TYPE {new}".encode())
                assert _keys(connection, new) == before, f"{old} → {new}"
                connection.execute("DROP TABLE k")


def _keys(connection: psycopg.Connection[Any], sql_type: str) -> list[tuple[str, bytes]]:
    texts = [text for (text,) in connection.execute("SELECT id::text FROM k ORDER BY n").fetchall()]
    return [(text, key_bytes({"id": text}, [("id", sql_type)])) for text in texts]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("int4", "int2"), ("int4", "text"), ("int4", "numeric"), ("text", "varchar(9)"), ("varchar(9)", "varchar(8)"),
        ("char(8)", "text"), ("char(8)", "char(9)"), ("numeric(10,2)", "numeric(10,0)"), ("numeric", "numeric(10,2)"),
        ("numeric(10,2)", "numeric(12,3)"), ("timestamp", "timestamptz"), ("timestamp", "timestamp(3)"),
        ("float4", "float8"), ("text", "uuid"), ("cidr", "inet"), ("bit(8)", "varbit"), ("varchar", "varchar(9)"),
        ("interval", "interval day"), ("int4[]", "int8[]"), ('"public"."a"', '"public"."b"'),
    ],
)  # fmt: skip
def test_the_types_that_need_not_keep_it(old: str, new: str) -> None:
    assert not keeps_text(old, new)


def test_a_replica_is_equal_after_its_source_got_other_keys(database: Database, deploy: Deploy) -> None:
    """Old rows go and new ones come; where a column cannot hold the new values, the printed command mends it."""
    database.execute(f"{MADE}; CREATE TABLE s (id int PRIMARY KEY, n int)")
    database.execute("INSERT INTO s SELECT i, i FROM generate_series(1, 40) i")
    deployment = deploy(source={"tables": ["public.t", "public.s"], "on_gap": "rebackfill"})
    deployment.start()
    deployment.wait_backfilled("public.t", "public.s")
    deployment.assert_equal("public.t", "public.s")
    database.execute(f"{RENUMBERED}; UPDATE t SET n = 1 WHERE id <= 20; DELETE FROM t WHERE id > 30")
    database.execute("ALTER TABLE s ALTER id TYPE text; UPDATE s SET n = 1 WHERE n < 20; DELETE FROM s WHERE n > 30")
    deployment.wait_backfilled("public.t", "public.s")
    command = 'ALTER TABLE "public"."s" ALTER COLUMN "id" TYPE text USING "id"::text;'
    deployment.sink.wait_said("and the source's is text")
    assert command in deployment.sink.said().replace('\\"', '"')
    deployment.sink.stop()
    deployment.replica.execute(command)
    deployment.sink.start()
    deployment.wait_backfilled("public.t", "public.s")
    deployment.wait_table_equal("public.s")
    deployment.assert_equal("public.t", "public.s")


@pytest.mark.long
def test_a_replica_that_is_built_behind_a_new_key_has_every_row(database: Database, deploy: Deploy) -> None:
    """The tombstones of the old keys lie in other partitions than the rows that have the same text as their keys."""
    database.execute(
        "CREATE TABLE s (id int PRIMARY KEY, n int); INSERT INTO s SELECT i, i FROM generate_series(1, 200000) i"
    )
    deployment = deploy(source={"tables": ["public.s"], "on_gap": "rebackfill"})
    deployment.start_bridge()
    deployment.wait_backfilled("public.s")
    database.execute(
        "ALTER TABLE s ALTER id TYPE text; UPDATE s SET n = 1 WHERE n < 20; DELETE FROM s WHERE n > 190000"
    )
    deployment.wait_equal("public.s")
    deployment.wait_backfilled("public.s")
    deployment.sink.start()
    deployment.assert_equal("public.s")
