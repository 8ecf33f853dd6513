"""Rows that may not leave: topic and replica hold SELECT … WHERE of the table, whatever happens to its rows."""

from __future__ import annotations

import itertools
import json
import random
import signal
from collections.abc import Iterator
from typing import Any, Final

import pytest

from cdc.base.errors import GapError
from cdc.lab.stack import RegistryServer
from tests.support.deployment import Deploy, Deployment
from tests.support.names import unique
from tests.support.servers import Database
from tests.support.waiting import eventually

pytestmark = pytest.mark.pg(since=15)
_CONDITION: Final = "region IN ('eu', 'efta') AND NOT hidden"
_RULES: Final = {"public.orders": _CONDITION}
_IDENTITIES: Final = {
    "primary key": "PRIMARY KEY (id, region, hidden)",
    "full": "PRIMARY KEY (id)",
    "index": "PRIMARY KEY (id)",
}
_MAKE_IDENTITY: Final = {
    "primary key": "",
    "full": "ALTER TABLE orders REPLICA IDENTITY FULL",
    "index": "CREATE UNIQUE INDEX identity ON orders (region, hidden, id); "
    "ALTER TABLE orders REPLICA IDENTITY USING INDEX identity",
}
_IN, _OUT = ("eu", False), ("us", False)


def make_orders(database: Database, identity: str) -> None:
    """The table, with values that are stored out of line."""
    database.execute(
        "CREATE TABLE orders (id int, region text NOT NULL, hidden boolean NOT NULL, note text, large text, "
        f"{_IDENTITIES[identity]}); ALTER TABLE orders ALTER large SET STORAGE EXTERNAL; {_MAKE_IDENTITY[identity]}"
    )


def expected(database: Database, condition: str = _CONDITION, table: str = "orders") -> list[dict[str, Any]]:
    """What the table holds for its readers."""
    rows = database.execute(f"SELECT to_jsonb(t) FROM {table} t WHERE ({condition}) ORDER BY id")
    return [row for (row,) in rows]


def fold(deployment: Deployment, table: str = "public.orders") -> list[dict[str, Any]]:
    """The rows that the topic holds."""
    records = sorted(deployment.records(table), key=lambda each: (each.partition, each.offset))
    newest = {(each.partition, each.key): each.value for each in records}
    return sorted((json.loads(value) for value in newest.values() if value is not None), key=lambda row: row["id"])


def replicated(deployment: Deployment, table: str = "orders") -> list[dict[str, Any]]:
    return [row for (row,) in deployment.replica.execute(f"SELECT to_jsonb(t) FROM {table} t ORDER BY id")]


def assert_filtered(deployment: Deployment, condition: str = _CONDITION) -> None:
    """See that topic and replica hold the rows that satisfy the condition, with all their columns, and no other."""
    deployment.wait_backfilled()
    deployment.wait_mirrored()
    rows = expected(deployment.source, condition)
    assert fold(deployment) == rows, deployment.bridge.tail()
    assert replicated(deployment) == rows, deployment.sink.tail()


def wait_filtered(deployment: Deployment, condition: str = _CONDITION) -> None:
    """Wait until a topic that begins anew holds them, as the source stands still."""
    eventually(
        lambda: deployment.bridge.ended or fold(deployment) == expected(deployment.source, condition),
        60,
        lambda: f"{fold(deployment)}\n{deployment.bridge.tail()}",
    )
    assert_filtered(deployment, condition)


