"""The loop against a scripted walsender: what is committed when, and that the slot hears of it only afterwards."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from cdc.base.errors import TopicUnavailable
from cdc.base.lsn import LSN
from cdc.bridge.coverage import RULES, Coverage, CoverageRule
from cdc.bridge.encode import TableEncoder
from cdc.bridge.loop import Bridge
from cdc.bridge.order.counts import CountsByTable
from cdc.bridge.order.demand import Demand
from cdc.bridge.order.engine import Engine
from cdc.bridge.order.needs import Definition, Empty, Filled, Rows, Unfilled
from cdc.bridge.order.touched import TouchedKeys
from cdc.bridge.rereader import Reading
from cdc.bridge.sides import FoundRelation, LoopSides
from cdc.contract.change import Column, Relation, ReplicaIdentity
from cdc.contract.record import Position, Progress, Ready, SourceIdentity
from cdc.contract.snapshot import Snapshot

SOURCE = SourceIdentity("7", 1, 5)
UNIX_EPOCH = -946_684_800_000_000  # µs, as the server counts: from 2000
RESUME = Progress(LSN(100), None, 0, SOURCE)


def frame(payload: bytes, sent_s: float = 0) -> bytes:
    return b"w" + struct.pack(">QQq", 0, 0, UNIX_EPOCH + int(sent_s * 1e6)) + payload


def keepalive(lsn: int, *, reply: bool = False) -> bytes:
    return b"k" + struct.pack(">QqB", lsn, 0, reply)


def begin(lsn: int) -> bytes:
    return frame(b"B" + struct.pack(">QqI", lsn, UNIX_EPOCH, 9))


def commit(lsn: int, sent_s: float = 0) -> bytes:
    """Of 1970, and sent so many seconds later."""
    return frame(b"C" + struct.pack(">BQQq", 0, lsn, lsn + 10, UNIX_EPOCH), sent_s)


KEYED = (ReplicaIdentity.DEFAULT, (Column("id", 20, -1, "pg_catalog.int8", True),))
RELATION = frame(
    b"R" + struct.pack(">I", 1) + b"public\0t\0d" + struct.pack(">HB", 1, 1) + b"id\0" + struct.pack(">Ii", 20, -1)
)


def insert(key: int, of: int = 1) -> bytes:
    text = b"%d" % key
    return frame(b"I" + struct.pack(">IBH", of, ord("N"), 1) + b"t" + struct.pack(">I", len(text)) + text)


TOAST = frame(
    b"R"
    + struct.pack(">I", 1)
    + b"public\0t\0d"
    + struct.pack(">HB", 2, 1)
    + b"id\0"
    + struct.pack(">Ii", 20, -1)
    + b"\0body\0"
    + struct.pack(">Ii", 25, -1)
)


def update(key: int, old: int | None = None) -> bytes:
    """Of a row whose second column is unchanged TOAST."""
    text = b"%d" % key
    before = b"" if old is None else b"K" + struct.pack(">H", 2) + b"t" + struct.pack(">I", 1) + b"%d" % old + b"n"
    return frame(
        b"U" + struct.pack(">I", 1) + before + b"N" + struct.pack(">H", 2) + b"t" + struct.pack(">I", 1) + text + b"u"
    )


class Idle:
    """A backfill with nothing to do."""

    is_active = False
    wants_flush = False

    def __init__(self, journal: list[object]) -> None:
        self.journal = journal

    def demand(self, demand: Demand) -> None:
        self.journal.append(demand)

    def begin_anew(self, demand: Demand, topic: str) -> int:
        raise AssertionError("the stream has described it")

    def attend(self) -> None: ...

    def step(self, commit: Callable[[], None]) -> int:
        raise AssertionError("nothing to do")

    def flush(self, lsn: LSN) -> None: ...


class Stepping(Idle):
    """A backfill with one portion to publish."""

    is_active = True

    def step(self, commit: Callable[[], None]) -> int:
        self.journal.append("step")
        self.is_active = False
        return 100


class Script:
    """Plays frames; records, commits and confirmations end up in one journal, in the order they happened.

    Attributes:
        readings: what is answered to each question for rows; None is no answer yet.
        found: what is answered to each question for a table, before the usual answer.
    """

    def __init__(self, *batches: list[bytes], beside: type[Idle] = Idle, keeps_whole: bool = False) -> None:
        self.batches = list(batches)
        self.journal: list[object] = []
        self.stop = threading.Event()
        self.fail_commit = False
        self.is_open = self.is_busy = False
        self.keeps_whole = keeps_whole
        self.readings: list[Reading | None] = []
        self.found: list[FoundRelation | None] = []
        engine = Engine(resume=RESUME, xid=0, counts=CountsByTable(), touched=TouchedKeys())
        self.bridge = Bridge(
            LoopSides(self, self, self, beside(self.journal)),  # type: ignore[arg-type]  # a stand-in
            engine,
            RESUME,
            beginnings=[],
            on_commit=lambda progress: None,
        )

    def stream_read(self) -> list[bytes]:
        if self.batches:
            return self.batches.pop(0)
        return []

    def read(self, what: int | Rows, timeout_s: float = 0) -> Any:
        """Of the stream, or of the source."""
        if isinstance(what, int):
            return self.stream_read()
        if not self.readings:
            self.stop.set()
            return None
        return self.readings.pop(0)

    def look(self) -> None: ...

    def snapshot(self) -> Snapshot:
        return Snapshot(100, frozenset())

    def look_up(self, need: Definition) -> FoundRelation | None:
        return self.found.pop(0) if self.found else FoundRelation(TableEncoder(need.relation, ("id",), "t"))

    def meet(self, relation: Relation) -> Sequence[Demand]:
        return ()

    def begins_anew(self, table: TableEncoder) -> Demand | None:
        return None

    @property
    def coverage(self) -> Coverage:
        return Coverage.IN_TRANSACTION if self.is_open else Coverage.COVERED

    @property
    def rule(self) -> CoverageRule:
        return RULES["transactional"][self.coverage]

    def covered(self) -> None: ...

    def cover(self, progress: Progress) -> None:
        raise AssertionError("progress goes with the rows")

    def end(self, progress: Progress) -> None: ...

    def send(self, records: Sequence[Ready]) -> bool:
        self.is_open = True
        self.journal += [key for _, key, *_ in records]
        return False

    def describe(self, table: TableEncoder) -> None:
        pass

    def ask_again(self, table: str, keys: Sequence[bytes]) -> None:
        self.is_open = True
        self.journal.append(("again", table, *keys))

    def empty(
        self, need: Empty, *, commit: Callable[[], None], sign_of_life: Callable[[], None], stop: threading.Event
    ) -> bool:
        self.journal.append("emptied")
        self.is_open = True
        commit()
        return True

    def wait(self, timeout_s: float) -> None:
        if not self.batches:
            self.stop.set()

    def commit(self, progress: Progress) -> None:
        if self.fail_commit:
            raise TopicUnavailable("commit_transaction failed", remedy="try again")
        self.is_open = False
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


@pytest.mark.parametrize(("keeps_whole", "ends"), [(False, [100, 310]), (True, [210, 310])])
def test_a_full_kafka_transaction_ends_after_a_commit_of_the_source_if_it_keeps_these_whole(
    keeps_whole: bool, ends: list[int]
) -> None:
    script = Script(
        [begin(200), RELATION, *[insert(1)] * 50_000],
        [insert(2), commit(200), begin(300), insert(3), insert(4)],
        [commit(300)],
        [],
        keeps_whole=keeps_whole,
    )
    assert [each.lsn for each in script.run() if isinstance(each, Progress)] == list(map(LSN, ends))


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
    assert ("sign of life", LSN(500)) in journal
    assert ("confirmed", LSN(500)) not in journal


def test_empty_transactions_move_the_slot_like_keepalives() -> None:
    """PostgreSQL 14 sends Begin and Commit of transactions without a row of ours."""
    script = Script([begin(200), commit(200), begin(300), commit(300)], [])
    assert script.run() == [Progress(LSN(310), None, 0, SOURCE), ("confirmed", LSN(310))]


def test_a_reread_that_waits_leaves_no_kafka_transaction_open() -> None:
    """What came before the row is committed, as a part, and the row follows when there is an answer."""
    script = Script([begin(200), TOAST, update(1), commit(200), begin(300), update(2), commit(300)], [])
    whole = (b"1", b"text")
    script.readings = [None, None, Reading([Filled(whole, False), Unfilled.GONE], None)]
    assert script.run() == [b'{"id":1}', Progress(LSN(310), None, 0, SOURCE), ("confirmed", LSN(310))]


def test_what_is_ready_does_not_wait_for_a_reread() -> None:
    rows = [begin(200), TOAST, update(1), update(2), commit(200)]
    script = Script(rows, [])
    script.readings = [Reading([Filled((b"1", b"text"), False)], None), None, None]
    script.run()
    assert [each for each in script.journal if not isinstance(each, tuple)] == [
        b'{"id":1}',
        Progress(LSN(100), Position(LSN(200), 1), 0, SOURCE),
    ], "stopped while the second row was waited for: the progress ends before it"


def test_a_row_that_cannot_be_read_any_more_is_asked_for_again_under_both_of_its_keys() -> None:
    script = Script([begin(200), TOAST, update(2, old=1), commit(200)], [])
    script.readings = [Reading([Unfilled.UNREADABLE], None)]
    assert script.run() == [
        ("again", "public.t", b'{"id":1}', b'{"id":2}'),
        Progress(LSN(210), None, 0, SOURCE),
        ("confirmed", LSN(210)),
    ]


def test_a_key_changed_twice_leaves_the_row_under_no_key_at_no_commit() -> None:
    """The first re-read finds it gone from its second key; what moved it on is awaited before anything is committed."""
    script = Script(
        [begin(200), TOAST, update(2, old=1), commit(200)], [], [begin(300), update(3, old=2), commit(300)], []
    )
    script.readings = [Reading([Unfilled.GONE], LSN(305)), Reading([Filled((b"3", b"text"), False)], None)]
    assert script.run() == [
        b'{"id":1}',
        b'{"id":2}',
        b'{"id":3}',
        Progress(LSN(310), None, 0, SOURCE),
        ("confirmed", LSN(310)),
    ]


def test_a_look_up_that_waits_leaves_no_kafka_transaction_open() -> None:
    other = RELATION[:26] + struct.pack(">I", 2) + RELATION[30:]
    script = Script([begin(200), RELATION, insert(1), other, insert(2, of=2), commit(200)], [])
    script.found = [FoundRelation(TableEncoder(Relation(1, "public", "t", *KEYED), ("id",), "t")), None]
    assert [each for each in script.run() if not isinstance(each, tuple)] == [
        b'{"id":1}',
        Progress(LSN(100), Position(LSN(200), 1), 0, SOURCE),
        b'{"id":2}',
        Progress(LSN(210), None, 0, SOURCE),
    ]


def test_a_table_that_begins_anew_is_asked_for_before_its_topic_is_touched() -> None:
    script = Script([begin(200), RELATION, insert(1), commit(200)], [])
    table, demand = TableEncoder(Relation(1, "public", "t", *KEYED), ("id",), "t"), Demand("public.t", False, "swapped")
    script.found = [FoundRelation(table, True, demand)]
    assert [each for each in script.run() if not isinstance(each, tuple)] == [
        demand,
        "emptied",
        Progress(LSN(100), Position(LSN(200), 0), 0, SOURCE),
        b'{"id":1}',
        Progress(LSN(210), None, 0, SOURCE),
    ]


def late(lsn: int, key: int) -> list[bytes]:
    return [begin(lsn), RELATION, insert(key), commit(lsn, sent_s=1.1)]


def test_behind_a_backlog_a_drained_socket_closes_no_kafka_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the walsender says, by a keepalive, that there is nothing more."""
    monkeypatch.setattr("cdc.bridge.batch.MIN_AGE_S", 60.0)
    script = Script(late(200, 1), [], late(300, 2), [], [], late(400, 3), [], [keepalive(500)], [], late(600, 4))
    assert [each for each in script.run() if isinstance(each, Progress)] == [
        Progress(LSN(500), None, 0, SOURCE),
        Progress(LSN(610), None, 0, SOURCE),
    ]


