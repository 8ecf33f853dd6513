"""Columns that may not leave: nothing of them is in any topic, replica, log or answer, and all else is as ever."""

from __future__ import annotations

import hashlib
import hmac
import json
import signal
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, TopicPartition

from cdc.base.config import load
from cdc.base.errors import TopicRefused
from cdc.bridge.asking.repair import repair_keys
from cdc.contract.record import RepairKey
from cdc.lab.stack import RegistryServer
from cdc.ops.dashboard.key_facts import key_facts
from tests.support.deployment import Deploy, Deployment
from tests.support.forms import deploy_in
from tests.support.servers import Database
from tests.support.waiting import eventually

_SALT: Final = "a salt of the test, long enough"
_CANARY: Final = "canary"
_RULES: Final[dict[str, Any]] = {
    "public.person": {
        "exclude": ["secret"],
        "mask": {"email": "sha256", "phone": "last4", "name": None, "large": "sha256-joinable"},
    }
}
_TABLE: Final = """CREATE TABLE person (secret text, id int PRIMARY KEY, email text, phone text, name text, large text,
    city text); ALTER TABLE person ALTER large SET STORAGE EXTERNAL"""
_ROWS: Final = """INSERT INTO person SELECT 'canary', n, 'canary' || n || '@mail', 'canary+49' || n + 1000, 'canary',
    repeat('canary' || n, 1000), 'city' || n FROM generate_series({}, {}) n"""
_EXPECTED: Final = "SELECT id, email, phone, large, city FROM person ORDER BY id"


def digest(text: str, column: str = "") -> str:
    message = f"public.person.{column}\0{text}" if column else text
    return hmac.new(_SALT.encode(), message.encode(), hashlib.sha256).hexdigest()


def masked(database: Database) -> list[dict[str, Any]]:
    """The table as it may leave."""
    return [
        {
            "id": id_,
            "email": digest(email, "email"),
            "phone": f"****{phone[-4:]}",
            "name": None,
            "large": digest(large),
            "city": city,
        }
        for id_, email, phone, large, city in database.execute(_EXPECTED)
    ]


def fold(deployment: Deployment) -> list[dict[str, Any]]:
    """The rows that the topic holds."""
    records = sorted(deployment.records("public.person"), key=lambda each: (each.partition, each.offset))
    newest = {each.key: each.value for each in records}
    rows = [json.loads(value) for value in newest.values() if value is not None]
    return sorted((each.get("after", each) for each in rows), key=lambda row: row["id"])


def everything(deployment: Deployment, table: str = "person") -> bytes:
    """Each byte of the deployment's topics, whether it was committed or not, of its logs, and of the replica."""
    consumer = Consumer(
        {
            "bootstrap.servers": deployment.bootstrap,
            "group.id": deployment.name,
            "isolation.level": "read_uncommitted",
            "enable.partition.eof": True,
        }
    )
    topics = consumer.list_topics(timeout=10).topics
    places = [
        TopicPartition(name, partition, 0)
        for name, topic in topics.items()
        if name.startswith(f"{deployment.name}.")
        for partition in topic.partitions
    ]
    consumer.assign(places)
    found: list[bytes] = []
    ended: set[tuple[str | None, int | None]] = set()
    while len(ended) < len(places):
        message = consumer.poll(10)
        assert message is not None
        if message.error() is not None:
            ended.add((message.topic(), message.partition()))
        else:
            found += [message.key() or b"", message.value() or b"", repr(message.headers()).encode()]
    consumer.close()
    logs = [each.read_bytes() for each in deployment.directory.iterdir() if each.suffix == ".log"]
    replica = deployment.replica.execute(f"SELECT p::text FROM {table} p")
    return b"\n".join([*found, *logs, repr(replica).encode()])