class Case:
    """One change of one row: where it was, where it goes, and what happens to its key and its large value."""

    def __init__(
        self, number: int, before: tuple[str, bool] | None, after: tuple[str, bool] | None, key: bool, large: str
    ) -> None:
        self.id, self.before, self.after, self.is_moved, self.large = number, before, after, key, large

    def statements(self) -> Iterator[tuple[str, str]]:
        """What makes the row, and what changes it."""
        large = "NULL" if self.large == "absent" else f"repeat('before {self.id} ', 1000)"
        if self.before is not None:
            yield "make", f"INSERT INTO orders VALUES ({self.id}, '{self.before[0]}', {self.before[1]}, 'a', {large})"
        if self.after is None:
            yield "change", f"DELETE FROM orders WHERE id = {self.id}"
        elif self.before is None:
            yield "change", f"INSERT INTO orders VALUES ({self.id}, '{self.after[0]}', {self.after[1]}, 'b', {large})"
        else:
            sets = [f"region = '{self.after[0]}', hidden = {self.after[1]}, note = 'b'"]
            sets += [f"id = {self.id + 1000}"] if self.is_moved else []
            sets += [f"large = repeat('after {self.id} ', 1000)"] if self.large == "changed" else []
            yield "change", f"UPDATE orders SET {', '.join(sets)} WHERE id = {self.id}"


def cases() -> list[Case]:
    """Every combination of in, out and absent, before and after; with and without a new key; of large values."""
    places = (_IN, _OUT, ("eu", True), None)
    found = itertools.product(places, places, (False, True), ("unchanged", "changed", "absent"))
    return [
        Case(number, before, after, key, large)
        for number, (before, after, key, large) in enumerate(found, 1)
        if (before, after) != (None, None) and not (key and None in (before, after))
    ]


@pytest.mark.pg(15, 18, since=15)
@pytest.mark.parametrize("identity", _IDENTITIES)
def test_each_change_of_a_row(deploy: Deploy, database: Database, identity: str) -> None:
    """The row is in the topic with all of its columns if it satisfies the condition, and under no other key."""
    make_orders(database, identity)
    deployment = deploy(source={"rows": _RULES}, topics={"partitions": 2})
    deployment.start()
    deployment.wait_backfilled("public.orders")
    all_cases = cases()
    for step in ("make", "change"):
        for case in all_cases:
            for kind, statement in case.statements():
                if kind == step:
                    database.execute(statement)
        assert_filtered(deployment)
    assert any(len(row["large"] or "") > 5000 and row["note"] == "b" for row in fold(deployment))
    assert "begins anew" not in deployment.bridge.said()
    hidden = [each for each in deployment.records("public.orders") if each.value and b'"us"' in each.value]
    assert not hidden
    deployment.stop()


@pytest.mark.parametrize("is_killed", [False, True])
def test_another_condition_begins_the_topic_anew(deploy: Deploy, database: Database, is_killed: bool) -> None:
    """Nothing that the new condition hides goes out, although WAL from before it is yet to be read; and none is lost.

    One transaction begins before the condition changes, and commits after it.
    """
    make_orders(database, "full")
    insert = "INSERT INTO orders SELECT n, (ARRAY['eu', 'us', 'asia'])[n % 3 + 1], false, 'a', NULL FROM "
    database.execute(f"{insert} generate_series(1, 30) n")
    deployment = deploy(source={"rows": {"public.orders": "region <> 'us'"}}, topics={"partitions": 2})
    deployment.start()
    assert_filtered(deployment, "region <> 'us'")
    deployment.bridge.signal(signal.SIGKILL)
    deployment.bridge.wait()
    before = {(each.partition, each.offset) for each in deployment.records("public.orders")}
    database.execute(f"{insert} generate_series(101, 130) n")
    database.execute("UPDATE orders SET note = 'old WAL', region = 'asia' WHERE id IN (1, 103)")
    database.execute("DELETE FROM orders WHERE id IN (2, 104); UPDATE orders SET region = 'us' WHERE id IN (3, 105)")
    deployment.settings["source"]["rows"] = {"public.orders": "region <> 'asia'"}
    deployment.write()
    said = deployment.command("check")
    assert "was written by other rules" in said
    assert "only rows that satisfy" in said
    with database.connect(autocommit=False) as running:
        running.execute(f"{insert} generate_series(201, 230) n".encode())
        deployment.bridge.start(crashpoint="bridge.inside_begin_anew:1" if is_killed else "")
        deployment.bridge.wait_said("streaming")
        running.execute(f"{insert} generate_series(301, 330) n".encode())
        running.execute("UPDATE orders SET region = 'us' WHERE id IN (6, 9, 202, 205)")
    if is_killed:
        assert deployment.bridge.wait() == -signal.SIGKILL
        database.execute("UPDATE orders SET region = 'asia' WHERE id IN (12, 203)")
        deployment.start_bridge()
    wait_filtered(deployment, "region <> 'asia'")
    later = [each for each in deployment.records("public.orders") if (each.partition, each.offset) not in before]
    rows = [json.loads(each.value) for each in later if each.value]
    assert {row["region"] for row in rows} == {"eu", "us"}
    database.execute("UPDATE orders SET region = 'asia' WHERE id = 106; UPDATE orders SET region = 'us' WHERE id = 107")
    assert_filtered(deployment, "region <> 'asia'")
    deployment.settings["source"]["rows"] = {}
    deployment.write()
    deployment.bridge.signal(signal.SIGHUP)
    wait_filtered(deployment, "true")
    assert database.execute("SELECT count(*) FROM pg_publication_rel WHERE prqual IS NOT NULL") == [(0,)]
    deployment.stop()


