"""Repairs beside the stream: one request after the other, part by part, and what their outcomes say."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cdc.base.errors import SourceRefused
from cdc.base.lsn import LSN
from cdc.bridge.backfill.beside import BesideStream
from cdc.bridge.backfill.repair_work import Repairs
from cdc.bridge.backfill.rows import Ordinals
from cdc.bridge.backfill.stream_side import StreamSide
from cdc.bridge.backfill.tasks import KeysRead, KeysTask, ReadFailure
from cdc.bridge.capture.key_rows import KeyAnswer, KeyRows
from cdc.bridge.capture.reading import Moment
from cdc.bridge.order.touched import TouchedKeys
from cdc.contract.header import parse_header
from cdc.contract.record import RepairKey, RepairOutcome, RepairRequest
from cdc.contract.repair import parse_repair_outcome, repair_key, repair_request_key
from cdc.contract.snapshot import Snapshot
from tests.unit.bridge.backfill.stage import (
    SNAPSHOT,
    SNAPSHOT_TEXT,
    Clock,
    Readers,
    Stream,
    World,
    key,
    relation,
    topic_of,
)


class Stage:
    """Repairs of two tables, a reader and a stream that do what a test says.

    Attributes:
        started: how many readers were started.
    """

    def __init__(self, *parts: RepairRequest) -> None:
        self.world = World(["t", "u"])
        self.stream = Stream()
        self.touched = TouchedKeys()
        self.readers = Readers()
        self.ordinals = Ordinals()
        self.started = 0
        self.waiting: dict[bytes, RepairRequest] = {}
        self.ask(*parts)
        side = StreamSide(self.stream, self.touched)
        self.repairs = Repairs(self.waiting, self.start, side, self.ordinals, self.world)

    def start(self) -> Readers:
        self.started += 1
        return self.readers

    def ask(self, *parts: RepairRequest) -> None:
        """As somebody's request does."""
        self.waiting |= {repair_request_key(each.request, each.part): each for each in parts}

    def task(self) -> KeysTask:
        """The next one for the reader."""
        task = self.readers.tasks.popleft()
        assert isinstance(task, KeysTask)
        return task

    def bring(
        self,
        task: KeysTask,
        *present: int,
        lsn: int = 90,
        unread: Sequence[int] = (),
        snapshot: Snapshot = SNAPSHOT,
        key_names: tuple[str, ...] = ("id",),
    ) -> int:
        """What the reader finds: rows with these ids. Returns the bytes of the step after it."""
        answers = []
        for each in task.keys:
            number = int(each.removeprefix(b'{"id":').removesuffix(b"}"))
            text = b"%d" % number
            row = (text, b"row") if number in present and number not in unread else None
            answers.append(KeyAnswer((text,), row, number not in unread))
        moment = Moment(snapshot, SNAPSHOT_TEXT, LSN(lsn), None)
        found = KeyRows(moment, relation(task.table.name), key_names, tuple(answers))
        self.readers.news.append(KeysRead(task, found))
        return self.repairs.step()

    def keys_written(self) -> list[tuple[bytes, bool]]:
        """Keys of the records that were produced, and whether they are rows."""
        return [(each, value is not None) for _, each, value, _ in self.world.records]

    def outcomes(self) -> list[RepairOutcome]:
        """What was noted, oldest first; each with the tombstone of its part right behind it."""
        found = []
        for (name, value), (asked, gone) in zip(self.world.notes[::2], self.world.notes[1::2], strict=True):
            assert value is not None
            outcome = parse_repair_outcome(value)
            assert name == repair_key(outcome.table)
            assert (asked, gone) == (repair_request_key(outcome.request, outcome.part), None)
            found.append(outcome)
        return found


def is_active(stage: Stage) -> bool:
    """A property that changes, which mypy takes for one that does not."""
    return stage.repairs.is_active


def part(number: int, *ids: int, request: str = "r", table: str = "public.t") -> RepairRequest:
    return RepairRequest(request, number, table, tuple(RepairKey(key(each)) for each in ids))