def test_rows_of_a_commit_that_looks_old_wait_for_no_longer_than_a_kafka_transaction_may_be_open() -> None:
    """Behind a failover from a server whose clock was slow, and with no keepalive."""
    script = Script(late(200, 1), [])
    assert script.run()[1:] == [Progress(LSN(210), None, 0, SOURCE), ("confirmed", LSN(210))]


def test_a_commit_sent_within_a_second_is_published_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdc.bridge.batch.MIN_AGE_S", 60.0)
    soon = [begin(200), RELATION, insert(1), commit(200, sent_s=0.9)]
    script = Script(soon, [], late(300, 2))
    assert next(each for each in script.run() if isinstance(each, Progress)).lsn == LSN(210)


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_portion_of_a_backfill_waits_while_much_is_on_its_way_to_kafka(is_busy: bool) -> None:
    """A commit waits for all of it, and rows of the stream wait for the commit."""
    script = Script([begin(200), RELATION, insert(1), commit(200)], [], beside=Stepping)
    script.is_busy = is_busy
    journal = script.run()
    assert Progress(LSN(210), None, 0, SOURCE) in journal
    assert ("step" in journal) is not is_busy


def test_behind_a_backlog_a_backfill_has_its_turns_all_the_same() -> None:
    script = Script(late(200, 1), [], beside=Stepping)
    script.is_busy = True
    assert "step" in script.run()
