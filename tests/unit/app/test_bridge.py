"""The loop against a scripted walsender: what is committed when, and that the slot hears of it only afterwards."""

from __future__ import annotations

import struct
import threading
from dataclasses import replace

import pytest

from cdc.app.bridge import Bridge
from cdc.app.translate import Counts, Translator
from cdc.encode.table import TableEncoder
from cdc.errors import TopicUnavailable
from cdc.lsn import LSN
from cdc.record import Position, Progress, SourceIdentity
from cdc.snapshot import Snapshot

SOURCE = SourceIdentity("7", 1, 5)
UNIX_EPOCH = -946_684_800_000_000  # µs, as the server counts: from 2000
RESUME = Progress(LSN(100), None, 0, SOURCE)


def frame(payload: bytes) -> bytes:
    return b"w" + bytes(24) + payload


def keepalive(lsn: int, *, reply: bool = False) -> bytes:
    return b"k" + struct.pack(">QqB", lsn, 0, reply)


def begin(lsn: int) -> bytes:
    return frame(b"B" + struct.pack(">QqI", lsn, UNIX_EPOCH, 9))


def commit(lsn: int) -> bytes:
    return frame(b"C" + struct.pack(">BQQq", 0, lsn, lsn + 10, UNIX_EPOCH))


RELATION = frame(
    b"R" + struct.pack(">I", 1) + b"public\0t\0d" + struct.pack(">HB", 1, 1) + b"id\0" + struct.pack(">Ii", 20, -1)
)


def insert(key: int) -> bytes:
    text = b"%d" % key
    return frame(b"I" + struct.pack(">IBH", 1, ord("N"), 1) + b"t" + struct.pack(">I", len(text)) + text)


class Idle:
    """A backfill with nothing to do."""

    is_active = False
    wants_flush = False

    def attend(self) -> None: ...

    def step(self) -> int:
        raise AssertionError("nothing to do")

    def flush(self, lsn: LSN) -> None: ...


class Script:
    """Plays frames; records, commits and confirmations end up in one journal, in the order they happened."""

    def __init__(self, *batches: list[bytes]) -> None:
        self.batches = list(batches)
        self.journal: list[object] = []
        self.stop = threading.Event()
        self.fail_commit = False
        translator = Translator(
            produce=lambda topic, key, value, header: self.journal.append(key),
            table_for=lambda relation: TableEncoder(relation, ("id",), "t"),
            reread=lambda *_: [],
            truncate=lambda *_: None,
            resume=RESUME,
            counts=Counts(),
            xid=0,
        )
        self.bridge = Bridge(
            stream=self,  # type: ignore[arg-type]
            translator=translator,
            backfill=Idle(),
            snapshot=lambda: Snapshot(100, frozenset()),
            has_records=lambda: bool(self.journal) and isinstance(self.journal[-1], bytes),
            commit=self.commit,
            resume=RESUME,
            on_commit=lambda progress: None,
        )

    def read(self, max_frames: int) -> list[bytes]:
        if self.batches:
            return self.batches.pop(0)
        return []

    def wait(self, timeout_s: float) -> None:
        if not self.batches:
            self.stop.set()

    def commit(self, progress: Progress) -> None:
        if self.fail_commit:
            raise TopicUnavailable("commit_transaction failed")
        self.journal.append(replace(progress, unseen=()))

    def confirm(self, lsn: LSN) -> None:
        self.journal.append(("confirmed", lsn))

    def feedback(self, received: LSN | None = None) -> None:
        self.journal.append(("sign of life", received))

    def feedback_if_due(self) -> None:
        pass

    def run(self) -> list[object]:
        self.bridge.run(self.stop)
        return self.journal


def test_the_slot_is_confirmed_after_the_kafka_commit() -> None:
    script = Script([begin(200), RELATION, insert(1), insert(2), commit(200)], [])
    assert script.run() == [
        b'{"id":1}',
        b'{"id":2}',
        Progress(LSN(210), None, 0, SOURCE),
        ("confirmed", LSN(210)),
    ]


def test_a_failed_kafka_commit_confirms_nothing() -> None:
    script = Script([begin(200), RELATION, insert(1), commit(200)], [])
    script.fail_commit = True
    with pytest.raises(TopicUnavailable):
        script.run()
    assert script.journal == [b'{"id":1}']


def test_what_came_while_busy_is_one_kafka_transaction() -> None:
    script = Script([begin(200), RELATION, insert(1), commit(200), begin(300), insert(2), commit(300)], [])
    assert [each for each in script.run() if isinstance(each, Progress)] == [Progress(LSN(310), None, 0, SOURCE)]


def test_a_drained_stream_inside_a_transaction_waits_for_its_end() -> None:
    script = Script([begin(200), RELATION, insert(1)], [], [insert(2), commit(200)], [])
    assert [each for each in script.run() if isinstance(each, Progress)] == [Progress(LSN(210), None, 0, SOURCE)]


def test_stopping_inside_a_transaction_publishes_its_first_part_and_says_so() -> None:
    script = Script([begin(200), RELATION, insert(1)])
    assert [each for each in script.run() if isinstance(each, Progress)] == [
        Progress(LSN(100), Position(LSN(200), 1), 0, SOURCE)
    ]


def test_a_keepalive_moves_an_idle_slot() -> None:
    script = Script([keepalive(500)], [])
    assert script.run() == [Progress(LSN(500), None, 0, SOURCE), ("confirmed", LSN(500))]


def test_a_keepalive_that_asks_is_answered_without_confirming_more() -> None:
    script = Script([begin(200), RELATION, insert(1), keepalive(500, reply=True)], [])
    journal = script.run()
    assert journal[1] == ("sign of life", LSN(500))
    assert ("confirmed", LSN(500)) not in journal


def test_empty_transactions_move_the_slot_like_keepalives() -> None:
    """PostgreSQL 14 sends Begin and Commit of transactions without a row of ours."""
    script = Script([begin(200), commit(200), begin(300), commit(300)], [])
    assert script.run() == [Progress(LSN(310), None, 0, SOURCE), ("confirmed", LSN(310))]
