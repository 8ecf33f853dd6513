"""What the sink believes its clock."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from typing import cast

import pytest

from cdc.base.lsn import LSN, ZERO
from cdc.contract.header import HeaderStamp
from cdc.contract.ports import BeginAnew, Partition, RecordReader, Restored, StoredRecord
from cdc.contract.record import Lead, Progress, SourceIdentity
from cdc.kafka.replay.cut import Cut, CutBuffer
from cdc.sink.apply import cut_judge
from cdc.sink.apply.cut_judge import CutJudge

PROGRESS = "cdc.progress", 0
PLACE = Cut(Progress(LSN(100), None, 0, SourceIdentity("1", 1, 1)), 7)


class Reader:
    """Is not at the end of a topic, so that no fence proves anything."""

    def positions(self) -> Mapping[Partition, int]:
        return {PROGRESS: 8, ("t", 0): 0}

    def fence(self, marked: Collection[str] | None = None) -> Mapping[Partition, int]:
        return {PROGRESS: 8, ("t", 0): 1}


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """How many seconds the clock is ahead of what it was."""
    seconds = [0.0]
    with monkeypatch.context() as clock:
        clock.setattr("time.time", lambda: 1_700_000_000.0 + time.monotonic() + seconds[0])
        yield seconds


def judge(caught_up_at: float) -> CutJudge:
    buffer = CutBuffer(100, 1_000, ZERO)
    buffer.watch([("t", 0)], state=True, outside=False)
    restored = Restored(PLACE.progress, {}, {}, caught_up_at, {})
    judged = CutJudge(cast("RecordReader", Reader()), buffer, PROGRESS, restored)
    judged.bound(60.0)
    return judged


def test_a_mark_proves_a_cut_until_the_clock_is_set_back(ahead: list[float]) -> None:
    judged = judge(time.time())
    assert judged.is_true(PLACE, ())
    judged.refuse_set_back()
    ahead[0] = 70.0
    assert not judged.is_true(PLACE, ())
    ahead[0] = 0.0
    with pytest.raises(BeginAnew):
        judged.refuse_set_back()


def test_a_moment_still_to_come_was_stored_before_the_clock_was_set_back(ahead: list[float]) -> None:
    """It would have proven cuts for an hour, and the replica would have been caught up for as long."""
    judged = judge(time.time() + 3_600.0)
    assert not judged.is_true(PLACE, ())
    assert judged.caught_up_at <= time.time()


class Asked(Reader):
    """Was read to the end of the topics, and notes what it is asked.

    Attributes:
        at, ends: how far each topic was read, and where it ends.
        fences: the topics of each fence.
    """

    def __init__(self) -> None:
        self.at = {PROGRESS: 8, ("t", 0): 1}
        self.ends = {PROGRESS: 8, ("t", 0): 1}
        self.fences: list[Collection[str] | None] = []

    def positions(self) -> Mapping[Partition, int]:
        return self.at

    def fence(self, marked: Collection[str] | None = None) -> Mapping[Partition, int]:
        self.fences.append(marked)
        return dict(self.ends)


class Clock:
    """Goes when it is told to."""

    now = 1_000.0

    def time(self) -> float:
        return 1_700_000_000.0 + self.now

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(cut_judge, "time", made)
    return made


class Judged:
    """A judge over one partition, which holds records of these LSNs."""

    def __init__(self, clock: Clock, *lsns: int, restored: Restored | None = None, records: int = 100) -> None:
        self.clock = clock
        self.reader = Asked()
        self.buffer = CutBuffer(records, 1 << 20, ZERO)
        self.buffer.watch([("t", 0)], state=True)
        self.buffer.add(
            [
                StoredRecord("t", 0, place, b"k", b"{}", HeaderStamp(LSN(lsn), 1, 0).header("u", 1, "f" * 16))
                for place, lsn in enumerate(lsns)
            ]
        )
        nothing = Restored(None, {}, {}, 0.0, {})
        self.judge = CutJudge(cast("RecordReader", self.reader), self.buffer, PROGRESS, restored or nothing)
        self.judge.bound(60.0)

    def saw(self, progress: Progress, offset: int) -> None:
        self.judge.saw(progress, offset)
        self.buffer.saw(Cut(progress, offset))


def progress(lsn: int, sent: int | None = None, *, is_open: bool = True) -> Progress:
    lead = None if sent is None else Lead(LSN(sent), is_open)
    return Progress(LSN(lsn), None, 0, SourceIdentity("1", 1, 1), (), lead)


class TestProof:
    def test_a_fence_that_was_reached_proves_a_cut_for_which_nobody_has_a_mark(self, clock: Clock) -> None:
        judged = Judged(clock, 50)
        clock.now += 1
        assert judged.judge.is_true(PLACE, ())
        assert judged.reader.fences == [None]
        judged.reader.ends["t", 0] = 2
        assert judged.judge.is_true(PLACE, ()), "a mark by now"
        assert len(judged.reader.fences) == 1

    def test_it_does_not_while_more_is_in_the_topics(self, clock: Clock) -> None:
        judged = Judged(clock, 50)
        judged.reader.ends["t", 0] = 2
        clock.now += 1
        assert not judged.judge.is_true(PLACE, ())
        judged.reader.at["t", 0] = 2
        clock.now += 1
        assert judged.judge.is_true(PLACE, ())

    def test_nor_if_something_lies_beyond_the_cut(self, clock: Clock) -> None:
        judged = Judged(clock, 50, 100)
        clock.now += 1
        assert not judged.judge.is_true(PLACE, ())
        assert judged.reader.fences == [], "no broker need be asked"

    def test_the_brokers_are_not_asked_too_often(self, clock: Clock) -> None:
        judged = Judged(clock, 50)
        judged.reader.ends["t", 0] = 2
        clock.now += 0.04
        judged.judge.is_true(PLACE, ())
        assert judged.reader.fences == []
        for _ in range(10):
            clock.now += 0.02
            judged.judge.is_true(PLACE, ())
        assert 3 <= len(judged.reader.fences) <= 5

    def test_what_joins_has_to_be_read_as_well(self, clock: Clock) -> None:
        judged = Judged(clock, 50)
        judged.buffer.watch([("u", 0)], state=True, outside=True)
        judged.reader.at["u", 0], judged.reader.ends["u", 0] = 0, 1
        clock.now += 1
        assert not judged.judge.is_true(PLACE, ["u"])
        clock.now += 1
        assert judged.judge.is_true(PLACE, ())

    def test_what_was_published_when_the_session_began_is_a_mark(self, clock: Clock) -> None:
        judged = Judged(clock, 50, 200)
        judged.judge.published(clock.time() - 10, progress(100))
        assert judged.judge.is_true(PLACE, ())
        assert judged.judge.published_at_most == 100

    def test_with_rows_ahead_of_it_it_is_none(self, clock: Clock) -> None:
        judged = Judged(clock, 50, 200)
        judged.judge.published(clock.time() - 10, progress(100, 150))
        assert judged.judge.published_at_most == 151
        assert not judged.judge.is_true(Cut(progress(200), 9), ())
        judged.judge.published(clock.time() - 10, progress(100, 150, is_open=False))
        assert judged.judge.is_true(Cut(progress(200), 9), ()), "no row is ahead after a clean end"

    def test_what_the_replica_remembers_is_a_mark(self, clock: Clock) -> None:
        remembered = Restored(PLACE.progress, {}, {}, clock.time() - 20, {})
        judged = Judged(clock, 50, 100, restored=remembered)
        assert judged.judge.is_true(PLACE, ())
        assert judged.judge.published_at_most == 100
        clock.now += 31
        assert not judged.judge.is_true(PLACE, ()), "51 of 60 - 10 s"

    def test_an_answer_holds_once_the_progress_topic_is_read_that_far(self, clock: Clock) -> None:
        judged = Judged(clock, 50, 300)
        judged.saw(progress(90), 6)
        judged.reader.at[PROGRESS] = 7
        judged.judge.ask()
        clock.now += 5
        judged.judge.read()
        assert not judged.judge.is_true(Cut(progress(90), 6), ())
        judged.saw(progress(95), 7)
        judged.reader.at[PROGRESS] = 8
        judged.judge.read()
        assert not judged.judge.is_true(Cut(progress(90), 6), ()), "up to 95 was published"
        assert judged.judge.is_true(Cut(progress(95), 7), ())
        clock.now += 46
        assert not judged.judge.is_true(Cut(progress(95), 7), ()), "the answer is 51 s old"

    def test_while_rows_may_be_ahead_only_a_record_that_was_drawn_up_later_holds(self, clock: Clock) -> None:
        judged = Judged(clock, 50, 300)
        judged.saw(progress(90, 90), 6)
        judged.reader.ends[PROGRESS] = judged.reader.at[PROGRESS] = 7
        judged.judge.ask()
        assert judged.reader.fences == [["cdc.progress"]], "rows have no markers"
        assert not judged.judge.is_true(Cut(progress(90), 6), ())
        judged.saw(progress(95, 100), 7)
        assert not judged.judge.is_true(Cut(progress(101), 7), ()), "drawn up before the topic ended at 7, maybe"
        judged.saw(progress(96, 110), 8)
        assert judged.judge.is_true(Cut(progress(111), 8), ())


class TestWhenACutIsWorthMaking:
    def test_each_new_progress_is(self, clock: Clock) -> None:
        judge = Judged(clock).judge
        assert judge.is_of_use(PLACE, ())
        judge.took(PLACE, is_true=True)
        assert not judge.is_of_use(PLACE, ())
        assert judge.is_of_use(PLACE._replace(offset=8), ())

    def test_the_same_place_is_if_it_was_not_true_or_a_topic_joins_or_long_ago(self, clock: Clock) -> None:
        judge = Judged(clock).judge
        judge.took(PLACE, is_true=False)
        assert judge.is_of_use(PLACE, ())
        judge.took(PLACE, is_true=True)
        assert judge.is_of_use(PLACE, ["u"])
        clock.now += 30
        assert not judge.is_of_use(PLACE, ())
        clock.now += 0.1
        assert judge.is_of_use(PLACE, ())

    def test_with_full_memory_it_is_if_it_makes_room(self, clock: Clock) -> None:
        for lsn in (99, 100):
            judge = Judged(clock, lsn, records=1).judge
            judge.took(PLACE, is_true=False)
            assert judge.is_of_use(PLACE, ()) is (lsn < 100)

    def test_one_that_is_not_true_is_put_off_for_a_second(self, clock: Clock) -> None:
        judge = Judged(clock).judge
        later = PLACE._replace(offset=8)
        judge.took(PLACE, is_true=True)
        clock.now += 1
        assert not judge.may_be_untrue(later)
        clock.now += 0.1
        assert judge.may_be_untrue(later)
        assert not judge.may_be_untrue(PLACE)


class TestCaughtUp:
    def test_it_is_as_old_as_the_newest_mark_of_the_cut_and_never_falls(self, clock: Clock) -> None:
        judged = Judged(clock, restored=Restored(PLACE.progress, {}, {}, clock.time() - 50, {}))
        judge, began = judged.judge, clock.time()
        assert judge.caught_up_at == began - 50
        judge.published(began - 10, progress(200))
        judge.took(PLACE, is_true=False)
        assert judge.caught_up_at == began - 50, "the newer mark speaks of what lies beyond"
        judge.took(Cut(progress(200), 8), is_true=False)
        assert judge.caught_up_at == began - 10
        judge.published(began - 20, progress(200))
        judge.took(Cut(progress(200), 9), is_true=False)
        assert judge.caught_up_at == began - 10

    def test_topics_that_are_all_outside_are_not_caught_up(self, clock: Clock) -> None:
        judged = Judged(clock, restored=Restored(PLACE.progress, {}, {}, clock.time() - 50, {}))
        judged.judge.published(clock.time() - 10, progress(100))
        judged.buffer.leave(["t"])
        judged.judge.took(PLACE, is_true=False)
        assert judged.judge.caught_up_at == clock.time() - 50

    def test_a_replica_that_remembers_nothing_is_caught_up_with_nothing_that_came_before(self, clock: Clock) -> None:
        assert Judged(clock).judge.caught_up_at == clock.time()


class TestFences:
    def test_after_half_a_minute_without_news_another_fence_shows_that_there_is_none(self, clock: Clock) -> None:
        judged = Judged(clock)
        judged.saw(progress(90), 6)
        judged.judge.ask()
        assert len(judged.reader.fences) == 1
        clock.now += 30
        judged.judge.ask()
        assert len(judged.reader.fences) == 1
        clock.now += 0.1
        judged.judge.ask()
        judged.judge.ask()
        assert len(judged.reader.fences) == 2

    def test_a_fence_that_is_not_reached_is_not_replaced(self, clock: Clock) -> None:
        judged = Judged(clock)
        judged.reader.ends["t", 0] = 2
        judged.saw(progress(90), 6)
        judged.judge.ask()
        clock.now += 31
        judged.judge.ask()
        assert len(judged.reader.fences) == 1