@pytest.mark.parametrize("form", ["rows", "envelopes"])
def test_nothing_hidden_leaves(deploy: Deploy, database: Database, form: str) -> None:
    """By a backfill, inserts, an update that leaves a large value out, a key change, a delete, a kill, and commands."""
    database.execute(_TABLE)
    database.execute(_ROWS.format(1, 20))
    database.execute("CREATE TABLE plain (id int PRIMARY KEY, city text)")
    topics = {"history": ["*.*"]} if form == "rows" else {"envelope": "debezium"}
    deployment = deploy(
        source={"columns": _RULES, "salt": _SALT}, topics={"partitions": 2, **topics}, kafka={"options": {}}
    )
    deployment.start()
    deployment.wait_backfilled("public.person")
    database.execute(_ROWS.format(21, 40))
    database.execute("UPDATE person SET city = 'there' WHERE id % 3 = 0")
    database.execute("UPDATE person SET id = id + 100 WHERE id IN (4, 30)")
    database.execute("DELETE FROM person WHERE id IN (7, 31)")
    database.execute("ALTER TABLE person REPLICA IDENTITY FULL")
    database.execute("UPDATE person SET email = 'canary of ' || id WHERE id % 4 = 0")
    deployment.bridge.signal(signal.SIGKILL)
    deployment.bridge.wait()
    database.execute(_ROWS.format(41, 50))
    database.execute("DELETE FROM person WHERE id = 41")
    deployment.bridge.start()
    database.execute("INSERT INTO plain VALUES (1, 'canopy')")
    deployment.wait_published()
    deployment.wait_backfilled("public.person")  # large values are read again, of a table that was altered since
    deployment.wait_mirrored()
    assert "begins anew" not in deployment.bridge.said()  # the key's column is the same, whatever is hidden before it
    expected = masked(database)
    assert len(expected) == 47
    assert fold(deployment) == expected
    columns = ", ".join(expected[0])
    assert deployment.replica.execute(f"SELECT {columns} FROM person ORDER BY id") == [
        tuple(each.values()) for each in expected
    ]
    said = deployment.command("get", "public.person", "8", "--json") + deployment.command("status")
    if form == "rows":
        said += deployment.command("history", "public.person", "8", "--json")
        assert digest("canary of 8", "email") in said
    found = everything(deployment)
    assert _CANARY.encode() not in found
    assert b"canopy" in found  # the search does find what is there
    assert _CANARY not in said
    assert _SALT.encode() not in found
    deployment.stop()


@pytest.mark.parametrize("key_format", ["json", "avro"])
def test_a_key_that_leaves_as_a_hash(
    deploy: Deploy, registry: RegistryServer, database: Database, key_format: str
) -> None:
    """All kinds of changes, a kill, a sweep and a row read again; what needs the row of a record refuses."""
    database.execute("CREATE TABLE guest (n int, email text, note text, PRIMARY KEY (email, n))")
    database.execute("ALTER TABLE guest ALTER note SET STORAGE EXTERNAL")
    rows = "INSERT INTO guest SELECT n, 'canary' || n, repeat('note' || n, 1000) FROM generate_series({}, {}) n"
    database.execute(rows.format(1, 20))
    source = {"columns": {"public.guest": {"mask": {"email": "sha256"}}}, "salt": _SALT}
    form = "avro keys" if key_format == "avro" else "json"
    deployment = deploy_in(form, deploy, registry, source=source, topics={"partitions": 2, "history": ["*.*"]})
    deployment.start()
    deployment.wait_backfilled("public.guest")
    database.execute(rows.format(21, 30))
    database.execute("UPDATE guest SET note = 'short' WHERE n = 3")
    database.execute("UPDATE guest SET email = 'canary of ' || n WHERE n IN (4, 25)")
    deployment.bridge.signal(signal.SIGKILL)
    deployment.bridge.wait()
    database.execute("UPDATE guest SET n = n + 100 WHERE n IN (6, 26)")
    database.execute("DELETE FROM guest WHERE n IN (7, 27)")
    deployment.bridge.start()
    deployment.wait_published()
    deployment.command("backfill", "public.guest", "--sweep")
    deployment.wait_backfilled("public.guest")
    deployment.wait_mirrored()
    rows_now = database.execute("SELECT n, email, note FROM guest ORDER BY n")
    expected = [(n, _digest_of_guest(email), note) for n, email, note in rows_now]
    assert len(expected) == 28
    assert deployment.replica.execute("SELECT n, email, note FROM guest ORDER BY n") == expected
    newest = {each.key: each.value for each in sorted(deployment.records("public.guest"), key=lambda each: each.offset)}
    held = [json.loads(value) for value in newest.values() if value is not None]
    assert sorted((row["n"], row["email"], row["note"]) for row in held) == expected
    if key_format == "json":
        key = json.dumps({"email": expected[0][1], "n": 1}, separators=(",", ":"))
        assert key.encode() in newest
        shown = key_facts(load(deployment.config, {}), "public.guest", key)
        assert shown["source"] == {
            "row": None,
            "why": "the key leaves as a hash, which does not tell which row it is of",
        }
        assert shown["history"]["count"] >= 1
        with pytest.raises(TopicRefused, match="leaves as a hash") as refused:
            repair_keys(
                load(deployment.config, {}),
                "public.guest",
                [RepairKey(key.encode())],
                timeout_s=60,
                tell=lambda _: None,
            )
        assert "cdc backfill public.guest --sweep" in (refused.value.remedy or "")
        deployment.wait_mirrored()
        assert deployment.replica.execute("SELECT count(*) FROM guest") == [(28,)]
    found = everything(deployment, "guest")
    assert _CANARY.encode() not in found
    assert expected[0][1].encode() in found
    deployment.stop()


def _digest_of_guest(text: str) -> str:
    return hmac.new(_SALT.encode(), f"public.guest.email\0{text}".encode(), hashlib.sha256).hexdigest()


