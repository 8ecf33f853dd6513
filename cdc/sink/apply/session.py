"""Topic → replica, one session: it starts from what the replica stores, and ends when told to stop or on an error.

Theory of operation. The calling thread reads, finds cuts (``replay.cut``) and renders rows; one writer thread gives
them to the replica. At most one cut is under way: the replica works on it while the calling thread reads and renders
the next one. Whatever arrives in that time belongs to the next cut, so cuts grow with the load by themselves.

Definitions come first. The session reads all of ``__schemas`` before any row, and again before it spills rows; the end
of ``__schemas`` is part of every fence. So no row is ever applied with an outdated definition of its table.

Backfills have records in the progress topic, too. A table becomes exact at the cut that includes the record saying that
its topic is whole (``replay.loading``).

A table is not called exact if the topics' cleaner may have removed something that its cut needs (``replay.horizon``).
When the sink is too far behind to rule that out, it *catches up*: it still goes from cut to cut, but records no LSN at
which the tables equal the source. A cut that is not true is put off for a moment, in case a little more reading leads
to a true one. So readers of the replica do not notice a short pause.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import Any, Final, NamedTuple, TypeVar

import structlog

from cdc.base.compiled import language
from cdc.base.config import Config
from cdc.base.errors import ReplicaRefused
from cdc.base.lsn import LSN, ZERO
from cdc.base.waits import WAITS
from cdc.contract.backfill import is_backfill_key, parse_backfill
from cdc.contract.known_topic import named_topic, parse_known_topic
from cdc.contract.naming import progress_topic, schemas_topic
from cdc.contract.ports import (
    BeginAnew,
    CutStanding,
    Partition,
    PreparedRows,
    RecordReader,
    ReplicaTable,
    ReplicaWriter,
    StoredRecord,
    TopicFacts,
)
from cdc.contract.progress import parse_progress, stream_key
from cdc.contract.record import Progress, SourceIdentity, TableSchema
from cdc.contract.schema import parse_schema
from cdc.contract.table_states import IN_CUT
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.replay.backfills import Published, read_published
from cdc.kafka.replay.cut import Cut, CutBuffer, HeldBack
from cdc.kafka.replay.foreign import ForeignWatch
from cdc.kafka.replay.horizon import why_anew
from cdc.kafka.replay.loading import LoadingTopics
from cdc.sink.apply.cut_judge import CutJudge
from cdc.sink.apply.topics import MirroredTopics, RebuildOrder

MAX_RECORDS: Final = 30_000
MAX_BYTES: Final = 16 * 1024 * 1024
"""Limits of what waits in memory for a cut or a spill. While one such batch is applied, the next one is read."""

Answer = TypeVar("Answer")

RECORDS_PER_POLL: Final = 5_000
_POLL_S: Final = 0.1
_BUSY_POLL_S: Final = 0.01
"""Poll timeout while a cut is under way: its report waits no longer than this when no records arrive."""
_BRIDGE_STARTS_S: Final = 10.0
"""A bridge that was started at the same time has created its topics by then, even on a busy machine."""
_TOPIC_POLL_S: Final = 1.0

_REPLICA_REMEDY: Final = "check the replica's load and disk; cdc status shows who holds a lock there"

log = structlog.get_logger("cdc.sink")


class CutReport(NamedTuple):
    """A cut that the replica committed.

    Attributes:
        progress: where the replica stands now.
        is_true: the tables in the cut equal the source at ``progress``; when False, the sink is catching up.
        rows: upserts and deletes by topic.
        tables: every known replica table by topic.
        offsets: the next offset of each partition that was read, as the replica has them now.
    """

    progress: Progress
    is_true: bool
    rows: Mapping[str, int]
    tables: Mapping[str, ReplicaTable]
    offsets: Mapping[Partition, int]


class ReplicaJobs:
    """What a session hands over to the replica's thread: one job at a time, so that it reads on meanwhile.

    Args:
        thread: runs one job at a time.
        called: the replica's name in messages.
        on_cut: called after each commit of the replica.
    """

    def __init__(self, thread: Executor, called: str, on_cut: Callable[[CutReport], None]) -> None:
        self.called = called
        self._thread = thread
        self._on_cut = on_cut
        self._under_way: Future[CutReport | None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a job was handed over and is not settled."""
        return self._under_way is not None

    @property
    def is_done(self) -> bool:
        """Whether the job that is not settled has ended."""
        return self._under_way is not None and self._under_way.done()

    def hand_over(self, job: Callable[[], CutReport | None]) -> None:
        """Starts a job, once the one before is settled."""
        self.settle()

        def waited() -> CutReport | None:
            with WAITS.on("replica", f"{self.called} to take rows", _REPLICA_REMEDY):
                return job()

        self._under_way = self._thread.submit(waited)

    def settle(self) -> None:
        """Waits for the job under way, raises what it raised and reports its cut."""
        if self._under_way is None:
            return
        report = self._under_way.result()
        self._under_way = None
        if report is not None:
            self._on_cut(report)

    def abandon(self) -> None:
        """Waits for the job under way and ignores how it ends."""
        if self._under_way is not None:
            self._under_way.exception()


