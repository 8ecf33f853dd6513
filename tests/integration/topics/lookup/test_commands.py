"""``cdc get`` and ``cdc watch`` beside a running bridge, and on a topic of another program."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner

from cdc.cli.cli import app
from cdc.contract.partition import partition_of
from cdc.lab.stack import Kafka, Postgres
from tests.support.deployment import Deployment, deployed
from tests.support.names import unique
from tests.support.servers import fresh_database
from tests.support.terminal import answer
from tests.support.topic_settings import create_topic

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def live(
    postgres: Postgres, other_postgres: Postgres, kafka: Kafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    with ExitStack() as stack:
        source, mirror = (stack.enter_context(fresh_database(server)) for server in (postgres, other_postgres))
        source.execute("CREATE TABLE orders (id bigint PRIMARY KEY, total numeric, note text, document json)")
        source.execute("CREATE TABLE stock (region text, item text, amount integer, PRIMARY KEY (region, item))")
        source.execute("CREATE TABLE moments (at timestamptz, n numeric, PRIMARY KEY (at, n))")
        folder = tmp_path_factory.mktemp("live")
        deployment = stack.enter_context(deployed(source, kafka.bootstrap, mirror, folder))
        deployment.start_bridge()
        yield deployment
        deployment.bridge.stop()


@pytest.fixture
def topic(kafka: Kafka) -> Iterator[str]:
    """Of another program, with two partitions."""
    name = unique("users-")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    create_topic(admin, NewTopic(name, 2, config={"cleanup.policy": "compact"}))
    yield name
    admin.delete_topics([name])[name].result(30)


def write(kafka: Kafka, topic: str, *records: tuple[bytes, bytes | None]) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for key, value in records:
        producer.produce(topic, key=key, value=value)
    assert producer.flush(30) == 0


def run(*arguments: object) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    ran = CliRunner().invoke(app, [*map(str, arguments)])
    return ran.exit_code, ran.stdout, ran.stderr


@contextmanager
def watching(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """The command as a user runs it, once it watches; Ctrl-C ends it with 0 and without a word."""
    command = [sys.executable, "-m", "cdc", "watch", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        assert "Ctrl-C ends it" in process.stderr.readline()
        yield process
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
        assert (process.returncode, out, err) == (0, "", "")
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    assert process.stderr is not None
    return process.stdout.readline() or process.stderr.read()


def told(process: subprocess.Popen[str]) -> Any:
    return json.loads(line(process))


def test_get_shows_the_row_as_it_is_now(live: Deployment) -> None:
    live.source.execute("INSERT INTO orders VALUES (17, 1.50, 'first', NULL), (18, 2, 'other', NULL)")
    live.source.execute("UPDATE orders SET note = 'é\n', document = E'{\"a\":\n 1.50}' WHERE id = 17")
    live.wait_published()
    code, out, _ = run("get", "public.orders", "17", "-c", live.config)
    assert code == 0, out
    columns, evidence = out.splitlines()[:4], out.splitlines()[4]
    assert columns == ["id        17", 'total     "1.50"', 'note      "é\\n"', 'document  {"a":  1.50}']
    assert f"of {live.topic('public.orders')}, offset " in evidence
    assert "LSN " in evidence
    assert " s ago)" in evidence
    for spelled in ('{"id":17}', "id=17"):
        code, out, _ = run("get", "public.orders", spelled, "-c", live.config, "--json")
        found = json.loads(out)
        assert (code, found["key"], found["row"]["note"]) == (0, {"id": 17}, "é\n")
        assert '"1.50"' in out
        record = next(each for each in reversed(live.records("public.orders")) if each.key == b'{"id":17}')
        assert (found["partition"], found["offset"]) == (record.partition, record.offset)
        assert found["age_s"] >= 0
        assert f"lsn={found['lsn']};".encode() in record.header


def test_get_says_by_its_exit_code_that_there_is_no_row(live: Deployment) -> None:
    live.source.execute("INSERT INTO stock VALUES ('eu', 'a,b', 1)")
    live.wait_published()
    key = '{"region":"eu","item":"a,b"}'
    assert run("get", "public.stock", key, "-c", live.config)[0] == 0
    live.source.execute("DELETE FROM stock WHERE region = 'eu'")
    live.wait_published()
    code, out, _ = run("get", "public.stock", key, "-c", live.config)
    assert (code, out.splitlines()[0]) == (1, "no such row: delete is the newest record of the key")
    code, out, _ = run("get", "public.stock", key, "-c", live.config, "--json")
    assert (code, json.loads(out)["row"]) == (1, None)
    code, out, err = run("get", "public.stock", "region=eu,item=never", "-c", live.config)
    assert (code, out) == (1, "")
    assert '{"region":"eu","item":"never"}' in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("public.orders", "x"), "id is int8, not 'x'"),
        (("public.stock", "eu"), "neither a JSON object nor column=value"),
        (("public.stock", "region=eu"), "the key of public.stock is (region, item)"),
        (("public.absent", "1"), "nothing was published of table public.absent"),
        (("public.orders", "1", "-b", "localhost:1"), "add --topic and name the topic"),
        (("--topic", "absent-topic", "1"), "absent-topic"),
    ],
)
def test_get_without_an_answer_ends_with_2(live: Deployment, arguments: tuple[str, ...], words: str) -> None:
    where = () if "-b" in arguments else ("-c", live.config)
    ran = subprocess.run(
        [sys.executable, "-m", "cdc", "get", *arguments, *map(str, where)], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    assert words in ran.stderr


def test_watch_tells_each_change_as_a_line(live: Deployment) -> None:
    live.source.execute("INSERT INTO orders VALUES (30, 1, 'before', NULL)")
    live.wait_published()
    with (
        watching("public.orders", "-c", live.config, "--json") as all_json,
        watching("public.orders", "31", "-c", live.config) as one,
    ):
        live.source.execute("INSERT INTO orders VALUES (31, 2, 'new', E'{\"a\":\n1}')")
        live.source.execute("UPDATE orders SET note = 'old' WHERE id = 30")
        live.source.execute("DELETE FROM orders WHERE id = 31")
        changes = [told(all_json) for _ in range(3)]
        found = sorted((each["key"]["id"], each["op"], each["row"] and each["row"]["note"]) for each in changes)
        assert found == [(30, "update", "old"), (31, "delete", None), (31, "insert", "new")]
        first, second = line(one), line(one)
        assert first.endswith('  insert    {"id":31}  {"id":31,"total":"2","note":"new","document":{"a": 1}}\n')
        assert second.endswith('  delete    {"id":31}\n')


def test_a_key_is_watched_and_got_however_it_is_spelled(live: Deployment) -> None:
    live.source.execute("INSERT INTO moments VALUES ('2026-01-01', 1.0), ('2026-01-01', 10), ('2026-01-02', 1)")
    live.wait_published()
    asked = "at=2026-01-01T01:00:00+01:00,n=1.000"
    with watching("public.moments", asked, "--from-beginning", "--json", "-c", live.config) as process:
        row = {"at": "2026-01-01 00:00:00+00", "n": "1.0"}
        assert told(process)["key"] == row
        live.source.execute("UPDATE moments SET n = 1.00 WHERE at = '2026-01-01' AND n = 1")
        changes = [told(process), told(process)]
        assert {each["key"]["n"]: each["row"] for each in changes} == {"1.0": None, "1.00": {**row, "n": "1.00"}}
    code, out, _ = run("get", "public.moments", asked, "-c", live.config, "--json")
    assert (code, json.loads(out)["row"]) == (0, {**row, "n": "1.00"})
    code, _, err = run("get", "public.moments", "at=2026-02-30,n=1", "-c", live.config)
    assert code == 2
    assert (
        "at is timestamptz, not '2026-02-30': the calendar has no such day; a right value is 2026-01-01 12:30:00+00"
        in err
    )


def test_watch_begins_with_what_is_there_and_filters_by_some_columns(live: Deployment) -> None:
    live.source.execute("INSERT INTO stock VALUES ('us', 'a', 1), ('us', 'b', 2), ('de', 'a', 3)")
    live.wait_published()
    with watching("public.stock", "region=us", "--from-beginning", "--json", "-c", live.config) as process:
        assert sorted((told(process)["row"]["item"], told(process)["row"]["item"])) == ["a", "b"]
        live.source.execute("INSERT INTO stock VALUES ('de', 'c', 1)")
        live.source.execute("INSERT INTO stock VALUES ('us', 'c', 1)")
        assert told(process)["key"] == {"region": "us", "item": "c"}


def test_topics_of_other_programs(kafka: Kafka, topic: str) -> None:
    write(kafka, topic, (b"alice", b'{"age": 7}'), (b"bob", b"text"), (b"raw", b"\xff\x00"), (b"alice", b'{"age": 8}'))
    cluster = ("-b", kafka.bootstrap)
    assert run("get", "--topic", topic, "alice", *cluster)[1].splitlines()[0] == "age  8"
    for key, row in (("alice", {"age": 8}), ("bob", "text"), ("raw", "/wA=")):
        code, out, _ = run("get", "--topic", topic, key, "--json", *cluster)
        found = json.loads(out)
        assert (code, found["key"], found["row"], found["lsn"], found["age_s"]) == (0, key, row, None, None)
    write(kafka, topic, (b"bob", None))
    code, out, _ = run("get", "--topic", topic, "bob", *cluster)
    assert (code, out.splitlines()[0]) == (1, "no such row: it was deleted")
    with watching("--topic", topic, "al", "--from-beginning", *cluster) as process:
        assert [line(process).split("  ", 1)[1] for _ in range(2)] == [
            'write     "alice"  {"age": 7}\n',
            'write     "alice"  {"age": 8}\n',
        ]
        write(kafka, topic, (b"bob", b"1"), (b"albert", b"1"), (b"albert", None))
        assert [line(process).split("  ", 1)[1] for _ in range(2)] == [
            'write     "albert"  1\n',
            'delete    "albert"\n',
        ]


def test_get_asks_the_partition_of_the_key_alone(live: Deployment, kafka: Kafka) -> None:
    """What lies in another one is no row of the key: nobody looks there."""
    live.source.execute("INSERT INTO orders VALUES (98, 1, 'ours', NULL)")
    live.wait_published()
    home = partition_of(b'{"id":98}', 3)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for partition in {0, 1, 2} - {home}:
        producer.produce(live.topic("public.orders"), key=b'{"id":98}', value=b"nonsense", partition=partition)
    assert producer.flush(30) == 0
    code, out, _ = run("get", "public.orders", 98, "--json", "-c", live.config)
    assert (code, json.loads(out)["row"]["note"]) == (0, "ours")


def test_a_long_search_shows_how_far_it_is(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    def shown() -> str:
        words = [sys.executable, "-m", "cdc", "get", "--topic", topic, "alice", "-b", kafka.bootstrap]
        code, text = answer(words, tmp_path, {**os.environ, "TERM": "xterm"}, [])
        assert (code, "age  8" in text) == (0, True), text
        return text

    write(kafka, topic, (b"alice", b'{"age": 8}'))
    assert "reading" not in shown()
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "queue.buffering.max.messages": 1_000_000})
    for number in range(600_000):
        producer.produce(topic, key=b"%d" % number, value=b"{}")
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0
    assert "reading" in shown()


def test_a_record_that_is_not_the_bridges_is_told(live: Deployment, kafka: Kafka) -> None:
    live.source.execute("INSERT INTO orders VALUES (99, 1, 'ours', NULL)")
    live.wait_published()
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "partitioner": "murmur2_random"})
    producer.produce(live.topic("public.orders"), key=b'{"id":99}', value=b"nonsense")
    assert producer.flush(30) == 0
    ran = subprocess.run(
        [sys.executable, "-m", "cdc", "get", "public.orders", "99", "-c", str(live.config)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "is not the bridge's" in ran.stderr


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("amount=1", "amount is not a column of the key (region, item)"),
        ("eu", "neither a JSON object nor column=value"),
    ],
)
def test_watch_refuses_what_is_no_key(live: Deployment, key: str, words: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "cdc", "watch", "public.stock", key, "-c", str(live.config)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (2, "")
    assert words in ran.stderr
