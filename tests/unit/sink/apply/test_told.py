"""What the sink tells operators while it works: whole log lines, remedies included, and for whom it waits."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from cdc.base.errors import ReplicaRefused
from cdc.base.lsn import LSN
from cdc.base.waits import Waits
from cdc.contract.header import HeaderStamp
from cdc.contract.record import SourceIdentity, TableSchema
from cdc.sink.apply import session
from cdc.sink.apply.loop import wait_for_lock
from cdc.sink.apply.topics import BeginAnew, raise_set_back
from tests.unit.sink.apply.mirror import OTHER, PROGRESS, SCHEMAS, TOPIC, Batch, Mirror, at, backfill

REPLICA_REMEDY = "check the replica's load and disk; cdc status shows who holds a lock there"


def told(run: Callable[[], object]) -> list[Any]:
    """Returns the log lines of a run."""
    with capture_logs() as said:
        run()
    return list(said)


def of(said: list[Any], event: str) -> list[Any]:
    """Returns the lines that begin like this."""
    return [each for each in said if str(each["event"]).startswith(event)]


class TestBeginning:
    def test_with_how_many_tables_where_and_in_which_language(
        self, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(session, "language", lambda: "a language")
        mirror.topics.create()
        mirror.topics.create(OTHER)
        mirror.topics.progress(at(0x20))
        begun = {"event": "mirroring", "log_level": "info", "tables": 2, "hot_path": "a language"}
        assert of(told(mirror.run), "mirroring") == [{**begun, "start": "0/0"}]
        mirror.restart()
        assert of(told(mirror.run), "mirroring") == [{**begun, "start": "0/20"}]

    def test_it_waits_for_the_bridge_and_warns_once_after_ten_seconds(
        self, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        topics = mirror.topics
        waited = 0
        at_warning: list[int] = []

        def wait(seconds: float) -> bool:
            nonlocal waited
            waited += 1
            mirror.clock.seconds += seconds
            if of(said, "the bridge has not written"):
                at_warning.append(waited)
            if waited == 15:
                topics.logs[SCHEMAS, 0] = []
            if waited == 16:
                topics.logs[PROGRESS, 0] = []
                topics.create()
                topics.progress(at(10))
            return False

        topics.logs = {}
        monkeypatch.setattr(mirror.stop, "wait", wait)
        with capture_logs() as said:
            mirror.run()
        assert at_warning[0] == 11, "said after the tenth second, not before"
        info = {"event": "waiting for the bridge to write a topic", "log_level": "info"}
        assert of(list(said), "waiting for the bridge") == [{**info, "topic": SCHEMAS}, {**info, "topic": PROGRESS}]
        assert of(list(said), "the bridge has not written") == [
            {
                "event": "the bridge has not written a topic yet",
                "log_level": "warning",
                "topic": SCHEMAS,
                "remedy": "start the bridge: cdc run",
            }
        ]

    def test_of_the_source_that_the_replica_mirrors(self, mirror: Mirror) -> None:
        topics = mirror.topics
        topics.create()
        topics.progress(at(10))
        mirror.run()
        mirror.restart(progress=replace(at(10), source=SourceIdentity("8", 1, 5)))
        with pytest.raises(ReplicaRefused) as caught:
            mirror.run()
        assert caught.value.remedy == "use an empty replica (or another sink.schema, or view.store) and a new `name`"


class TestTables:
    def test_a_stopped_table(self, mirror: Mirror) -> None:
        topics = mirror.topics
        topics.create()
        topics.create(OTHER)
        mirror.replica.beginnings[OTHER] = "stopped"
        topics.progress(at(10))
        assert of(told(mirror.run), "table is") == [
            {
                "event": "table is stopped",
                "log_level": "error",
                "table": "public.u",
                "topic": OTHER,
                "reason": "stopped",
                "remedy": "run cdc status: it says what lets the table go on",
            }
        ]

    def test_a_held_table_is_not_told_as_stopped(self, mirror: Mirror) -> None:
        topics = mirror.topics
        topics.create()
        topics.create(OTHER)
        topics.progress(at(10))
        mirror.run()
        mirror.restart()
        mirror.replica.state[OTHER] = mirror.replica.state[OTHER]._replace(reason="held")
        assert of(told(mirror.run), "table is") == []

    def test_one_that_loads_and_is_left_out(self, mirror: Mirror) -> None:
        topics = mirror.topics
        topics.create()
        topics.create(OTHER)
        topics.backfill(backfill(whole=False))
        topics.progress(at(10))
        topics.batch = 40

        def load() -> None:
            for _ in range(10_100):
                topics.row(10)
            topics.row(15, topic=OTHER)
            topics.progress(at(20))

        topics.events += [load]
        assert of(told(mirror.run), "tables that load") == [
            {
                "event": "tables that load are left out of the cut until they are read to their end",
                "log_level": "info",
                "topics": [TOPIC],
            }
        ]


class TestForeignRecords:
    @pytest.mark.parametrize(("key", "shown"), [(b"foreign", "foreign"), (b"\xff", "\\xff"), (None, None)])
    def test_where_it_lies_and_how_many_follow(self, mirror: Mirror, key: bytes | None, shown: str | None) -> None:
        header = HeaderStamp(LSN(1_000_000), 7, 0).header("u", 1, "0" * 16)
        topics = mirror.topics
        topics.create()
        topics.progress(at(10))
        mirror.clock.patience = 60

        def intrude() -> None:
            topics.write(TOPIC, key, b"{}", header + b"\xff")
            topics.row(15, b"ours")
            topics.progress(at(20))

        topics.events += [intrude, *(lambda lsn=lsn: topics.progress(at(lsn)) for lsn in (30, 40, 50, 60))]
        (line,) = of(told(mirror.run), "a record lies beyond")
        assert line == {
            "event": "a record lies beyond everything that the bridge has published, so another program wrote it. The "
            "sink leaves it out. Its table is not exact until the bridge writes the key again",
            "log_level": "error",
            "topic": TOPIC,
            "partition": 0,
            "offset": 0,
            "key": shown,
            "header": header.decode() + "\\xff",
            "more": 0,
            "remedy": "find the other writer (cdc topics lint) and stop it, then run cdc reconcile --repair",
        }

    def test_one_in_another_partition(self, mirror: Mirror) -> None:
        topics = mirror.topics
        topics.create(count=2)
        topics.progress(at(10))
        topics.row(5, b"k", number=0)
        topics.row(6, b"k", number=1)
        (line,) = of(told(mirror.run), "another program wrote")
        stray = line.pop("partition")
        assert stray in (0, 1)
        assert line == {
            "event": "another program wrote records into partitions where their keys do not belong: the sink leaves "
            "them out",
            "log_level": "warning",
            "topic": TOPIC,
            "offset": 0,
            "remedy": "find the other writer and stop it, then run cdc reconcile --repair",
        }


def test_topics_that_are_other_ones(mirror: Mirror) -> None:
    topics = mirror.topics
    topics.create()
    topics.progress(at(10))
    mirror.clock.patience = 60  # longer than it takes to look again
    topics.events += [lambda: topics.facts.update({TOPIC: topics.look_at([TOPIC])[TOPIC]._replace(topic_id="new")})]
    topics.events += [lambda: None]
    with capture_logs() as said, pytest.raises(BeginAnew):
        mirror.run()
    assert of(list(said), "topics have") == [
        {
            "event": "topics have changed: looking at them again",
            "log_level": "warning",
            "topics": [TOPIC],
            "remedy": "wait: the next session checks each table by itself",
        }
    ]


def test_a_clock_that_was_set_back() -> None:
    with capture_logs() as said, pytest.raises(BeginAnew):
        raise_set_back()
    assert said == [
        {
            "event": "the clock of this machine was set back: reading on from what is stored",
            "log_level": "warning",
            "remedy": "wait: the tables become exact again by themselves; let the clock be slewed (chronyd), not set",
        }
    ]


def test_another_process_that_has_the_lock() -> None:
    answers = iter([False, False, True])
    stop: Any = SimpleNamespace(wait=lambda _: False)
    assert told(lambda: wait_for_lock(lambda: next(answers), "shop", stop)) == [
        {
            "event": "waiting: another process of this name writes there",
            "log_level": "warning",
            "name": "shop",
            "remedy": "stop one of the two, or leave this one waiting: it takes over when the other one ends",
        }
    ]


def test_for_whom_it_waits(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    """``/ready`` and the log say so when the replica hangs."""
    seconds = itertools.count(0.0, 10.0)
    waits = Waits(lambda: next(seconds))
    monkeypatch.setattr(session, "WAITS", waits)
    found: dict[str, list[dict[str, object]]] = {}
    learn, write = mirror.replica.learn, mirror.replica.write

    def learning(schemas: Sequence[TableSchema]) -> Any:
        found["definition"] = waits.document()
        return learn(schemas)

    def writing(batches: Sequence[Batch]) -> None:
        found["rows"] = waits.document()
        write(batches)

    monkeypatch.setattr(mirror.replica, "learn", learning)
    monkeypatch.setattr(mirror.replica, "write", writing)
    mirror.topics.create()
    mirror.topics.row(5)
    mirror.topics.progress(at(10))
    mirror.run()
    same = {"whom": "replica", "seconds": 10.0, "remedy": REPLICA_REMEDY}
    assert found == {
        "definition": [{"for": "the replica to take a table's definition", **same}],
        "rows": [{"for": "the replica to take rows", **same}],
    }
    assert waits.document() == []


def test_of_a_table_that_was_away_too_long(mirror: Mirror) -> None:
    topics = mirror.topics
    topics.create()
    topics.progress(at(10))
    mirror.run()
    mirror.restart(caught_up_at=1.0)
    mirror.replica.beginnings[TOPIC] = "anew"
    mirror.run()
    begun = mirror.replica.begun[TOPIC]
    assert begun["topic_id"] == "id"
    assert begun["why_anew"] == "it was not read for longer than its topic keeps tombstones (delete.retention.ms)"