class MirrorSession:
    """One session of the sink, between two starts or errors.

    Args:
        config: the whole configuration.
        reader: a new reader, which reads nothing yet.
        replica: a new writer that holds the lock of the one sink.
        jobs: takes what is to be written.
        stop: ends the session after the cut under way.
        order: what the operator wants rebuilt.
    """

    def __init__(
        self,
        config: Config,
        *,
        reader: RecordReader,
        replica: ReplicaWriter[Any],
        jobs: ReplicaJobs,
        stop: threading.Event,
        order: RebuildOrder,
    ) -> None:
        self._kafka = config.kafka.client_options()
        self._progress_topic = progress_topic(config.name)
        self._schemas_topic = schemas_topic(config.name)
        self._stream_key = stream_key(config.source.slot)
        self._reader = reader
        self._replica = replica
        self._jobs = jobs
        self._stop = stop
        self._restored = replica.restore()
        self._start = self._restored.progress.lsn if self._restored.progress else ZERO
        self._buffer = CutBuffer(MAX_RECORDS, MAX_BYTES, self._start)
        self._source: SourceIdentity | None = None
        self._loading = LoadingTopics((), 0, ())
        self._order = order
        self._judge = CutJudge(reader, self._buffer, (self._progress_topic, 0), self._restored)
        self._topics = MirroredTopics(reader, replica, self._buffer, self._restored, {}, order)
        self._foreign = ForeignWatch()
        self._published_at = 0.0
        self._tables: dict[str, str] = {}
        self._told: set[str] = set()
        self._rows: Counter[str] = Counter()
        self._is_spilled = False
        self._held_at: LSN | None = None

    def run(self) -> None:
        """Mirrors until ``stop`` is set.

        Raises:
            TableRejected: the replica rejects rows of a table, which is then stopped.
            BeginAnew: start another session.
            CdcError: the supervisor decides by its class.
        """
        if not self._begin():
            return
        log.info("mirroring", tables=len(self._topics.watched), start=str(self._start), hot_path=language())
        while not self._stop.is_set():
            self._take(self._reader.poll(RECORDS_PER_POLL, _BUSY_POLL_S if self._jobs.is_busy else _POLL_S))
            if self._jobs.is_done:
                self._jobs.settle()
            self._topics.look()
            self._take_back()
            self._judge.ask()
            self._leave_out_what_holds_up()
            self._advance()
        self._jobs.settle()

    def _begin(self) -> bool:
        """Waits for the bridge's topics, learns every definition and assigns every partition; False if told to stop."""
        schemas = self._wait(lambda: self._reader.partitions(self._schemas_topic), self._schemas_topic)
        progress = self._wait(lambda: self._reader.partitions(self._progress_topic), self._progress_topic)
        if not schemas or not progress:
            return False
        published = self._wait(self._published, self._progress_topic)
        if published is None:
            return False
        newest = self._restored.progress or published.stream
        assert newest is not None
        self._source = newest.source
        progress_start = self._progress_start()
        if published.stream is not None:
            self._judge.published(self._published_at, published.stream)
        exact = [each.topic for each in self._replica.tables().values() if each.state in IN_CUT]
        self._loading = LoadingTopics(published.backfills.values(), progress_start, exact)
        self._topics = MirroredTopics(
            self._reader, self._replica, self._buffer, self._restored, published.topics, self._order
        )
        self._reader.add(dict.fromkeys(schemas, 0))
        self._buffer.watch(schemas, state=False)
        self._replica.meet_source(self._source)
        self._learn(self._read_schemas())
        if not self._stop.is_set():
            self._order.close(self._tables.values(), self._held())
        # Last of all: no cut may be found before the topics that it has to wait for are watched
        self._reader.add(dict.fromkeys(progress, progress_start))
        return not self._stop.is_set()

    def _progress_start(self) -> int:
        """Returns the offset to read the progress topic from: 0 if it is another topic than the stored offset's."""
        topic = self._progress_topic
        facts: TopicFacts | None = self._reader.look_at([topic]).get(topic)
        if facts is None:
            raise BeginAnew
        stored = {number: at for (name, number), at in self._restored.offsets.items() if name == topic}
        self._replica.know(topic, facts.topic_id)
        if why_anew(stored, self._restored.topic_ids.get(topic, ""), facts):
            return 0
        return stored.get(0, 0)

    def _take_back(self) -> None:
        """Ends the session when a lock that kept a table out is gone: the next session takes the table up again."""
        # Not after a spill: a new session would undo what was spilled and read the large transaction once more
        if not self._is_spilled and self._replica.may_return():
            self._jobs.settle()
            raise BeginAnew

    def _leave_out_what_holds_up(self) -> None:
        """Lets the cuts go on without a loading table whose first backfill brings more than the replica can take."""
        if not self._loading.topics:
            return
        if topics := self._buffer.holding_up(self._loading.topics, self._reader.positions()):
            self._jobs.settle()
            self._topics.leave_cut(topics, self._judge.caught_up_at)
            log.info("tables that load are left out of the cut until they are read to their end", topics=sorted(topics))

    def _advance(self) -> None:
        """Makes a cut if one is possible and the fence or full memory asks for it. Spills if memory stays full."""
        buffer, positions = self._buffer, self._reader.positions()
        if self._held_at not in (None, self._judge.published_at_most):  # more is published: what was ahead may fit now
            self._reader.hold(())
            self._held_at = None
        if not (buffer.is_full or buffer.is_fence_reached(positions)):
            return
        place = buffer.cut(positions, again=True)
        if place is not None:
            if joining := buffer.joining(place, positions):
                joining -= _doubtful(buffer.beyond(self._judge.published_at_most))
            if self._judge.is_of_use(place, joining):
                is_true = self._judge.is_true(place, joining)
                if buffer.is_full or is_true or self._judge.may_be_untrue(place):
                    self._cut(place, joining if is_true else frozenset(), is_true)
                    return
        if buffer.is_full:
            self._spill()

    def _spill(self) -> None:
        """Writes part of a transaction that is larger than memory. If nothing may be written yet, pauses reading."""
        self._leave_foreign()  # else a foreign record would keep all records after it in memory, and no cut would come
        if spilled := self._buffer.spill(self._judge.published_at_most):
            self._learn(self._read_schemas())
            batches = self._prepare(spilled)
            self._jobs.hand_over(lambda: self._replica.write(batches))
            self._is_spilled = True
        else:
            self._hold()

    def _hold(self) -> None:
        """Pauses partitions that would only fill memory: until the next cut or, if none is known, more progress."""
        buffer, published = self._buffer, self._judge.published_at_most
        self._reader.hold(buffer.ahead(published) if buffer.is_full else ())
        self._held_at = published if buffer.is_full and not buffer.knows_next else None

    def _cut(self, place: Cut, joining: Collection[str], is_true: bool) -> None:
        buffer = self._buffer
        if is_true:
            self._judge.refuse_set_back()
            self._topics.refuse_overdue(self._judge.caught_up_at, joining, self._judge.now())
        batches = self._prepare(buffer.take_cut(place))
        self._leave_foreign()
        self._hold()
        offsets = {**buffer.next_offsets(self._reader.positions()), (self._progress_topic, 0): place.offset}
        buffer.join(joining)
        self._judge.took(place, is_true)
        read_to = self._reader.positions()[self._progress_topic, 0]
        standing = CutStanding(
            is_true=is_true,
            loading=self._loading.at(place, read_to) | self._topics.unmet(place),
            outside=buffer.outside,
            joining=joining,
            caught_up_at=self._judge.caught_up_at,
            lacking=self._lacking(place.progress),
        )
        rows, self._rows = self._rows, Counter()
        self._is_spilled = False
        self._jobs.hand_over(lambda: self._write_cut(batches, place, offsets, rows, standing))

    def _lacking(self, progress: Progress) -> frozenset[str]:
        """Returns the topics that lack rows which the bridge has put aside. Their tables are not exact without them."""
        if not progress.quarantined:  # as ever but for a few rows: there may be thousands of tables
            return frozenset()
        lacking = dict(progress.quarantined)
        return frozenset(topic for topic, table in self._tables.items() if table in lacking)

    def _leave_foreign(self) -> None:
        """Leaves out records that the bridge cannot have written. Tables with such records are not exact."""
        published = self._judge.published_at_most
        held = self._buffer.beyond(published)
        # Doubtful topics leave the cut at once: it lacks their records after the doubtful one, whoever wrote that
        foreign = self._foreign.look(held, published, time.monotonic())
        if apart := (_doubtful(held) | {each.record.topic for each in foreign}) - self._buffer.outside:
            self._jobs.settle()
            self._topics.leave_cut(apart, self._judge.caught_up_at)
        for each in foreign:
            first, *others = self._buffer.set_apart(each, published)
            self._reader.again({(first.topic, first.partition): first.offset})
            log.error(
                "a record lies beyond everything that the bridge has published, so another program wrote it. The sink "
                "leaves it out. Its table is not exact until the bridge writes the key again",
                topic=first.topic,
                partition=first.partition,
                offset=first.offset,
                key=None if first.key is None else first.key.decode(errors="backslashreplace"),
                header=first.header.decode(errors="backslashreplace"),
                more=len(others),
                remedy="find the other writer (cdc topics lint) and stop it, then run cdc reconcile --repair",
            )

    def _write_cut(
        self,
        batches: Sequence[PreparedRows],
        place: Cut,
        offsets: Mapping[Partition, int],
        rows: Mapping[str, int],
        standing: CutStanding,
    ) -> CutReport:
        """Writes and commits a cut. Runs in the writer thread."""
        self._replica.write(batches)
        self._replica.commit(place.progress, offsets, standing)
        tables = dict(self._replica.tables())
        return CutReport(place.progress, standing.is_true, rows, tables, offsets)

    def _prepare(self, records: Mapping[str, Sequence[StoredRecord]]) -> list[PreparedRows]:
        batches = [self._replica.prepare(topic, of_topic) for topic, of_topic in records.items()]
        self._rows.update({batch.topic: len(batch) for batch in batches})
        return batches

    def _take(self, records: Sequence[StoredRecord]) -> None:
        if definitions := self._sort(records):
            self._learn(definitions)

    def _sort(self, records: Sequence[StoredRecord]) -> list[TableSchema]:
        """Puts rows into the buffer and notes progress. Returns definitions, because learning them may take time."""
        rows: list[StoredRecord] = []
        definitions: list[TableSchema] = []
        for record in records:
            if record.topic == self._schemas_topic:
                if record.value is not None:
                    definitions.append(parse_schema(record.value))
            elif record.topic == self._progress_topic:
                self._see(record)
            else:
                rows.append(record)
        self._buffer.add(self._topics.at_home(rows))
        self._judge.read()
        return definitions

    def _see(self, record: StoredRecord) -> None:
        if record.value is None:
            return
        if is_backfill_key(record.key):
            self._loading.saw(parse_backfill(record.value), record.offset)
        if (topic := named_topic(record.key)) is not None:
            self._topics.saw(topic, parse_known_topic(record.value), record.offset)
        if record.key != self._stream_key:
            return
        progress = parse_progress(record.value)
        self._judge.saw(progress, record.offset)
        assert self._source is not None
        if not _is_same_database(progress.source, self._source):
            raise ReplicaRefused(
                f"the replica mirrors {_named(self._source)}, but the topics now come from {_named(progress.source)}",
                remedy="use an empty replica (or another sink.schema, or view.store) and a new `name`",
            )
        if progress.partial is None:
            self._buffer.saw(Cut(progress, record.offset))

    def _read_schemas(self) -> list[TableSchema]:
        """Reads every definition published until now. Pauses the rows while it does."""
        definitions: list[TableSchema] = []
        mine = (self._schemas_topic, self._progress_topic)
        targets = {each: end for each, end in self._reader.fence().items() if each[0] == self._schemas_topic}
        if self._is_before(targets):  # only if needed: the client drops what it has fetched for a paused partition
            self._reader.hold([each for each in self._reader.positions() if each[0] not in mine])
        while self._is_before(targets) and not self._stop.is_set():
            definitions += self._sort(self._reader.poll(RECORDS_PER_POLL, _POLL_S))
        self._reader.hold(())
        return definitions

    def _is_before(self, targets: Mapping[Partition, int]) -> bool:
        positions = self._reader.positions()
        return any(positions[each] < end for each, end in targets.items())

    def _learn(self, definitions: Sequence[TableSchema]) -> None:
        """Gives definitions to the replica, and begins to read the topics of new tables."""
        if not definitions:
            return
        self._jobs.settle()
        with WAITS.on("replica", f"{self._jobs.called} to take a table's definition", _REPLICA_REMEDY):
            emptied = self._replica.learn(definitions)
        if emptied:
            # The bridge commits the record that says so before the definition: it lies before the end asked for now
            self._loading.begin_anew(
                emptied, self._reader.look_at([self._progress_topic])[self._progress_topic].ends[0]
            )
        self._tables.update({each.topic: each.qualified_name for each in definitions})
        active = set(self._replica.active())
        if not active.issuperset(self._topics.watched):
            raise BeginAnew  # a definition stopped a table whose rows may be in the buffer
        new = {each: self._tables[each] for each in active.difference(self._topics.watched)}
        self._topics.take_up(new, self._judge.now())
        self._judge.bound(self._topics.compaction_lag_s)
        for table in self._replica.tables().values():
            is_stopped = table.state == "stopped" and table.topic not in self._topics.watched
            if is_stopped and table.topic not in self._told:
                self._told.add(table.topic)
                log.error(
                    "table is stopped",
                    table=table.name,
                    topic=table.topic,
                    reason=table.reason,
                    remedy="run cdc status: it says what lets the table go on",
                )

    def _held(self) -> list[str]:
        """Returns ``namespace.table`` of tables that take no rows because of somebody's lock: they are not stopped."""
        active, tables = self._replica.active(), self._replica.tables()
        return [
            name
            for topic, name in self._tables.items()
            if topic not in active and topic in tables and tables[topic].state != "stopped"
        ]

    def _published(self) -> Published | None:
        """Returns what the progress topic holds; None while neither the topic nor the replica names the source."""
        # Before reading, because a mark must not be newer than what it speaks of
        self._published_at = self._judge.now()
        found = read_published(BrokerAdmin(self._kafka), self._progress_topic, self._stream_key)
        return found if found.stream is not None or self._restored.progress is not None else None

    def _wait(self, ask: Callable[[], Answer], topic: str) -> Answer | None:
        """Returns the first answer that is not empty; None when told to stop. A sink may start before its bridge."""
        if answer := ask():
            return answer
        log.info("waiting for the bridge to write a topic", topic=topic)
        warns_at = time.monotonic() + _BRIDGE_STARTS_S
        while not self._stop.wait(_TOPIC_POLL_S):
            if answer := ask():
                return answer
            if time.monotonic() >= warns_at:
                log.warning("the bridge has not written a topic yet", topic=topic, remedy="start the bridge: cdc run")
                warns_at = math.inf
        return None


def _named(source: SourceIdentity) -> str:
    return f"database {source.database_oid} of system {source.system_identifier}"


def _doubtful(held: Iterable[HeldBack]) -> frozenset[str]:
    """Returns topics in which an older record follows a newer one. The cut lacks it, whoever wrote the newer one."""
    return frozenset(each.record.topic for each in held if each.falls)


def _is_same_database(one: SourceIdentity, other: SourceIdentity) -> bool:
    """Returns whether both are one database. A failover changes nothing but the timeline, so that is not compared."""
    return (one.system_identifier, one.database_oid) == (other.system_identifier, other.database_oid)
