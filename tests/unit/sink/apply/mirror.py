"""One session of the sink over topics that are lists, with a replica that keeps a journal, and a clock of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from cdc.base.config import Config
from cdc.base.lsn import LSN
from cdc.contract.backfill import backfill_key, backfill_value
from cdc.contract.header import HeaderStamp
from cdc.contract.known_topic import KnownTopic, known_topic_key, known_topic_value
from cdc.contract.ports import CutStanding, Partition, ReplicaTable, Restored, StoredRecord, TopicFacts
from cdc.contract.progress import progress_value, stream_key
from cdc.contract.record import (
    BackfillProgress,
    Lead,
    Position,
    Progress,
    SchemaColumn,
    SourceIdentity,
    TableSchema,
)
from cdc.contract.schema import schema_key, schema_value
from cdc.kafka.replay.backfills import Published, keep, published
from cdc.sink.apply import cut_judge, session, topics
from cdc.sink.apply.session import CutReport, MirrorSession, ReplicaJobs
from cdc.sink.apply.topics import RebuildOrder

CONFIG = Config.model_validate({"name": "shop", "kafka": {"bootstrap": "kafka:1"}})
PROGRESS, SCHEMAS, TOPIC, OTHER = "shop.__progress", "shop.__schemas", "shop.public.t", "shop.public.u"
STREAM = stream_key(CONFIG.source.slot)
SOURCE = SourceIdentity("7", 1, 5)
NOTHING = Restored(None, {}, {}, 0.0, {})
FACTS = TopicFacts("id", (0,), (0,), 3_600.0, 86_400.0)
NOW = 1_700_000_000.0


def schema(topic: str = TOPIC) -> TableSchema:
    """Returns the definition of the table of a topic."""
    name = topic.rpartition(".")[2]
    return TableSchema(f"{name:0>16}", "public", name, topic, ("id",), (SchemaColumn("id", "integer"),))


def at(lsn: int, lead: Lead | None = None, partial: Position | None = None) -> Progress:
    """Returns a progress."""
    return Progress(LSN(lsn), partial, 0, SOURCE, (), lead)


def backfill(*, whole: bool, lsn: int = 1, topic: str = TOPIC) -> BackfillProgress:
    """Returns how far the first backfill of a topic's table is."""
    table = f"public.{topic.rpartition('.')[2]}"
    state: Any = "done" if whole else "running"
    return BackfillProgress(
        table, topic, "r", state, "initial", whole, None, None, False, (), (), 0, 0, 0, 0, LSN(lsn), 0, 0
    )


class Batch(NamedTuple):
    """Rows in the form of this replica."""

    topic: str
    rows: tuple[tuple[bytes | None, bytes | None], ...]

    def __len__(self) -> int:
        return len(self.rows)


class Commit(NamedTuple):
    """A cut in the journal."""

    lsn: int
    offsets: Mapping[Partition, int]
    standing: CutStanding


