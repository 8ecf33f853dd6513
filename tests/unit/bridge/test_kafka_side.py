"""Rows go out at once; a progress is written when Kafka has what it covers; without proof nothing more goes out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest

from cdc.base.config import Config
from cdc.base.errors import FencedError, TopicUnavailable
from cdc.base.lsn import LSN, ZERO
from cdc.bridge import kafka_side
from cdc.bridge.coverage import TRANSITIONS, Coverage, CoverageEvent
from cdc.bridge.kafka_side import KafkaSide
from cdc.bridge.order.needs import Empty
from cdc.bridge.order.repeats import Repeats
from cdc.contract.header import INSERT, HeaderStamp
from cdc.contract.ports import StoredRecord
from cdc.contract.progress import parse_progress, stream_key
from cdc.contract.record import Lead, Position, Progress, Ready, SourceIdentity
from cdc.kafka.publish.row_producer import Group

SOURCE = SourceIdentity("7", 1, 5)
RESUME = Progress(LSN(100), None, 0, SOURCE)
CONFIG = Config.model_validate({"name": "shop", "kafka": {"bootstrap": "k:1"}, "delivery": "idempotent"})
TRANSACTIONAL = CONFIG.model_copy(update={"delivery": "transactional"})


def row(lsn: int, seq: int = 1, key: bytes = b"k") -> Ready:
    return "shop.public.t", key, b"{}", HeaderStamp(LSN(lsn), 7, 0).header(INSERT, seq, "0" * 16), None


class Publisher:
    """Stands in for Kafka; what happens to it is in ``journal``, a progress as how it was written."""

    def __init__(self) -> None:
        self.journal: list[object] = []
        self.group = Group()
        self.is_open = self.is_writing = self.has_rows_under_way = self.is_fenced = False
        self.quarantine = None
        self.is_done = False

    def send_rows(self, records: Sequence[Ready]) -> None:
        self.journal += [each[3].split(b";")[2] for each in records]
        self.group.sent += len(records)
        self.has_rows_under_way = True

    def proved(self, at: float) -> None:
        self.proved_at = at

    def ack(self) -> None:
        self.group.acked = self.group.sent
        self.has_rows_under_way = False

    def next_group(self) -> Group:
        group, self.group = self.group, Group()
        self.ack_of = group
        return group

    def write(self, topic: str, key: bytes, value: bytes) -> None:
        assert (topic, key) == ("shop.__progress", stream_key("cdc_shop"))
        self.journal.append(("beside", self._told(value)))
        self.is_writing, self.is_done = True, False

    def is_written(self) -> bool:
        if self.is_done:
            self.is_writing = False
        return self.is_done

    def produce_all(self, records: Sequence[Ready]) -> None:
        self.is_open = True
        self.journal += [("inside", each[3].split(b";")[2]) for each in records]

    def produce(self, topic: str, key: bytes, value: bytes, header: bytes) -> None:
        if self.is_fenced:
            raise FencedError("another producer took over", remedy="try again")
        self.journal.append(self._told(value))

    def commit(self) -> None:
        self.journal.append("commit")

    @staticmethod
    def _told(value: bytes) -> tuple[int, Lead | None]:
        progress = parse_progress(value)
        return progress.lsn, progress.lead


class Clock:
    now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(kafka_side, "time", clock)
    return clock


def coverage(side: KafkaSide) -> Coverage:
    return side.coverage


def begun(repeats: Repeats | None = None, config: Config = CONFIG) -> tuple[KafkaSide, Publisher]:
    """A side that has committed its first progress, as the loop has it do."""
    publisher = Publisher()
    side = KafkaSide(config, publisher, SimpleNamespace(), SimpleNamespace(), RESUME, repeats)  # type: ignore[arg-type]  # a stand-in
    side.commit(RESUME)
    publisher.journal.clear()
    return side, publisher


def test_before_the_first_row_the_topics_say_that_rows_may_be_ahead(clock: Clock) -> None:
    publisher = Publisher()
    side = KafkaSide(CONFIG, publisher, SimpleNamespace(), SimpleNamespace(), RESUME, None)  # type: ignore[arg-type]  # a stand-in
    side.send([row(200)])
    assert publisher.journal == [(100, Lead(LSN(99), True)), "commit", b"lsn=0/C8"]


def test_progress_waits_until_kafka_has_every_row_that_it_covers(clock: Clock) -> None:
    side, publisher = begun()
    side.send([row(200)])
    side.cover(Progress(LSN(210), None, 0, SOURCE))
    covered = publisher.ack_of
    assert side.covered() is None
    side.send([row(300)])
    assert publisher.journal == [b"lsn=0/C8", b"lsn=0/12C"], "no row waits for that"
    covered.acked = covered.sent
    assert side.covered() is None
    assert publisher.journal[2:] == [("beside", (210, Lead(LSN(300), True)))], "it tells how far rows were by then"
    assert side.covered() is None, "it is not committed yet"
    publisher.is_done = True
    followed = side.covered()
    assert followed is not None
    assert followed[0].lsn == LSN(210)
    assert side.coverage is Coverage.AHEAD, "of the second row no progress is on its way"
    assert side.covered() is None, "told once"


def test_while_one_progress_is_on_its_way_no_other_overtakes_it(clock: Clock) -> None:
    side, publisher = begun()
    side.send([row(200)])
    side.cover(Progress(LSN(210), None, 0, SOURCE))
    first = publisher.ack_of
    side.send([row(300)])
    side.cover(Progress(LSN(310), None, 0, SOURCE))
    assert publisher.ack_of is first
    first.acked = first.sent
    side.covered()
    assert publisher.journal[-1] == ("beside", (210, Lead(LSN(300), True)))


def test_in_an_open_kafka_transaction_rows_go_into_it(clock: Clock) -> None:
    side, publisher = begun()
    publisher.is_open = True
    side.send([row(200)])
    side.cover(Progress(LSN(210), None, 0, SOURCE))
    assert coverage(side) is Coverage.IN_TRANSACTION
    assert publisher.journal == [("inside", b"lsn=0/C8")]
    side.commit(Progress(LSN(210), Position(LSN(300), 1), 0, SOURCE))
    publisher.is_open = False
    assert coverage(side) is Coverage.COVERED


def test_behind_an_emptied_topic_no_row_goes_out_before_its_progress(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was there to delete, so no Kafka transaction is open. A second TRUNCATE would delete what was sent."""
    monkeypatch.setattr(kafka_side, "publish_tombstones", lambda *_, **__: 0)
    side, publisher = begun()
    need = Empty(SimpleNamespace(topic="t", relation=SimpleNamespace(qualified_name="s.t")), b"", is_truncate=True)  # type: ignore[arg-type]  # a stand-in
    assert side.empty(need, commit=lambda: None, sign_of_life=lambda: None, stop=threading.Event())
    side.send([row(200)])
    assert publisher.journal == [("inside", b"lsn=0/C8")]
    side.commit(Progress(LSN(210), None, 0, SOURCE))
    publisher.journal.clear()
    publisher.is_open = False
    side.send([row(300)])
    assert publisher.journal == [b"lsn=0/12C"]