def test_the_same_condition_in_other_words_changes_nothing(deploy: Deploy, database: Database) -> None:
    make_orders(database, "full")
    database.execute("INSERT INTO orders VALUES (1, 'eu', false), (2, 'us', false)")
    deployment = deploy(source={"rows": {"public.orders": "region='eu' -- Europe"}})
    deployment.start()
    assert_filtered(deployment, "region = 'eu'")
    count = len(deployment.records("public.orders"))
    deployment.settings["source"]["rows"] = {"public.orders": "  region::text = 'eu'::text"}
    deployment.write()
    deployment.bridge.signal(signal.SIGHUP)
    deployment.bridge.wait_said("configuration reloaded")
    database.execute("INSERT INTO orders VALUES (3, 'eu', false)")
    assert_filtered(deployment, "region = 'eu'")
    assert len(deployment.records("public.orders")) == count + 1
    deployment.stop()


@pytest.mark.parametrize("form", ["inline", "file"])
def test_a_backfill_beside_rows_that_enter_and_leave(deploy: Deploy, database: Database, form: str) -> None:
    """Random changes race with backfills, repairs and re-reads; a killed bridge goes on."""
    make_orders(database, "index")
    database.execute(
        "INSERT INTO orders SELECT n, (ARRAY['eu', 'us'])[n % 2 + 1], false, 'a', repeat('x' || n, 1500) "
        "FROM generate_series(1, 400) n"
    )
    deployment = deploy(source={"rows": _RULES, "streaming": form == "file"}, topics={"partitions": 2})
    deployment.start()
    chance = random.Random(11)
    with database.connect() as connection:
        for step in range(600):
            row, other = chance.randrange(1, 450), chance.randrange(1000, 9000)
            region = chance.choice(["'eu'", "'us'", "'efta'", "region"])
            connection.execute(
                chance.choice(
                    [
                        f"UPDATE orders SET region = {region}, note = '{step}' WHERE id = {row}",
                        f"UPDATE orders SET hidden = NOT hidden, note = '{step}' WHERE id = {row}",
                        f"UPDATE orders SET note = '{step}' WHERE id BETWEEN {row} AND {row + 5}",
                        f"UPDATE orders SET id = {step * 10000 + other}, region = {region} WHERE id = {row}",
                        f"DELETE FROM orders WHERE id = {row}",
                        f"INSERT INTO orders VALUES ({step + 20000}, 'eu', false, 'new', repeat('y', 5000))",
                    ]
                ).encode()
            )
            if step == 200:
                deployment.command("backfill", "public.orders", "--sweep", "--yes")
            if step == 300:
                deployment.bridge.signal(signal.SIGKILL)
                deployment.bridge.wait()
                deployment.start_bridge()
    assert_filtered(deployment)
    assert len(fold(deployment)) > 50
    deployment.stop()