def test_other_rules_begin_the_topic_anew(deploy: Deploy, database: Database) -> None:
    """The records of before hold what is hidden now: after the change nothing in the folded topic does."""
    database.execute("CREATE TABLE person (id int PRIMARY KEY, name text, city text)")
    database.execute("INSERT INTO person SELECT n, 'canary', 'city' FROM generate_series(1, 9) n")
    deployment = deploy(topics={"partitions": 1})
    deployment.start()
    deployment.wait_backfilled("public.person")
    deployment.settings["source"]["columns"] = {"public.person": {"exclude": ["name"]}}
    deployment.write()
    assert "was written by other rules than source.columns has now" in deployment.command("check")
    deployment.bridge.signal(signal.SIGHUP)
    plain = [{"id": number, "city": "city"} for number in range(1, 10)]
    eventually(lambda: fold(deployment) == plain, 30, lambda: f"{fold(deployment)}\n{deployment.bridge.tail()}")
    deployment.wait_backfilled("public.person")
    assert "Kafka's files still hold the values of before" in deployment.bridge.said()
    said = deployment.command("check")
    assert "has columns that do not leave as they are: name excluded" in said
    assert "other rules" not in said
    deployment.wait_mirrored()
    assert deployment.replica.execute("SELECT count(*), count(city) FROM person") == [(9, 9)]
    assert "canary" not in repr(deployment.replica.execute("SELECT p::text FROM person p"))
    deployment.settings["source"] |= {"columns": {"public.person": {"mask": {"name": "sha256"}}}, "salt": _SALT}
    deployment.write()
    deployment.bridge.stop()
    deployment.bridge.start()
    hashed = [{"id": number, "name": digest("canary", "name"), "city": "city"} for number in range(1, 10)]
    eventually(lambda: fold(deployment) == hashed, 30, lambda: f"{fold(deployment)}\n{deployment.bridge.tail()}")
    deployment.stop()


def test_a_table_whose_rules_do_not_fit_stops_and_no_other(deploy: Deploy, database: Database) -> None:
    """A rule that names no column may be of one that was renamed, and a new column may be a secret."""
    for name in ("person", "guest", "plain"):
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, name text)")
    strict = {"policy": "strict", "keep": ["name"]}
    deployment = deploy(source={"columns": {"public.person": {"mask": {"name": None}}, "public.guest": strict}})
    deployment.start_bridge()
    deployment.wait_backfilled()
    database.execute("ALTER TABLE person RENAME name TO called; INSERT INTO person VALUES (1, 'canary')")
    database.execute("ALTER TABLE guest ADD COLUMN mail text; INSERT INTO guest VALUES (1, 'x', 'canary')")
    database.execute("INSERT INTO plain VALUES (1, 'x')")
    deployment.wait_published()
    assert [deployment.records(f"public.{each}") for each in ("person", "guest")] == [[], []]
    # The dashboard reads the source itself
    config = load(deployment.config, {})
    shown = {each: key_facts(config, f"public.{each}", "1")["source"] for each in ("person", "guest", "plain")}
    assert "has no published column 'name'" in shown["person"].pop("why")
    assert "does not name: 'mail'" in shown["guest"].pop("why")
    assert shown == {"person": {"row": None}, "guest": {"row": None}, "plain": {"row": {"id": "1", "name": '"x"'}}}
    assert len(deployment.records("public.plain")) == 1
    log = deployment.bridge.said()
    assert "has no published column 'name', which source.columns names" in log
    assert "strict policy in source.columns does not name: 'mail'" in log
    deployment.settings["source"]["columns"] = {
        "public.person": {"mask": {"called": None}},
        "public.guest": strict | {"exclude": ["mail"]},
    }
    deployment.write()
    deployment.bridge.signal(signal.SIGHUP)
    expected = {"person": b'{"id":1,"called":null}', "guest": b'{"id":1,"name":"x"}'}

    def newest() -> dict[str, bytes | None]:
        found = {name: deployment.records(f"public.{name}") for name in expected}
        return {name: records[-1].value for name, records in found.items() if records}

    eventually(lambda: newest() == expected, 40, lambda: deployment.bridge.tail())
    deployment.bridge.stop()


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"public.persn": {"exclude": ["name"]}}, "table public.persn, which source.columns names, is not among"),
        ({"public.person": {"exclude": ["id"]}}, "has 'id' in its key"),
        ({"public.person": {"mask": {"nam": None}}}, "has no published column 'nam'"),
    ],
)
def test_a_first_start_is_refused(deploy: Deploy, database: Database, columns: dict[str, Any], said: str) -> None:
    database.execute("CREATE TABLE person (id int PRIMARY KEY, name text)")
    deployment = deploy(source={"columns": columns, "tables": ["public.person"]})
    deployment.bridge.start()
    assert said in deployment.bridge.refusal(3)
    assert said.removeprefix("table public.persn, ") in deployment.command("check", code=3)