def test_a_part_is_looked_up_and_published_with_its_outcome() -> None:
    stage = Stage(part(0, 1, 2))
    stage.stream.unseen.add(40)
    stage.ordinals.learn(topic_of("t"), 6)
    assert is_active(stage)
    assert stage.repairs.step() == 0
    task = stage.task()
    assert task.keys == (key(1), key(2))
    assert task.guard == {40}
    assert task.table == stage.world.infos["t"]
    size = len(b'{"id":1,"v":"row"}') + len(key(2))
    assert stage.bring(task, 1) == size
    assert stage.keys_written() == [(key(1), True), (key(2), False)]
    (outcome,) = stage.outcomes()
    assert outcome == RepairOutcome(
        table="public.t",
        topic=topic_of("t"),
        request="r",
        part=0,
        rows=1,
        tombstones=1,
        touched=0,
        seq=8,
        lsn=LSN(100),
    )
    assert [parse_header(header).seq for *_, header in stage.world.records] == [7, 8]
    assert not is_active(stage)
    assert not stage.touched.keys
    assert stage.started == 1


def test_without_a_request_no_reader_is_started() -> None:
    stage = Stage()
    assert not is_active(stage)
    assert stage.repairs.step() == 0
    stage.repairs.attend()
    stage.repairs.close()
    assert stage.started == 0


def test_four_parts_are_looked_up_ahead() -> None:
    stage = Stage(*(part(number, number) for number in range(7)))
    stage.repairs.step()
    assert [task.keys for task in stage.readers.tasks if isinstance(task, KeysTask)] == [(key(n),) for n in range(4)]
    stage.bring(stage.task())
    assert len(stage.readers.tasks) == 4
    while stage.readers.tasks:
        stage.bring(stage.task())
    assert [each.part for each in stage.outcomes()] == [*range(7)]
    assert not is_active(stage)


def test_what_the_stream_touches_since_the_first_part_was_taken_up_is_left_alone_in_all_of_them() -> None:
    stage = Stage(part(0, 1), part(1, 2))
    stage.repairs.step()
    (touched,) = stage.touched.keys[topic_of("t")]
    touched[key(2)] = 60
    stage.bring(stage.task(), 1)
    stage.bring(stage.task(), 2)
    assert [(each.rows, each.touched) for each in stage.outcomes()] == [(1, 0), (0, 1)]
    assert stage.keys_written() == [(key(1), True)]


def test_one_request_is_done_after_the_other_with_a_recording_of_its_own() -> None:
    """A key that the stream touched before somebody found it to differ may still differ."""
    stage = Stage(part(0, 1), part(0, 1, request="s", table="public.u"), part(1, 2))
    stage.repairs.step()
    assert [task.part.request.request for task in stage.readers.tasks if isinstance(task, KeysTask)] == ["r", "r"]
    (touched,) = stage.touched.keys[topic_of("t")]
    touched[key(1)] = 60
    first, second = stage.task(), stage.task()
    stage.bring(first, 1)
    assert topic_of("u") not in stage.touched.keys
    stage.bring(second, 2)
    assert topic_of("t") not in stage.touched.keys
    stage.bring(stage.task(), 1)
    assert [(each.request, each.table, each.topic, each.touched) for each in stage.outcomes()] == [
        ("r", "public.t", topic_of("t"), 1),
        ("r", "public.t", topic_of("t"), 0),
        ("s", "public.u", topic_of("u"), 0),
    ]
    assert stage.started == 1


def test_a_part_that_was_withdrawn_is_not_waited_for() -> None:
    stage = Stage(part(0, 1))
    stage.repairs.step()
    stage.ask(part(0, 2, request="s"))
    stage.waiting.clear()
    stage.bring(stage.task(), 1)
    assert [each.request for each in stage.outcomes()] == ["r"]
    assert not is_active(stage)


def test_a_table_that_is_not_captured_is_said_to_be_none() -> None:
    stage = Stage(part(0, 1, table="public.nobody"), part(0, 1, request="s"))
    stage.repairs.step()
    (outcome,) = stage.outcomes()
    assert outcome.error == "the bridge does not capture table public.nobody"
    assert "SIGHUP" in outcome.remedy
    assert (outcome.topic, outcome.rows, outcome.seq) == ("", 0, 0)
    stage.bring(stage.task(), 1)
    assert [each.error for each in stage.outcomes()][1:] == [""]


def test_a_part_that_cannot_be_read_says_why_and_the_next_one_goes_on() -> None:
    stage = Stage(part(0, 1), part(1, 2))
    stage.repairs.step()
    stage.readers.news.append(ReadFailure(stage.task(), SourceRefused("no right to read", remedy="grant it")))
    assert stage.repairs.step() == 0
    (outcome,) = stage.outcomes()
    assert (outcome.error, outcome.remedy, outcome.rows) == ("no right to read", "grant it", 0)
    stage.bring(stage.task(), 2)
    assert [each.error for each in stage.outcomes()][1:] == [""]
    assert not is_active(stage)