def test_after_an_ignored_truncate_no_row_goes_out_before_its_progress(clock: Clock) -> None:
    """The next start may be told to delete all keys, and the stream brings the TRUNCATE again: it took such a row."""
    side, publisher = begun(
        config=CONFIG.model_copy(update={"topics": CONFIG.topics.model_copy(update={"truncate": "ignore"})})
    )
    need = Empty(SimpleNamespace(topic="t", relation=SimpleNamespace(qualified_name="s.t")), b"", is_truncate=True)  # type: ignore[arg-type]  # a stand-in
    assert side.empty(need, commit=lambda: None, sign_of_life=lambda: None, stop=threading.Event())
    side.send([row(200)])
    assert publisher.journal == [("inside", b"lsn=0/C8")]


def test_a_commit_after_the_last_tombstone_does_not_let_rows_out(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """It covers what came before the TRUNCATE, and not the TRUNCATE."""

    def tombstones(*_: object, commit: Callable[[], None], **__: object) -> int:
        commit()
        return 50_000

    monkeypatch.setattr(kafka_side, "publish_tombstones", tombstones)
    side, publisher = begun()
    need = Empty(SimpleNamespace(topic="t", relation=SimpleNamespace(qualified_name="s.t")), b"", is_truncate=True)  # type: ignore[arg-type]  # a stand-in
    side.empty(need, commit=lambda: side.commit(RESUME), sign_of_life=lambda: None, stop=threading.Event())
    publisher.journal.clear()
    side.send([row(200)])
    assert publisher.journal == [("inside", b"lsn=0/C8")]


def test_a_bridge_that_was_silent_sends_nothing_before_it_has_proof(clock: Clock) -> None:
    side, publisher = begun()
    clock.now += 1.9
    side.send([row(200)])
    assert publisher.journal == [b"lsn=0/C8"]
    clock.now += 0.2
    publisher.is_fenced = True
    with pytest.raises(FencedError):
        side.send([row(300)])
    assert publisher.journal == [b"lsn=0/C8"]


def test_a_proof_that_took_too_long_is_none(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows went out with it, although another bridge may have taken over since: behind newer ones of that."""
    side, publisher = begun()

    def commit() -> None:
        clock.now += 5.0
        publisher.journal.append("commit")

    monkeypatch.setattr(publisher, "commit", commit)
    clock.now += 2.1
    side.send([row(300)])
    assert publisher.journal[1:] == ["commit", ("inside", b"lsn=0/12C")], "Kafka fences what is in a Kafka transaction"


def test_a_proof_is_as_old_as_the_beginning_of_what_proved_it(clock: Clock) -> None:
    """Rows are waited for, and taken back, by that."""
    side, publisher = begun()
    assert publisher.proved_at == clock.now
    side.cover(Progress(LSN(210), None, 0, SOURCE))
    side.covered()
    began_at = clock.now
    clock.now += 0.5
    publisher.is_done = True
    assert side.covered() is not None
    assert publisher.proved_at == began_at


def test_proof_repeats_the_newest_progress_and_covers_nothing_more(clock: Clock) -> None:
    side, publisher = begun()
    side.send([row(200)])
    clock.now += 3
    side.send([row(300)])
    assert publisher.journal == [b"lsn=0/C8", (100, Lead(LSN(200), True)), "commit", b"lsn=0/12C"]
    side.send([row(400)])
    assert publisher.journal[4:] == [b"lsn=0/190"]


def test_rows_that_kafka_does_not_take_end_the_session(clock: Clock) -> None:
    side, _ = begun()
    side.send([row(200)])
    side.cover(Progress(LSN(210), None, 0, SOURCE))
    clock.now += 2.4
    assert side.covered() is None
    clock.now += 0.2
    with pytest.raises(TopicUnavailable, match=r"2\.5 s"):
        side.covered()


def test_a_clean_end_says_that_nothing_is_ahead(clock: Clock) -> None:
    side, publisher = begun()
    side.send([row(200)])
    end = Progress(LSN(210), None, 0, SOURCE)
    side.commit(end)
    side.end(end)
    assert publisher.journal[-2:] == [(210, Lead(LSN(200), False)), "commit"]


def there(lsn: int) -> Repeats:
    topic, key, value, header, _ = row(lsn)
    return Repeats({(topic, 0): StoredRecord(topic, 0, 5, key, value, header)}, {topic: 1})


def test_what_is_there_already_is_passed_over_and_its_end_stays_on_record_until_then(clock: Clock) -> None:
    side, publisher = begun(there(300))
    side.send([row(200)])
    assert publisher.journal == []
    assert side.coverage is Coverage.AHEAD, "a progress has to follow all the same"
    side.commit(Progress(LSN(210), None, 0, SOURCE))
    side.end(Progress(LSN(210), None, 0, SOURCE))
    assert publisher.journal[-2] == (210, Lead(LSN(300), True)), "not at an end yet"
    side.commit(Progress(LSN(310), None, 0, SOURCE))
    side.end(Progress(LSN(310), None, 0, SOURCE))
    assert publisher.journal[-2][1].is_open is False


def test_the_transactional_bridge_that_follows_passes_it_over_too(clock: Clock) -> None:
    publisher = Publisher()
    publisher.is_open = True
    resume = Progress(LSN(100), None, 0, SOURCE, lead=Lead(LSN(250), True))
    side = KafkaSide(TRANSACTIONAL, publisher, SimpleNamespace(), SimpleNamespace(), resume, there(300))  # type: ignore[arg-type]  # a stand-in
    side.send([row(200)])
    side.commit(Progress(LSN(210), None, 0, SOURCE))
    side.send([row(300), row(400)])
    side.commit(Progress(LSN(410), None, 0, SOURCE))
    assert publisher.journal == [
        (210, Lead(LSN(300), True)),
        "commit",
        ("inside", b"lsn=0/190"),
        (410, Lead(ZERO, False)),
        "commit",
    ]


def test_a_bridge_that_was_never_idempotent_says_nothing_of_a_lead(clock: Clock) -> None:
    publisher = Publisher()
    side = KafkaSide(TRANSACTIONAL, publisher, SimpleNamespace(), SimpleNamespace(), RESUME, None)  # type: ignore[arg-type]  # a stand-in
    side.commit(Progress(LSN(210), None, 0, SOURCE))
    assert publisher.journal == [(210, None), "commit"]


def led_to(state: Coverage) -> tuple[KafkaSide, Publisher]:
    """A side that stands there."""
    side, publisher = begun()
    steps = {
        Coverage.COVERED: [],
        Coverage.AHEAD: [CoverageEvent.ROWS],
        Coverage.COVERING: [CoverageEvent.ROWS, CoverageEvent.COVER],
        Coverage.OUTRUN: [CoverageEvent.ROWS, CoverageEvent.COVER, CoverageEvent.ROWS],
        Coverage.IN_TRANSACTION: [CoverageEvent.RECORDS],
    }
    for event in steps[state]:
        bring_about(event, side, publisher)
    assert side.coverage is state
    return side, publisher


def bring_about(event: CoverageEvent, side: KafkaSide, publisher: Publisher) -> None:
    progress = Progress(LSN(210), None, 0, SOURCE)
    if event is CoverageEvent.ROWS:
        side.send([row(200)])
    elif event is CoverageEvent.RECORDS:
        publisher.produce_all([])
    elif event is CoverageEvent.COVER:
        side.cover(progress)
    elif event is CoverageEvent.COMMIT:
        side.commit(progress)
        publisher.is_open = False
    else:
        publisher.ack_of.acked = publisher.ack_of.sent
        assert side.covered() is None, "written"
        publisher.is_done = True
        assert side.covered() is not None


@pytest.mark.parametrize(
    ("state", "event"),
    [(state, event) for state, ways in TRANSITIONS.items() for event in ways],
    ids=lambda each: each.name,
)
def test_each_case_leads_where_the_table_says(state: Coverage, event: CoverageEvent, clock: Clock) -> None:
    side, publisher = led_to(state)
    bring_about(event, side, publisher)
    assert side.coverage is TRANSITIONS[state][event]


@pytest.mark.parametrize("state", [Coverage.COVERING, Coverage.OUTRUN, Coverage.IN_TRANSACTION])
def test_no_progress_is_drawn_up_where_the_table_has_none(state: Coverage, clock: Clock) -> None:
    side, publisher = led_to(state)
    before = list(publisher.journal)
    side.cover(Progress(LSN(310), None, 0, SOURCE))
    assert (side.coverage, publisher.journal) == (state, before)


def test_the_transactional_bridge_sends_no_row_at_once(clock: Clock) -> None:
    publisher = Publisher()
    side = KafkaSide(TRANSACTIONAL, publisher, SimpleNamespace(), SimpleNamespace(), RESUME, None)  # type: ignore[arg-type]  # a stand-in
    assert not side.send([row(200)])
    assert publisher.journal == [("inside", b"lsn=0/C8")]
    side.commit(Progress(LSN(210), None, 0, SOURCE))
    publisher.is_open = False
    side.end(Progress(LSN(210), None, 0, SOURCE))
    assert publisher.journal[1:] == [(210, None), "commit"], "nothing was ahead, so nothing is said at the end"