def test_truncate_null_and_partitions(deploy: Deploy, database: Database) -> None:
    """TRUNCATE empties; NULL does not satisfy; rows of all partitions follow the root's condition, also across them."""
    database.execute(
        "CREATE TABLE orders (id int, year int, region text, PRIMARY KEY (id, year)) PARTITION BY LIST (year);"
        "CREATE TABLE orders_1 PARTITION OF orders FOR VALUES IN (1);"
        "CREATE TABLE orders_2 PARTITION OF orders FOR VALUES IN (2);"
        "ALTER TABLE orders REPLICA IDENTITY FULL; ALTER TABLE orders_1 REPLICA IDENTITY FULL;"
        "ALTER TABLE orders_2 REPLICA IDENTITY FULL;"
        "INSERT INTO orders VALUES (1, 1, 'eu'), (2, 1, 'us'), (3, 2, NULL), (4, 2, 'eu')"
    )
    deployment = deploy(source={"rows": {"public.orders": "region <> 'us'"}})
    deployment.start()
    condition = "region <> 'us'"
    assert_filtered(deployment, condition)
    database.execute("UPDATE orders SET year = 3 - year, region = CASE region WHEN 'us' THEN 'eu' ELSE region END")
    database.execute("UPDATE orders SET region = NULL WHERE id = 1; UPDATE orders SET region = 'eu' WHERE id = 3")
    assert_filtered(deployment, condition)
    assert [row["id"] for row in fold(deployment)] == [2, 3, 4]
    database.execute("TRUNCATE orders; INSERT INTO orders VALUES (9, 1, 'eu'), (10, 2, 'us')")
    assert_filtered(deployment, condition)
    assert len(fold(deployment)) == 1
    deployment.stop()


@pytest.mark.pg(16, 18, since=15)
@pytest.mark.parametrize(
    ("condition", "identity", "said"),
    [
        ("region = 'eu'", "DEFAULT", "has a condition in source.rows on region, outside of its replica identity (id)"),
        ("hidden AND region = 'eu' AND id > 1", "DEFAULT", "on region, hidden, outside of its replica identity (id)"),
        ("orders IS NOT NULL", "DEFAULT", 'column "orders" does not exist'),
        ("areas = 'eu'", "FULL", 'cannot be filtered by source.rows: column "areas" does not exist'),
        ("id", "FULL", "must be type boolean"),
        ("true) OR (true", "FULL", "cannot be filtered by source.rows"),
        ("true); DROP TABLE orders; --", "FULL", "cannot be filtered by source.rows"),
        ("random() < 0.5", "FULL", "mutable functions are not allowed"),
        ("id IN (SELECT 1)", "FULL", "Only columns, constants, built-in operators"),
        ("mine(region)", "FULL", "cannot be filtered by source.rows"),
        ("note = $1", "FULL", "it has a parameter"),
    ],
)
def test_a_condition_that_cannot_be_applied_is_refused(
    deploy: Deploy, database: Database, condition: str, identity: str, said: str
) -> None:
    """Before anything is made: the application's updates go on, and there is no publication."""
    make_orders(database, "full")
    database.execute(f"ALTER TABLE orders REPLICA IDENTITY {identity}")
    database.execute("CREATE FUNCTION mine(text) RETURNS boolean IMMUTABLE LANGUAGE sql AS 'SELECT true'")
    deployment = deploy(source={"rows": {"public.orders": condition}, "tables": ["public.orders"]})
    assert said in deployment.command("check", code=3)
    deployment.bridge.start()
    assert said in deployment.bridge.refusal(3)
    database.execute("INSERT INTO orders VALUES (1, 'eu', false); UPDATE orders SET note = 'a'; DELETE FROM orders")
    assert database.execute("SELECT count(*) FROM pg_publication") == [(0,)]
    if identity == "DEFAULT":  # PostgreSQL itself refuses the other commands
        assert "CREATE PUBLICATION" not in deployment.command("grants", "source")


