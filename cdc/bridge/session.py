"""One attempt of the bridge, from connecting to streaming. It looks everything up anew and inherits nothing.

The order matters:

1. Take the slot's lock, so that no bridge fences a healthy one.
2. Fence: ``init_transactions`` aborts what a dead bridge left open.
3. Read the stored progress, which nobody else can change any more.
4. Start the stream there, on the session that holds the lock.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import psycopg
import structlog

from cdc.base.compiled import language
from cdc.base.config import Config
from cdc.base.errors import (
    CdcError,
    FencedError,
    GapError,
    SourceLocked,
    SourceUnavailable,
    SourceUndecodable,
    TakenOver,
    TopicUnavailable,
)
from cdc.bridge.after_repeats import AfterRepeats
from cdc.bridge.backfill.beside import BesideStream
from cdc.bridge.backfill.start import BridgeSurroundings, start_backfill
from cdc.bridge.backfill.stream_side import StreamSide
from cdc.bridge.capture.copy_both import CopyBoth
from cdc.bridge.capture.stream import WalStream
from cdc.bridge.decoding import Decoding
from cdc.bridge.encode import TableEncoder
from cdc.bridge.kafka_side import KafkaSide
from cdc.bridge.late_rows import ask_again
from cdc.bridge.loop import Bridge
from cdc.bridge.metering import BridgeMeter
from cdc.bridge.order.counts import CountsByTable
from cdc.bridge.order.demand import Demand
from cdc.bridge.order.engine import Engine
from cdc.bridge.order.succession import Successions
from cdc.bridge.order.touched import TouchedKeys
from cdc.bridge.rereader import Rereader
from cdc.bridge.resume import Resumption
from cdc.bridge.scope.captured import CapturedTables
from cdc.bridge.scope_watch import ScopeWatch
from cdc.bridge.sides import LoopSides
from cdc.bridge.slot_wait import take_slot, waiting_application
from cdc.bridge.source.connect import LOOK_S, connect
from cdc.bridge.source.membership import memberships
from cdc.bridge.source.publication import ensure_publication, inspect_publication, refuse_unfit
from cdc.bridge.source.slot import recent_xid
from cdc.bridge.source.slot_lock import Holder, lock_holder
from cdc.bridge.source_side import SourceSide
from cdc.bridge.topic_watch import TopicWatch
from cdc.contract.cloud_events import CloudEvents
from cdc.contract.formats.opener import ValueOpener
from cdc.contract.history import HistoryEncoder
from cdc.contract.naming import quarantine_topic, schemas_topic
from cdc.contract.record import Progress
from cdc.kafka.acls import transactional_id
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.publish.publisher import KafkaPublisher
from cdc.kafka.publish.quarantine import Quarantine
from cdc.kafka.publish.row_producer import RowProducer
from cdc.kafka.publish.topics import TopicAdmin, history_message_bytes, state_message_bytes
from cdc.kafka.replay.client import TopicMissing
from cdc.kafka.replay.definitions import read_definitions, read_entries

_TIMES, _WITHIN_S = 5, 60.0
"""Two bridges of one name fence each other as often as they start, which takes them seconds. A late bridge repeats its
request a few times at most."""

log = structlog.get_logger("cdc.bridge")


class Fencings:
    """Tells a bridge that was late from one that has the same name, when this one was fenced while it held its slot.

    A bridge fences the others once it holds the slot. If its session ends while it waits for Kafka, for instance
    because PostgreSQL restarts, it fences whoever has got the slot in the meantime, perhaps again with each request
    that it has repeated. Then it notices, and waits. A bridge of the same name with a slot of its own never waits: it
    fences this one each time it is fenced itself.
    """

    def __init__(self) -> None:
        self._at: deque[float] = deque(maxlen=_TIMES)

    def met(self, error: FencedError) -> CdcError:
        """Returns what to raise: at first that another bridge took over, which is tried again."""
        self._at.append(time.monotonic())
        if len(self._at) < _TIMES or self._at[-1] - self._at[0] > _WITHIN_S:
            return _taken_over(error)
        return FencedError(
            f"{error.message}, although this one holds its slot: another bridge has the same name, and another slot",
            remedy="give each bridge a `name` of its own: topics, slot and transactional id are named after it",
        )


class KeptByProcess(NamedTuple):
    """What a process keeps over all of its attempts.

    Attributes:
        counts: counters by table.
        decoding: failures to decode.
        fencings: when this bridge was fenced although it held its slot.
    """

    counts: CountsByTable
    decoding: Decoding
    fencings: Fencings


class BridgeSession:
    """One attempt of the bridge.

    Args:
        config: the whole configuration.
        scope: is told which tables are streamed, and says when waiting and streaming end.
        works: called when streaming has begun, or the bridge waits for the slot: the attempt is a success.
        meter: the process's metrics.
        kept: what outlasts the attempt.
    """

    def __init__(
        self,
        config: Config,
        scope: ScopeWatch,
        works: Callable[[], None],
        meter: BridgeMeter,
        kept: KeptByProcess,
    ) -> None:
        self._config = config
        self._stop = scope.new_session()
        self._scope = scope
        self._works = works
        self._meter = meter
        self._counts, self._decoding, self._fencings = kept.counts, kept.decoding, kept.fencings
        self._kafka = config.kafka.client_options()
        self._admin = BrokerAdmin(self._kafka)
        self._sql: psycopg.Connection[Any] | None = None
        self._watch: TopicWatch | None = None
        self._backfill: BesideStream | None = None
        self._publisher: KafkaPublisher | None = None
        self._registry: CapturedTables | None = None
        self._walsender: CopyBoth | None = None
        self._holder: Holder | None = None
        self._stream: WalStream | None = None
        self._rereader: Rereader | None = None

    def run(self) -> None:
        """Stream until the scope changes or the process is to stop.

        Raises:
            CdcError: the supervisor decides by its class what to do.
        """
        try:
            self._run()
        except FencedError as error:
            raise (self._fencings.met(error) if self._has_slot() else _taken_over(error)) from error
        except TopicMissing as error:  # the next attempt creates it, and says what is missing or publishes it again
            raise TopicUnavailable(
                error.message, remedy="wait: the next attempt creates it, and says what that has cost"
            ) from error
        finally:
            if self._publisher is not None and self._publisher.is_open:
                self._meter.aborted()
            # The walsender after the publisher: whoever gets the slot then finds no open transaction of ours
            of_session = (self._watch, self._backfill, self._publisher, self._stream, self._walsender)
            for part in (*of_session, self._rereader, self._sql):
                if part is not None:
                    part.close()
            # The publisher knows all of its late rows once it is closed
            if self._registry is not None and self._publisher is not None and self._publisher.late:
                ask_again(self._config, self._registry.topics, self._publisher.late)

    def _run(self) -> None:
        config, source = self._config, self._config.source
        # A look-up that waits longer is repeated, so that the streaming thread can do other things meanwhile
        self._sql = sql = connect(source.connection(), application_name=f"cdc {config.name}", lock_timeout_s=LOOK_S)
        resumption = Resumption(config, self._admin, sql)
        resumption.refuse()
        self._registry = registry = CapturedTables(
            config,
            sql,
            TopicAdmin(self._admin),
            self._scope.told,
            resumption.before,
            refuse_foreign=resumption.refuse_foreign,
        )
        published = (*registry.tables, *registry.outboxes.tables)
        refuse_unfit(sql, name=source.publication, mode=source.publication_mode, tables=published)
        registry.ensure_topics()
        if (taken := self._take_slot(sql, resumption, registry)) is None:
            return  # this bridge waited for the slot, so what it looked up is old
        self._walsender, self._holder = walsender, _ = taken
        self._publisher = publisher = self._new_publisher(registry)
        publisher.start()
        walsender.hold(source.slot)  # starting may have waited for Kafka: check that the lock is still ours
        # Not earlier: a bridge that waits for the slot must not alter what the active one reads
        registry.successions = Successions(read_definitions(self._admin, schemas_topic(config.name)))
        self._ensure_publication(sql, registry)
        registry.read_conditions()
        published = (*registry.tables, *registry.outboxes.tables)
        registry.members = memberships(sql, source.publication, published)
        renewed = registry.rows.renewed(registry.tables)
        resume, demands = resumption.resume(registry.topics, registry.members, self._stop, renewed)
        if self._stop.is_set():
            return  # the wait for rows of the former bridge was cut short, so the topics may still change
        walsender.hold(source.slot)
        standing = self._scope.demands.take({each.qualified_name for each in registry.tables})
        demands = [*registry.outboxes.without(demands), *standing, *registry.replaced()]
        publisher.quarantine = _open_quarantine(config, self._admin, registry.topics, resume)
        self._start_stream(walsender, resume, registry)
        self._stream_on(sql, registry, publisher, resumption, resume, demands)

    def _start_stream(self, walsender: CopyBoth, resume: Progress, registry: CapturedTables) -> None:
        config, source = self._config, self._config.source
        try:
            options = {"streaming": self._decoding.streaming, "messages": bool(source.messages)}
            walsender.start(source.slot, source.publication, resume.lsn, **options)
        except GapError as error:
            if not config.heals_gaps:
                raise
            raise SourceUnavailable(
                error.message, remedy="wait: the next attempt closes the gap, as the configuration says"
            ) from error  # the slot was lost, or dropped, after ``resume`` had looked at it
        self._stream = WalStream(walsender, resume.lsn, streaming=self._decoding.streaming)
        where = {"slot": source.slot, "start": str(resume.lsn), "partial": bool(resume.partial)}
        where |= {} if config.delivery == "transactional" else {"delivery": config.delivery}
        log.info("streaming", **where, tables=len(registry.tables), hot_path=language())

    def _new_publisher(self, registry: CapturedTables) -> KafkaPublisher:
        topics = self._config.topics
        events = None
        if topics.cloudevents:
            events = CloudEvents(self._config.name, lambda topic: registry.successions.format_of(topic))
        rows = None
        if self._config.delivery == "idempotent":  # which refuses topics.history: the two would not be read together
            rows = RowProducer(self._kafka, max_message_bytes=topics.max_message_bytes, events=events)
        opener = ValueOpener((), again=lambda: registry.successions.definitions)
        return KafkaPublisher(
            self._kafka,
            transactional_id=transactional_id(self._config.name),
            max_message_bytes=history_message_bytes(topics) if topics.history else state_message_bytes(topics),
            envelopes=registry.envelopes,
            history=HistoryEncoder(registry.histories, opener.unenveloped) if topics.history else None,
            rows=rows,
            events=events,
        )

    def _stream_on(
        self,
        sql: psycopg.Connection[Any],
        registry: CapturedTables,
        publisher: KafkaPublisher,
        resumption: Resumption,
        resume: Progress,
        demands: Sequence[Demand],
    ) -> None:
        config, source = self._config, self._config.source
        assert self._stream is not None
        touched = TouchedKeys()
        engine = Engine(
            resume=resume,
            xid=recent_xid(sql),
            counts=self._counts,
            touched=touched,
            histories=registry.with_old_rows,
            messages=registry.outboxes.messages,
        )
        self._rereader = Rereader(
            source.connection(), source.publication, application_name=f"cdc {config.name} re-read"
        )
        beginnings: list[TableEncoder] = []
        around = BridgeSurroundings(config, sql, registry, publisher, beginnings, self._meter.backfill)
        self._backfill = backfill = start_backfill(around, StreamSide(engine, touched), demands)
        watch = self._watch_topics(resumption, registry, publisher)
        repeats = resumption.repeats
        bridge = Bridge(
            LoopSides(
                self._stream,
                SourceSide(sql, registry, self._rereader),
                KafkaSide(config, publisher, registry, watch, resume, repeats),
                backfill if repeats is None else AfterRepeats(backfill, engine, repeats.greatest),
            ),
            engine,
            resume,
            beginnings=beginnings,
            # With delivery: idempotent, the stored progress must say that rows may be ahead before the first one is.
            is_first=not resume.commit_ts or bool(demands) or config.delivery == "idempotent",
            on_commit=self._committed,
        )
        self._meter.follows(engine)
        self._scope.serves(registry)
        self._run_bridge(bridge, resumption, resume)

    def _committed(self, progress: Progress) -> None:
        self._meter.committed(progress)
        if self._publisher is not None and self._publisher.quarantine is not None:
            self._meter.aside(dict(self._publisher.quarantine.counts))
        # The first Kafka transaction puts the backfills that were demanded on record
        self._scope.demands.are_recorded()

    def _run_bridge(self, bridge: Bridge, resumption: Resumption, resume: Progress) -> None:
        self._works()
        self._meter.streaming(True)
        try:
            bridge.run(self._stop)
        except SourceUnavailable as error:
            assert self._holder is not None
            if (meaning := resumption.explain(error, self._holder.pid)) is not None:
                raise meaning from error
            if isinstance(error, SourceUndecodable):
                raise self._decoding.failed(error, resume) from error
            raise
        finally:
            self._meter.streaming(False)

    def _ensure_publication(self, sql: psycopg.Connection[Any], registry: CapturedTables) -> None:
        """Make or alter the publication as configured. Tables that somebody has locked join later.

        Raises:
            SourceLocked: the publication carries none of the tables yet, so there is nothing to stream.
        """
        source, outboxes = self._config.source, {each.qualified_name for each in registry.outboxes.tables}
        published = (*registry.rows.wanted(registry.tables), *registry.outboxes.tables)
        try:
            ensure_publication(sql, name=source.publication, mode=source.publication_mode, tables=published)
        except SourceLocked as error:
            state = inspect_publication(sql, source.publication)
            if state is None or not outboxes <= state.tables or not registry.keep(state.tables, error):
                raise

    def _take_slot(
        self, sql: psycopg.Connection[Any], resumption: Resumption, registry: CapturedTables
    ) -> tuple[CopyBoth, Holder] | None:
        """Returns a walsender that may read from the slot; None if this bridge had to wait for the slot."""
        config = self._config

        def is_first_start() -> bool:
            first = resumption.is_first_start(registry.topics)
            if first:
                self._ensure_publication(sql, registry)  # a slot must not begin before the publication that it reads
            if first and config.snapshot.mode == "never":
                self._warn_of_older_rows(registry)
            return first

        def open_session() -> CopyBoth:
            session = CopyBoth(config.source.connection(), application_name=f"cdc {config.name}")
            try:
                resumption.expect(session.identify())
            except BaseException:
                session.close()
                raise
            return session

        def waiting(pid: int | None) -> None:
            self._meter.waiting(pid)
            if pid is not None:
                self._works()  # waiting is all that a second bridge can do, so it is not a failed attempt

        return take_slot(
            sql,
            config.source.slot,
            self._stop,
            application_name=waiting_application(config.name),
            open_session=open_session,
            is_first_start=is_first_start,
            waiting=waiting,
        )

    def _has_slot(self) -> bool:
        """Whether the server still has the session that holds the slot; False if the server does not answer."""
        source = self._config.source
        try:
            with connect(
                source.connection(), application_name=f"cdc {self._config.name}", lock_timeout_s=LOOK_S
            ) as sql:
                return self._holder is not None and lock_holder(sql, source.slot) == self._holder
        except CdcError:
            return False  # a bridge that took over and one of the same name look alike now; the next attempt will know

    def _watch_topics(self, resumption: Resumption, registry: CapturedTables, publisher: KafkaPublisher) -> TopicWatch:
        self._watch = watch = TopicWatch(self._config, self._admin, registry, resumption.recorded, publisher.produce)
        watch.record(resumption.seen)
        resumption.record_members(publisher.produce)
        return watch

    def _warn_of_older_rows(self, registry: CapturedTables) -> None:
        """Warn that rows from before the slot reach their topics only when they change."""
        for table in registry.tables:
            if table.estimated_rows:
                log.warning(
                    "rows from before the slot are not published until they change",
                    table=table.qualified_name,
                    estimated_rows=table.estimated_rows,
                    remedy="cdc backfill publishes them; snapshot.mode: initial does so by itself",
                )


def _taken_over(error: FencedError) -> TakenOver:
    return TakenOver(
        error.message,
        remedy="leave this bridge waiting: it takes over when the other one ends; or stop one of the two",
    )


def _open_quarantine(
    config: Config, admin: BrokerAdmin, topics: Collection[str], resume: Progress
) -> Quarantine | None:
    """Returns the quarantine of a bridge that has fenced the others; None if no row is in it, and none ever goes there.

    Args:
        config: the whole configuration.
        admin: asks the brokers.
        topics: the bridge's topics.
        resume: the stored progress.

    Raises:
        CdcError: as for ``read_entries``.
    """
    topic, budgets = quarantine_topic(config.name), config.source.quarantine
    # The stored progress counts the keys in quarantine. Without any, nobody needs a right to read that topic.
    if resume.commit_ts and not budgets and not resume.quarantined:
        return None
    entries = read_entries(admin, topic)
    if not entries and not budgets and not resume.quarantined:
        return None
    quarantine = Quarantine(topic, {table: each.budget for table, each in budgets.items()}, entries)
    quarantine.warn_of_strangers(topics)
    return quarantine
