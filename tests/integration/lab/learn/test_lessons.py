"""Lessons: what each shows is what the broker says, and what a lesson does not see it does not say."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import orjson
import psutil
import pytest
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

from cdc.cli.cli import app
from cdc.contract.partition import murmur2
from cdc.lab.learn import classroom, compaction, standard
from cdc.lab.learn.classroom import NEVER, Classroom
from cdc.lab.learn.lessons import LESSONS
from cdc.lab.stack import KafkaBroker
from tests.architecture.pages import commands, page
from tests.architecture.test_docs import command_at
from tests.integration.lab.learn.conftest import Shown, Truth
from tests.support.waiting import eventually

Of = Callable[[str], Truth]


def teach(name: str, room: Classroom, shown: Shown) -> None:
    """Run a lesson; the form of what it shows is the same for all of them."""
    LESSONS[name].teach(room)
    assert max(map(len, shown.text.splitlines())) <= 80
    assert "What to remember" in shown.text
    for arguments in commands("\n".join(shown.commands)):
        command, rest = command_at(arguments)
        command.make_context(arguments[0], rest)
    assert shown.commands


def test_compaction(room: Classroom, shown: Shown, truth: Of) -> None:
    teach("compaction", room, shown)
    left = truth("compaction").records()
    assert [(each.offset, each.key + (each.value or b"")) for each in left] == [
        (5, b"A5"),
        (6, b"C2"),
        (7, b"B6"),
        (8, b"D7"),
    ]
    after = shown.tables["After one pass of the cleaner"]
    assert [row[0] for row in after if row[3] == "kept"] == [each.offset for each in left]
    assert [row[0] for row in after if row[3] == "gone"] == [0, 1, 2, 3, 4]
    assert [row[1] + row[2] for row in after[:8]] == ["A1", "B2", "A3", "C1", "B4", "A5", "C2", "B6"]
    assert "offset 0 now gets the next record that exists, at offset 5" in shown.prose
    assert truth("compaction").ends() == {0: 9}
    (example,) = page("docs/learn.md").fences("text")
    lines = [line for line in example.splitlines() if line.strip() not in ("", "…") and "learn-" not in line]
    assert len(lines) > 15
    assert [line for line in lines if line not in shown.text.splitlines()] == [], "the page shows the same"


def test_log(room: Classroom, shown: Shown, truth: Of) -> None:
    teach("log", room, shown)
    first, second = (shown.tables[f"After the {number} pass"] for number in ("first", "second"))
    records = truth("log").records()
    active = int(second[-1][1].partition("–")[0].replace(",", ""))
    assert second[0][2] == sum(each.offset < active for each in records) == 20
    assert second[1][2] == sum(each.offset >= active for each in records)
    before = shown.tables["Before any pass: all of it is head"]
    assert [row[2] for row in before] == [600, 601, 601, 1]
    files = truth("log").files()
    assert files == {0: second[0][3], active: second[1][3]}
    ends = [int(table[0][1].partition("–")[2].replace(",", "")) + 1 for table in (first, second)]
    assert truth("log").passes() == [(0, ends[0]), (ends[0], ends[1])]


def test_tombstones(room: Classroom, shown: Shown, truth: Of) -> None:
    teach("tombstones", room, shown)
    (life,) = (rows for title, rows in shown.tables.items() if title.startswith("The life"))
    assert [row[1:4] for row in life] == [(1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, 0)]
    times = [float(row[0]) for row in life]
    assert times[2] - times[1] > 2.0, "its time counts from the pass that met it"
    left = truth("tombstones").records()
    assert b"ben" not in {each.key for each in left}
    resumed = re.search(r"It gets offsets ([\d, ]+):", shown.prose)
    assert resumed is not None
    assert [int(each) for each in resumed[1].split(",")] == [each.offset for each in left if each.offset >= 3]
    known = {row[0]: row[1:] for row in shown.tables["Who knows ben?"]}
    assert known == {
        "the cache that went on": (3, '"Rome"'),
        "a reader that begins at offset 0": (2, "not there"),
        "the view, suspect, generation 1": (3, '"Rome"'),
        "the view, exact, generation 2": (2, "not there"),
    }
    assert len(truth("tombstones").passes()) >= 2


def test_rebuild(room: Classroom, shown: Shown, truth: Of) -> None:
    teach("rebuild", room, shown)
    (rows,) = shown.tables.values()
    records, ends = truth("rebuild").records(), truth("rebuild").ends()
    assert {row[0]: row[1] for row in rows} == ends
    for number, end, last, count, accounts in rows:
        of_partition = [each for each in records if each.partition == number]
        assert (last, count) == (of_partition[-1].offset, len(of_partition))
        assert accounts == sum(value is not None for value in {each.key: each.value for each in of_partition}.values())
        assert (end > last + 1) == (number == 0), "the marker is in partition 0"
    assert f"They come to {sum(row[4] for row in rows)} accounts" in shown.prose


def test_keys(room: Classroom, shown: Shown, truth: Of) -> None:
    teach("keys", room, shown)
    records = truth("keys").records()
    for key, partition, *_ in shown.tables["Where three keys are"]:
        assert {each.partition for each in records if each.key == key.encode()} == {partition}
    names = [f"customer-{number:03}".encode() for number in range(300)]
    places = [(murmur2(name) & 0x7FFFFFFF) for name in names]
    moved = [name for name, place in zip(names, places, strict=True) if place % 4 != place % 6]
    assert f"{len(moved)} of 300 go to a partition" in shown.prose
    spread = shown.tables["How the keys are spread"]
    assert sum(row[1] for row in spread) == 303
    assert [row[1] for row in spread[1:]] == [row[2] for row in spread[1:]], "only one partition has a hot key"
    (torn,) = (title for title in shown.tables if title.endswith("deleted and cleaned"))
    key = torn.partition(",")[0].encode()
    assert key in moved
    told = [(each.partition, each.offset, each.value) for each in records if each.key == key]
    assert [(*row[:2], None if row[2].startswith("null") else row[2].encode()) for row in shown.tables[torn]] == told
    assert {each[2] for each in told} == {None, b"before"}


def test_composite(room: Classroom, shown: Shown, truth: Of) -> None:
    teach("composite", room, shown)
    joined = [each for each in truth("joined").records() if each.key != b"witness"]
    assert [(each.offset, each.key, each.value) for each in joined] == [(1, b"a-b-c", b"Ben")]
    after = [row for row in shown.tables["After a pass of the cleaner"] if row[0] == shown.topic("joined")]
    assert after == [(shown.topic("joined"), 1, "a-b-c", "Ben")]
    apart = [each for each in truth("composite").records() if each.key != b"witness"]
    rows = shown.tables["A second writer spells the same key in another way"]
    assert rows == [(each.offset, each.key.decode(), (each.value or b"").decode()) for each in apart]
    columns: list[Any] = [orjson.loads(each.key) for each in apart]
    assert columns[0] == columns[2], "two records of one row"


def test_schemas(room: Classroom, shown: Shown, truth: Of) -> None:
    teach("schemas", room, shown)
    (held,) = (rows for title, rows in shown.tables.items() if title.endswith("public.customers holds"))
    told = {(each.partition, each.offset): each for each in truth("customers").records()}
    for partition, offset, definition, value in held:
        record = told[partition, offset]
        assert record.value == value.encode()
        assert f"schema={definition}".encode() in record.header
    (known,) = (dict(rows) for title, rows in shown.tables.items() if "__schemas" in title)
    for _, _, definition, value in held:
        assert [column.split()[0] for column in known[definition].split(", ")] == list(orjson.loads(value))
    assert list(known.values()) == [
        "id int4, name text, fax text",
        "id int4, name text, fax text, vip bool",
        "id int4, name text, vip bool",
    ]
    before, after = (dict(rows) for title, rows in shown.tables.items() if title.startswith("Ann"))
    assert before == {
        "the source": "id 1, name Ann, vip false",
        "her newest record": '{"id":1,"name":"Ann","fax":"12"}',
        "the replica": "id 1, name Ann, fax 12, vip NULL",
    }
    newest = [each for each in told.values() if each.key == b'{"id":1}'][-1]
    assert after["her newest record"].encode() == newest.value == b'{"id":1,"name":"Ann","vip":false}'
    assert after["the replica"] == "id 1, name Ann, fax NULL, vip false"


def test_standard(room: Classroom, shown: Shown, truth: Of, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standard, "UPDATES", 3_000)
    monkeypatch.setattr(standard, "READS", 50)
    teach("standard", room, shown)
    rounds, same = shown.tables["Bytes on disk"], {row[0]: row[1:] for row in shown.tables["The same state from both"]}
    assert [row[0] for row in rounds] == [3_000, 6_000, 9_000, 12_000]
    for column, lesson in enumerate(("standard", "compacted")):
        every = truth(lesson).records()
        records = [each for each in every if each.key != b"probe"]
        assert len(every) - len(records) == 50
        assert same["records to read for a rebuild"][column] == len(records)
        assert same["keys with a row"][column] == len({each.key for each in records}) == 1_001
        # What came since is the probes, a hundred bytes each.
        on_disk = rounds[-1][1 if lesson == "standard" else 3]
        assert 0 <= sum(truth(lesson).files().values()) - on_disk < 50 * 120
    times = {name: cells for name, cells in same.items() if "p50" in name or "p99" in name}
    assert len(times) == 4
    for name in ("a read at an offset", "a new record, until it is read"):
        for column in range(2):
            p50, p99 = (float(times[f"{name}, {share}"][column].removesuffix(" ms")) for share in ("p50", "p99"))
            assert 0 < p50 <= p99


def test_a_lesson_that_does_not_see_it_says_so(kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDC_KAFKA", kafka.bootstrap)
    monkeypatch.setattr(compaction, "AT_ONCE", NEVER)  # the cleaner will not come
    monkeypatch.setattr(classroom, "PATIENCE_S", 0.3)
    ran = CliRunner().invoke(app, ["learn", "compaction"])
    assert isinstance(ran.exception, classroom.NotSeen)
    assert ran.exception.exit_code == 1
    assert "waited 0 s in vain for this: the cleaner removes superseded records" in str(ran.exception)
    assert "--backend embedded" in str(ran.exception)
    assert "After one pass" not in ran.stdout
    eventually(lambda: not left_behind(kafka), message=lambda: str(left_behind(kafka)))


def left_behind(kafka: KafkaBroker) -> list[str]:
    topics = AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=10).topics
    return [name for name in topics if name.startswith("learn-")]


def test_several_lessons_share_one_broker_and_leave_nothing_on_it(
    kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CDC_KAFKA", kafka.bootstrap)
    ran = CliRunner().invoke(app, ["learn", "compaction", "rebuild"])
    assert ran.exit_code == 0, ran.output
    assert ran.stdout.count("Kafka: url, because CDC_KAFKA is set") == 1
    assert ran.stdout.index("compaction: ") < ran.stdout.index("rebuild: ")
    eventually(lambda: not left_behind(kafka), message=lambda: str(left_behind(kafka)))


def test_an_unknown_lesson_is_refused_with_those_that_there_are() -> None:
    ran = CliRunner().invoke(app, ["learn", "kompaktion"])
    assert "there is no lesson 'kompaktion'" in str(ran.exception)
    assert "choose from compaction, log" in str(ran.exception)


def test_they_are_listed() -> None:
    ran = CliRunner().invoke(app, ["learn"])
    assert ran.exit_code == 0
    rows = {row[0].strip("`"): row[1] for row in page("docs/learn.md").rows("lesson")}
    assert list(rows) == list(LESSONS)
    assert all(name in ran.stdout and lesson.question in ran.stdout for name, lesson in LESSONS.items())


def test_ctrl_c_leaves_no_process(kafka: KafkaBroker) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "CDC_PG_URL"}
    process = subprocess.Popen(
        [sys.executable, "-m", "cdc", "learn", "schemas"],
        env={**environment, "CDC_KAFKA": kafka.bootstrap},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "ALTER TABLE" in line:
            break
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) > 3, "PostgreSQL, bridge and sink"
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate()
    assert process.returncode == 130, output
    assert "Traceback" not in output
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive
    topics = AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=10).topics
    assert not [name for name in topics if name.startswith("shop_")]