@pytest.mark.pg(14, matrix=False)
def test_postgresql_14_cannot_filter(deploy: Deploy, database: Database) -> None:
    make_orders(database, "full")
    deployment = deploy(source={"rows": _RULES, "tables": ["public.orders"]})
    deployment.bridge.start()
    assert "PostgreSQL filters rows from version 15 on only" in deployment.bridge.refusal(3)


def test_a_table_that_is_not_there(deploy: Deploy, database: Database) -> None:
    make_orders(database, "full")
    deployment = deploy(source={"rows": {"public.order": "true"}})
    deployment.bridge.start()
    assert "table public.order, which source.rows names, is not among source.tables" in deployment.bridge.refusal(3)


@pytest.mark.pg(15, 18, since=15)
def test_a_publication_of_somebody_else(deploy: Deploy, database: Database) -> None:
    """The bridge compares and prints the SQL; with that done, it runs. A changed filter stops the table alone."""
    make_orders(database, "full")
    database.execute("CREATE TABLE plain (id int PRIMARY KEY, city text)")
    database.execute("INSERT INTO orders SELECT n, (ARRAY['eu', 'us'])[n % 2 + 1], false FROM generate_series(1, 9) n")
    database.execute("CREATE PUBLICATION theirs FOR TABLES IN SCHEMA public")
    deployment = deploy(
        source={
            "rows": _RULES,
            "publication": "theirs",
            "publication_mode": "disabled",
            "tables": ["public.orders", "public.plain"],
        }
    )

    def refusal() -> str:
        deployment.bridge.start()
        said = deployment.bridge.refusal(3)
        assert said.split("error: ")[1].split("\n")[0][:40] in deployment.command("check", code=3) or "cannot" in said
        return said

    assert "carries table public.orders with all others, or its whole schema: it cannot filter it" in refusal()
    database.execute("DROP PUBLICATION theirs; CREATE PUBLICATION theirs FOR TABLE orders, plain")
    said = refusal()
    assert "publication theirs does not filter table public.orders by its condition in source.rows" in said
    commands = [each for each in said.split("remedy: ")[1].split(";") if "PUBLICATION" in each]
    assert len(commands) == 2
    assert all(f"{each.strip()};" in deployment.command("grants", "source") for each in commands)
    for each in commands:
        database.execute(each)
    deployment.start()
    assert_filtered(deployment)
    assert f"only rows that satisfy {_CONDITION} leave" in deployment.command("check")
    database.execute("ALTER PUBLICATION theirs SET TABLE orders WHERE (region = 'us'), plain")
    database.execute("INSERT INTO orders VALUES (20, 'us', false), (21, 'eu', false)")
    deployment.bridge.signal(signal.SIGHUP)
    deployment.bridge.wait_said("does not filter table public.orders by its condition in source.rows")
    database.execute("INSERT INTO plain VALUES (1, 'goes on'); INSERT INTO orders VALUES (22, 'us', false)")
    deployment.wait_published()
    assert len(deployment.records("public.plain")) == 1
    database.execute(f"ALTER PUBLICATION theirs SET TABLE orders WHERE ({_CONDITION}), plain")
    database.execute("UPDATE orders SET note = 'later'")
    deployment.bridge.signal(signal.SIGHUP)
    deployment.bridge.wait_said("tables join")
    wait_filtered(deployment)
    deployment.stop()


@pytest.mark.parametrize("on_gap", ["fail", "rebackfill"])
def test_a_filter_that_changes_behind_the_bridge(deploy: Deploy, database: Database, on_gap: str) -> None:
    """It is set back, and what went out or is missing from the meantime is a gap, even if it looks the same again."""
    make_orders(database, "full")
    database.execute("INSERT INTO orders SELECT n, (ARRAY['eu', 'us'])[n % 2 + 1], false FROM generate_series(1, 9) n")
    deployment = deploy(source={"rows": _RULES, "on_gap": on_gap})
    deployment.start()
    assert_filtered(deployment)
    publication = deployment.slot()
    database.execute(f"ALTER PUBLICATION {publication} SET TABLE ONLY orders WHERE (region = 'us')")
    database.execute("INSERT INTO orders VALUES (20, 'us', false), (21, 'eu', false); DELETE FROM orders WHERE id = 1")
    deployment.wait_published()
    deployment.bridge.signal(signal.SIGHUP)
    if on_gap == "fail":
        said = deployment.bridge.refusal(GapError.exit_code)
        assert "did not carry public.orders for a while, or carried less of it" in said
        deployment.settings["source"]["on_gap"] = "rebackfill"
        deployment.write()
        deployment.bridge.start()
    deployment.bridge.wait_said("begins anew")
    wait_filtered(deployment)
    deployment.stop()


