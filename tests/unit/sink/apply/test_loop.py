"""How one session follows another: what ended the last one decides what happens to its table, and to the process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from cdc.base.errors import TopicUnavailable, with_remedy
from cdc.contract.ports import BeginAnew, StoredRecord, TableHeld, TableRejected
from cdc.kafka.replay.client import TopicMissing
from cdc.sink.apply import loop
from cdc.sink.apply.loop import run_mirror, wait_for_lock
from cdc.sink.apply.topics import RebuildOrder
from tests.unit.sink.apply.mirror import CONFIG

RECORD = StoredRecord("t", 0, 7, b"k", b"{}", b"")


class AtOnce(threading.Event):
    """Told to stop or not, nobody waits."""

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout
        return self.is_set()


class Place:
    """A replica whose sessions end as a test wants.

    Attributes:
        endings: what the next sessions do; the last one sets ``stop``.
        writers: for each session, which topics were stopped already.
        journal: what was written down and closed, in order.
        orders: what each session was to rebuild.
    """

    called = "the replica"

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.endings: list[Callable[[], object]] = []
        self.stop = AtOnce()
        self.writers: list[set[str]] = []
        self.journal: list[object] = []
        self.orders: list[RebuildOrder] = []
        self.on_failure: Callable[[], None] = lambda: None
        monkeypatch.setattr(loop, "MirrorSession", self.session)
        monkeypatch.setattr(
            loop, "TopicReader", lambda _: SimpleNamespace(close=lambda: self.journal.append("reader closed"))
        )

    def upgrade(self) -> None:
        self.journal.append("upgraded")

    @contextmanager
    def watching(self, on_failure: Callable[[], None]) -> Generator[None, None, None]:
        self.on_failure = on_failure
        yield

    def writer(self, stopped: Collection[str]) -> Any:
        self.writers.append(set(stopped))
        return self

    def lock(self) -> bool:
        return True

    def close(self) -> None:
        self.journal.append("closed")

    def stop_table(self, *args: object) -> None:
        self.journal.append(args)

    def session(
        self, config: object, *, reader: Any, replica: object, jobs: Any, stop: threading.Event, order: RebuildOrder
    ) -> Any:
        assert config is CONFIG
        assert replica is self
        assert reader is not None
        self.orders.append(order)
        self.jobs = jobs

        def run() -> None:
            (self.endings.pop(0) if self.endings else stop.set)()

        return SimpleNamespace(run=run)

    def fail(self, error: Exception) -> None:
        """Let the next session end with an error."""

        def ending() -> None:
            raise error

        self.endings.append(ending)

    def run(self, order: RebuildOrder | None = None) -> list[Any]:
        """Run the loop; returns its log."""
        place: Any = self
        with capture_logs() as said:
            run_mirror(CONFIG, place, self.stop, self.journal.append, order)
        return said


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(monkeypatch)


def test_a_rejected_table_is_stopped_with_its_record_and_the_next_session_goes_on_without_it(place: Place) -> None:
    place.fail(TableRejected("t", "too long", RECORD, remedy="shorten it"))
    (line,) = place.run()
    assert place.writers == [set(), {"t"}]
    assert ("t", with_remedy("too long", "shorten it"), RECORD) in place.journal
    assert line == {
        "event": "a record stops its table, the others go on",
        "log_level": "error",
        "error": "rows of topic 't': too long",
        "remedy": "shorten it",
    }


@pytest.mark.parametrize("ending", [BeginAnew(), TableHeld()])
def test_a_session_that_has_to_begin_anew_does(place: Place, ending: Exception) -> None:
    place.fail(ending)
    assert place.run() == []
    assert place.writers == [set(), set()]
    assert place.journal == ["upgraded", *["reader closed", "closed"] * 2]


def test_a_topic_that_is_gone_is_waited_for(place: Place) -> None:
    place.fail(TopicMissing("topic 't' does not exist", remedy="start the bridge"))
    (line,) = place.run()
    assert line == {
        "event": "a topic is gone",
        "log_level": "warning",
        "error": "topic 't' does not exist",
        "remedy": "wait: the sink reads the topic when it exists again; if the bridge is down, start it: cdc run",
    }
    assert len(place.writers) == 2


def test_an_outage_is_left_to_the_caller_and_nothing_stays_open(place: Place) -> None:
    place.fail(TopicUnavailable("no broker answers", remedy="wait"))
    with pytest.raises(TopicUnavailable):
        place.run()
    assert place.journal == ["upgraded", "reader closed", "closed"]


def test_all_sessions_have_the_same_order(place: Place) -> None:
    order = RebuildOrder(["public.t"])
    place.fail(BeginAnew())
    place.run(order)
    assert place.orders == [order, order]


def test_without_an_order_nothing_is_rebuilt(place: Place) -> None:
    place.run()
    assert not place.orders[0].names("public.t")


def test_the_job_under_way_ends_before_the_next_session_begins(place: Place) -> None:
    """What it raises came of what ended the session."""
    ended = threading.Event()

    def ending() -> None:
        def job() -> None:
            ended.wait(0.05)
            place.journal.append("job")
            raise RuntimeError("its connection was closed")

        place.jobs.hand_over(job)
        raise BeginAnew

    place.endings.append(ending)
    place.run()
    assert place.journal[:3] == ["upgraded", "job", "reader closed"]


def test_each_cut_is_told(place: Place) -> None:
    def ending() -> None:
        place.jobs.hand_over(lambda: "a cut")
        place.jobs.settle()
        place.stop.set()

    place.endings.append(ending)
    place.run()
    assert place.journal[1] == "a cut"


def test_told_to_stop_before_it_has_the_lock_it_mirrors_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def lock() -> bool:
        place.stop.set()
        return False

    monkeypatch.setattr(place, "lock", lock)
    place.run()
    assert place.orders == []
    assert place.journal[-1] == "closed"


def test_a_watch_that_fails_ends_the_loop(place: Place) -> None:
    place.endings += [lambda: place.on_failure(), lambda: pytest.fail("another session")]
    place.run()
    assert len(place.orders) == 1


def test_who_waits_for_the_lock_says_so_once_but_not_for_the_end_of_its_own_last_session() -> None:
    for refusals, lines in ((1, 0), (2, 1), (5, 1)):
        answers = iter([False] * refusals + [True])
        stop: Any = SimpleNamespace(wait=lambda _: False)
        with capture_logs() as said:
            assert wait_for_lock(lambda answers=answers: next(answers), "shop", stop)  # type: ignore[misc]
        assert len(said) == lines
        assert all(each["name"] == "shop" for each in said)