class Topics:
    """The topics, as a ``RecordReader``. Each time that nothing is left to read, the next of ``events`` happens.

    Attributes:
        facts: what the brokers say of a topic beside its ends.
        events: what happens one after the other while the session reads on; then it is told to stop.
        held: what is paused.
        holds: all that was ever paused.
        starts: where the session began to read each partition.
        asked: the topics of each fence.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.logs: dict[Partition, list[StoredRecord]] = {(PROGRESS, 0): [], (SCHEMAS, 0): []}
        self.facts: dict[str, TopicFacts] = {}
        self.events: list[Callable[[], object]] = []
        self.stop = threading.Event()
        self.at: dict[Partition, int] = {}
        self.held: frozenset[Partition] = frozenset()
        self.holds: list[frozenset[Partition]] = []
        self.starts: dict[Partition, int] = {}
        self.asked: list[Collection[str] | None] = []
        self.batch = 1_000

    def create(self, topic: str = TOPIC, count: int = 1) -> None:
        """Create a topic, and write its definition."""
        self.logs |= {(topic, number): [] for number in range(count)}
        self.define(topic)

    def define(self, topic: str = TOPIC) -> None:
        """Write the definition of a topic's table."""
        self.write(SCHEMAS, schema_key(schema(topic).fingerprint), schema_value(schema(topic)))

    def write(
        self, topic: str, key: bytes | None, value: bytes | None, header: bytes = b"", number: int = 0
    ) -> StoredRecord:
        """Write a record; returns it."""
        log = self.logs[topic, number]
        log.append(StoredRecord(topic, number, len(log), key, value, header))
        return log[-1]

    def row(
        self, lsn: int, key: bytes = b"k", value: bytes | None = b"{}", topic: str = TOPIC, number: int = 0
    ) -> None:
        """Write a row."""
        self.write(topic, key, value, HeaderStamp(LSN(lsn), 7, 0).header("u", 1, "0" * 16), number)

    def progress(self, progress: Progress) -> None:
        """Write the stream's progress."""
        self.write(PROGRESS, STREAM, progress_value(progress))

    def backfill(self, progress: BackfillProgress) -> None:
        """Write how far a backfill is."""
        self.write(PROGRESS, backfill_key(progress.table), backfill_value(progress))

    def known(self, topic: str, known: KnownTopic) -> None:
        """Write how the bridge knows a topic."""
        self.write(PROGRESS, known_topic_key(topic), known_topic_value(known))

    def published(self, _admin: object, topic: str, key: bytes) -> Published:
        """Returns what ``read_published`` does."""
        assert (topic, key) == (PROGRESS, STREAM)
        newest: dict[bytes, tuple[bytes, int]] = {}
        for each in self.logs[PROGRESS, 0]:
            keep(newest, each)
        return published(newest, STREAM)

    def partitions(self, topic: str) -> Sequence[Partition]:
        return [each for each in self.logs if each[0] == topic]

    def look_at(self, names: Collection[str]) -> Mapping[str, TopicFacts]:
        found = {}
        for name in names:
            if partitions := self.partitions(name):
                facts = self.facts.get(name, FACTS)
                ends = tuple(len(self.logs[each]) for each in partitions)
                low = facts.low if len(facts.low) == len(ends) else (0,) * len(ends)
                found[name] = facts._replace(ends=ends, low=low)
        return found

    def ids(self, names: Collection[str]) -> Mapping[str, str]:
        return {name: f"{each.topic_id}/{len(each.ends)}" for name, each in self.look_at(names).items()}

    def add(self, starts: Mapping[Partition, int]) -> None:
        self.at |= starts
        self.starts |= starts

    def again(self, starts: Mapping[Partition, int]) -> None:
        self.at |= starts

    def poll(self, max_records: int, timeout_s: float) -> list[StoredRecord]:
        for each, position in sorted(self.at.items(), key=lambda place: place[1]):
            log = self.logs[each]
            if position < len(log) and each not in self.held:
                self.at[each] = min(position + min(self.batch, max_records), len(log))
                self.clock.seconds += 0.001
                return log[position : self.at[each]]
        self.clock.seconds += timeout_s
        if self.clock.is_quiet():
            if self.events:
                self.events.pop(0)()
            else:
                self.stop.set()
        return []

    def positions(self) -> Mapping[Partition, int]:
        return self.at

    def fence(self, marked: Collection[str] | None = None) -> Mapping[Partition, int]:
        self.asked.append(marked)
        return {each: len(self.logs[each]) for each in self.at}

    def hold(self, partitions: Collection[Partition]) -> None:
        self.held = frozenset(partitions)
        self.holds.append(self.held)