def test_columns_of_the_condition_that_are_renamed_dropped_or_no_longer_logged(
    deploy: Deploy, database: Database
) -> None:
    """A rename stops the table until the rule follows; PostgreSQL refuses the drop; a narrower identity is found."""
    make_orders(database, "full")
    database.execute("INSERT INTO orders SELECT n, (ARRAY['eu', 'us'])[n % 2 + 1], false FROM generate_series(1, 9) n")
    deployment = deploy(source={"rows": {"public.orders": "region = 'eu'"}})
    deployment.start()
    assert_filtered(deployment, "region = 'eu'")
    with pytest.raises(Exception, match="other objects depend on it"):
        database.execute("ALTER TABLE orders DROP COLUMN region")
    database.execute("ALTER TABLE orders RENAME region TO area")
    database.execute("INSERT INTO orders VALUES (20, 'us', false), (21, 'eu', false)")
    deployment.bridge.wait_said('cannot be filtered by source.rows: column \\"region\\" does not exist')
    assert "region" in deployment.command("check", code=3)
    assert 21 not in [row["id"] for row in fold(deployment)]
    deployment.settings["source"]["rows"] = {"public.orders": "area = 'eu'"}
    deployment.write()
    deployment.bridge.signal(signal.SIGHUP)
    deployment.bridge.wait_said("begins anew")
    eventually(lambda: fold(deployment) == expected(database, "area = 'eu'"), 60, deployment.bridge.tail)
    database.execute("ALTER TABLE orders REPLICA IDENTITY DEFAULT")
    with pytest.raises(Exception, match="Column used in the publication WHERE expression is not part of the replica"):
        database.execute("UPDATE orders SET note = 'b'")
    assert "outside of its replica identity (id)" in deployment.command("check", code=3)
    deployment.stop()


def test_masked_and_excluded_columns_may_choose_rows(deploy: Deploy, database: Database) -> None:
    """The server evaluates the condition on the raw values."""
    make_orders(database, "full")
    database.execute("INSERT INTO orders VALUES (1, 'eu', false), (2, 'us', false), (3, 'eu', true)")
    columns = {"public.orders": {"exclude": ["hidden", "large"], "mask": {"region": None}}}
    deployment = deploy(source={"rows": _RULES, "columns": columns})
    deployment.start()
    deployment.wait_backfilled()
    database.execute("UPDATE orders SET region = 'efta' WHERE id = 2; UPDATE orders SET note = 'b'")
    deployment.wait_mirrored()
    assert fold(deployment) == [{"id": number, "region": None, "note": "b"} for number in (1, 2)]
    deployment.stop()


def test_a_row_that_has_left_is_not_read_again(deploy: Deploy, database: Database) -> None:
    """An update left its large value out. Read again, the row has another one, from when it was hidden."""
    make_orders(database, "index")
    database.execute(
        "INSERT INTO orders SELECT n, 'eu', false, 'a', repeat('plain ', 1000) FROM generate_series(1, 4) n"
    )
    deployment = deploy(source={"rows": _RULES})
    deployment.start()
    assert_filtered(deployment)
    deployment.bridge.stop()
    database.execute("UPDATE orders SET note = 'b' WHERE id < 4")
    database.execute("UPDATE orders SET region = 'us', large = repeat('secret ', 1000) WHERE id IN (1, 2)")
    database.execute("UPDATE orders SET region = 'eu', large = repeat('plain again ', 1000) WHERE id = 2")
    deployment.start_bridge()
    assert_filtered(deployment)
    assert [row["note"] for row in fold(deployment)] == ["b", "b", "a"]
    assert not [each for each in deployment.records("public.orders") if b"secret" in (each.value or b"")]
    deployment.stop()