def test_a_key_of_other_columns_is_refused() -> None:
    stage = Stage(part(0, 1))
    stage.repairs.step()
    assert stage.bring(stage.task(), 1, key_names=("other",)) == 0
    assert stage.world.records == []
    (outcome,) = stage.outcomes()
    assert outcome.error == "the key of table public.t has changed"
    assert "cdc reconcile --repair" in outcome.remedy


def test_what_was_read_waits_for_the_stream_and_for_its_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("time.monotonic", clock)
    stage = Stage(part(0, 1))
    stage.repairs.step()
    stage.world.without_encoder.add("t")
    assert stage.bring(stage.task(), 1, lsn=101) == 0
    for wait_s, journal in ((0.15, []), (0.1, ["flush WAL"]), (0.15, ["flush WAL"]), (0.1, ["flush WAL"] * 2)):
        clock.now_s += wait_s
        stage.repairs.attend()
        assert stage.world.journal == [("ends of", topic_of("t")), *journal]
    stage.stream.comes_to(101)
    assert stage.repairs.step() == 0
    assert stage.world.notes == []
    stage.world.without_encoder.clear()
    assert stage.repairs.step() > 0
    assert stage.outcomes()[0].rows == 1
    clock.now_s += 9
    stage.repairs.attend()
    assert stage.world.journal[3:] == []


def test_keys_that_were_too_many_at_once_are_looked_up_again_before_the_outcome() -> None:
    stage = Stage(part(0, 1, 2, 3))
    stage.repairs.step()
    (of_request,) = stage.touched.keys[topic_of("t")]
    assert stage.bring(stage.task(), 1, 2, 3, unread=(2, 3)) > 0
    assert stage.world.notes == []
    again = stage.task()
    assert again.keys == (key(2), key(3))
    own = next(each for each in stage.touched.keys[topic_of("t")] if each is not of_request)
    of_request[key(2)] = 60  # before the first look
    own[key(3)] = 60
    stage.bring(again, 2, 3)
    (outcome,) = stage.outcomes()
    assert (outcome.rows, outcome.touched) == (2, 1)
    assert stage.keys_written() == [(key(1), True), (key(2), True)]
    assert not stage.touched.keys


def test_closing_ends_the_reader() -> None:
    stage = Stage(part(0, 1))
    stage.repairs.step()
    stage.repairs.close()
    assert stage.readers.is_closed


class Backfill:
    """Notes what it is asked; has 7 bytes to publish."""

    def __init__(self, journal: list[object]) -> None:
        self.journal = journal
        self.is_active = False
        self.wants_flush = True

    def step(self, commit: object) -> int:
        self.journal.append(("step", commit))
        return 7

    def attend(self) -> None:
        self.journal.append("attend")

    def flush(self, lsn: LSN) -> None:
        self.journal.append(("flush", lsn))

    def demand(self, demand: object) -> None:
        self.journal.append(("demand", demand))

    def begin_anew(self, demand: object, topic: str) -> int:
        self.journal.append(("begin anew", demand, topic))
        return 3

    def close(self) -> None:
        self.journal.append("close")


def test_repairs_go_before_backfills() -> None:
    stage = Stage(part(0, 1))
    journal: list[object] = []
    backfill = Backfill(journal)
    beside = BesideStream(backfill, stage.repairs)  # type: ignore[arg-type]  # a stand-in
    commit = stage.stream.comes_to
    assert [beside.is_active] == [True]
    assert beside.step(commit) == 7  # type: ignore[arg-type]  # it is only handed on
    stage.readers.news.append(KeysRead(stage.task(), found_nothing()))
    assert beside.step(commit) == len(key(1))  # type: ignore[arg-type]
    assert journal == [("step", commit)]
    assert [beside.is_active] == [False]
    backfill.is_active = True
    assert [beside.is_active] == [True]
    beside.attend()
    beside.flush(LSN(5))
    assert beside.begin_anew("demand", "topic") == 3  # type: ignore[arg-type]
    beside.demand("demand")  # type: ignore[arg-type]
    beside.close()
    assert journal[1:] == ["attend", ("flush", 5), ("begin anew", "demand", "topic"), ("demand", "demand"), "close"]
    assert stage.readers.is_closed
    assert beside.wants_flush


def found_nothing() -> KeyRows:
    moment = Moment(SNAPSHOT, SNAPSHOT_TEXT, LSN(90), None)
    return KeyRows(moment, relation("t"), ("id",), (KeyAnswer((b"1",), None),))