class Clock:
    """Goes with each poll. An event happens after a few polls that brought nothing."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.patience = 30
        self._quiet = 0

    def time(self) -> float:
        return NOW + self.seconds

    def monotonic(self) -> float:
        return 50.0 + self.seconds

    def is_quiet(self) -> bool:
        """Returns whether it is time for the next event."""
        self._quiet += 1
        return self._quiet % self.patience == 0


class Replica:
    """Takes everything, and keeps a journal of batches and cuts.

    Attributes:
        restored: what it remembers.
        beginnings: how a topic's table takes rows, ``joined`` unless it is here.
        begun: what it was told of each topic that began.
        left: topics that left the cut.
        journal: batches, and commits between them.
        emptied: topics that the next definitions empty.
    """

    called = "the replica"

    def __init__(self, restored: Restored = NOTHING) -> None:
        self.restored = restored
        self.beginnings: dict[str, Any] = {}
        self.begun: dict[str, dict[str, Any]] = {}
        self.left: list[str] = []
        self.journal: list[Batch | Commit] = []
        self.emptied: Collection[str] = ()
        self.known: dict[str, str] = {}
        self.state: dict[str, ReplicaTable] = {}
        self.stopped: dict[str, str] = {}
        self.source: SourceIdentity | None = None
        self.returns = False

    @property
    def commits(self) -> list[Commit]:
        """The cuts that were made."""
        return [each for each in self.journal if isinstance(each, Commit)]

    def rows(self, topic: str = TOPIC) -> list[tuple[bytes | None, bytes | None]]:
        """Returns the rows that were written."""
        return [row for each in self.journal if isinstance(each, Batch) and each.topic == topic for row in each.rows]

    def restore(self) -> Restored:
        return self.restored

    def learn(self, schemas: Sequence[TableSchema]) -> Collection[str]:
        assert self.source is not None
        for each in schemas:
            self.state.setdefault(each.topic, ReplicaTable(each.topic, each.qualified_name, "loading", None, 0))
        emptied, self.emptied = self.emptied, ()
        return emptied

    def begin(self, topic: str, topic_id: str, **facts: Any) -> Any:
        self.begun[topic] = {"topic_id": topic_id, **facts}
        found = self.beginnings.get(topic, "joined")
        if found == "stopped":
            self.stop_topic(topic, "stopped")
        return found

    def leave_cut(self, topic: str) -> None:
        self.left.append(topic)

    def know(self, topic: str, topic_id: str) -> None:
        self.known[topic] = topic_id

    def stop_topic(self, topic: str, reason: str) -> None:
        self.stopped[topic] = reason
        self.state[topic] = self.state[topic]._replace(state="stopped", reason=reason)

    def tables(self) -> Mapping[str, ReplicaTable]:
        return self.state

    def active(self) -> Collection[str]:
        return [topic for topic, each in self.state.items() if each.state != "stopped" and each.reason != "held"]

    def may_return(self) -> bool:
        return self.returns

    def meet_source(self, source: SourceIdentity) -> None:
        self.source = source

    def prepare(self, topic: str, records: Sequence[StoredRecord]) -> Batch:
        return Batch(topic, tuple((each.key, each.value) for each in records))

    def write(self, batches: Sequence[Batch]) -> None:
        self.journal += batches

    def commit(self, progress: Progress, offsets: Mapping[Partition, int], standing: CutStanding) -> None:
        self.journal.append(Commit(progress.lsn, dict(offsets), standing))


class AtOnce:
    """A thread that has always done its job already."""

    def submit(self, job: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(job())
        except Exception as error:  # noqa: BLE001 - as an executor does
            future.set_exception(error)
        return future


class Mirror:
    """A session with all around it.

    Attributes:
        reports: what was told of each cut.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = Clock()
        self.topics = Topics(self.clock)
        self.replica = Replica()
        self.order = RebuildOrder()
        self.reports: list[CutReport] = []
        self.stop = self.topics.stop
        for module in (cut_judge, session, topics):
            monkeypatch.setattr(module, "time", self.clock)
        monkeypatch.setattr(session, "BrokerAdmin", lambda _: SimpleNamespace())
        monkeypatch.setattr(session, "read_published", self.topics.published)
        monkeypatch.setattr(session, "MAX_RECORDS", 50)

    def run(self) -> None:
        """Run a session until all events have happened."""
        self.stop.clear()
        executor: Any = AtOnce()
        reader: Any = self.topics
        replica: Any = self.replica
        jobs = ReplicaJobs(executor, self.replica.called, self.reports.append)
        MirrorSession(CONFIG, reader=reader, replica=replica, jobs=jobs, stop=self.stop, order=self.order).run()

    def restart(self, **changes: Any) -> None:
        """Let the next session find what the replica remembers of its last cut, and these changes of that."""
        last = self.replica.commits[-1]
        ids = {topic: "id" for topic, _ in last.offsets}
        stored = Restored(at(last.lsn), last.offsets, ids | self.replica.known, last.standing.caught_up_at, {})
        self.replica.restored = stored._replace(**changes)
        self.replica.journal.clear()
        self.topics.at.clear()
        self.topics.held = frozenset()
        self.reports.clear()


def of(progress: BackfillProgress, **changes: Any) -> BackfillProgress:
    """Returns the progress with changes."""
    return replace(progress, **changes)