def test_a_locked_table_gets_its_condition_later(deploy: Deploy, database: Database) -> None:
    """Until then it stands still, and no other: what goes out by the former condition may be hidden now."""
    make_orders(database, "full")
    database.execute("CREATE TABLE plain (id int PRIMARY KEY)")
    database.execute("INSERT INTO orders SELECT n, (ARRAY['eu', 'us'])[n % 2 + 1], false FROM generate_series(1, 9) n")
    deployment = deploy(source={"rows": {"public.orders": "region = 'eu'"}})
    deployment.start()
    assert_filtered(deployment, "region = 'eu'")
    deployment.bridge.stop()
    deployment.settings["source"]["rows"] = {"public.orders": "region = 'us'"}
    deployment.write()
    database.execute("INSERT INTO orders VALUES (20, 'us', false), (21, 'eu', false)")
    with database.connect(autocommit=False) as holder:
        holder.execute("LOCK TABLE orders IN SHARE UPDATE EXCLUSIVE MODE")
        deployment.start_bridge()
        database.execute("INSERT INTO plain VALUES (1)")
        deployment.wait_published()
        assert len(deployment.records("public.plain")) == 1
        assert 21 not in [row["id"] for row in fold(deployment)]
    deployment.bridge.signal(signal.SIGHUP)
    deployment.bridge.wait_said("tables join")
    wait_filtered(deployment, "region = 'us'")
    deployment.stop()


@pytest.mark.parametrize(
    "topics", [{"format": "avro"}, {"envelope": "debezium"}, {"history": ["public.orders"]}], ids=str
)
def test_beside_masks_messages_and_other_forms(
    deploy: Deploy, database: Database, registry: RegistryServer, topics: dict[str, Any]
) -> None:
    """Nothing hidden, by its row or by its column, is in any record, also after a kill."""
    make_orders(database, "full")
    database.execute(
        "INSERT INTO orders SELECT n, CASE n % 2 WHEN 0 THEN 'eu' ELSE 'us' END, false, 'canary', "
        "repeat(CASE n % 2 WHEN 0 THEN 'x' ELSE 'canary' END, 3000) FROM generate_series(1, 20) n"
    )
    source = {
        "rows": _RULES,
        "columns": {"public.orders": {"mask": {"note": None}}},
        "messages": {"event": {"topic": unique("events")}},
    }
    with_registry = {"registry": {"url": registry.url}} if "format" in topics else {}
    deployment = deploy(source=source, topics=topics, **with_registry)
    deployment.start()
    deployment.wait_backfilled("public.orders")
    database.execute("UPDATE orders SET region = 'eu', large = repeat('y', 3000) WHERE id = 1")
    database.execute("UPDATE orders SET region = 'us', large = 'canary' WHERE id = 2")
    database.execute("UPDATE orders SET id = 100 WHERE id = 4")
    deployment.bridge.kill()
    database.execute(
        "BEGIN; SELECT pg_logical_emit_message(true, 'event', 'sent'); DELETE FROM orders WHERE id = 6; COMMIT"
    )
    deployment.start_bridge()
    deployment.wait_mirrored()
    rows = [{**row, "note": None} for row in expected(database)]
    assert [row["id"] for row in rows] == [1, 8, 10, 12, 14, 16, 18, 20, 100]
    assert replicated(deployment) == rows, deployment.sink.tail()
    found = deployment.records("public.orders")
    assert len(found) > len(rows)
    assert not [each for each in found if b"canary" in (each.value or b"") or b'"us"' in (each.value or b"")]
    if "history" in topics:
        told = deployment.command("history", "public.orders", "id=2", "--json")
        assert [json.loads(line)["op"] for line in told.splitlines() if line.startswith("{")] == ["r", "d"]
        assert "canary" not in told
    deployment.stop()
