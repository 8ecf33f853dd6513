"""One attempt of the bridge, from connecting to streaming: everything is looked up anew, nothing is carried over.

The order matters: wait until the slot is free, so that a second bridge does not fence a healthy first one → fence
(``init_transactions`` aborts what a dead one left open) → read the stored progress → start the stream there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
import structlog

from cdc.acls import transactional_id
from cdc.app.backfill.beside import BesideStream
from cdc.app.backfill.start import start_backfill
from cdc.app.bridge import Bridge
from cdc.app.metering import BridgeMeter
from cdc.app.resume import Resumption, topics_of
from cdc.app.scope_watch import ScopeWatch
from cdc.app.slot_wait import wait_for_slot, waiting_application
from cdc.app.tables import TableRegistry
from cdc.app.topic_watch import TopicWatch
from cdc.app.translate import Counts, Translator
from cdc.app.truncate import publish_tombstones
from cdc.capture.connect import connect
from cdc.capture.copy_both import CopyBoth
from cdc.capture.membership import memberships
from cdc.capture.publication import ensure_publication, refuse_unfit
from cdc.capture.reread import current_snapshot, reread
from cdc.capture.slot import recent_xid
from cdc.capture.stream import WalStream
from cdc.change import Relation, Row
from cdc.config import Config
from cdc.encode.header import TRUNCATE, HeaderStamp
from cdc.encode.history import HistoryEncoder
from cdc.encode.naming import progress_topic, schemas_topic
from cdc.encode.progress import progress_value, stream_key
from cdc.encode.table import TableEncoder
from cdc.errors import SourceRefused, SourceUnavailable
from cdc.lsn import LSN
from cdc.order.demand import Demand
from cdc.order.succession import NewBeginning, Successions
from cdc.order.touched import TouchedKeys
from cdc.publish.history import HistoryPublisher
from cdc.publish.publisher import KafkaPublisher
from cdc.publish.topics import TopicAdmin, history_message_bytes
from cdc.record import Progress
from cdc.replay.definitions import read_definitions

_VISIBLE_POLL_S = 0.005

log = structlog.get_logger("cdc.bridge")


class BridgeSession:
    """One attempt.

    Args:
        config: the whole configuration.
        stop: ends waiting and streaming.
        scope: told which tables are streamed.
        works: called when streaming has begun.
        meter: metrics of the process.
        counts: kept over attempts.
    """

    def __init__(
        self,
        config: Config,
        stop: threading.Event,
        scope: ScopeWatch,
        works: Callable[[], None],
        meter: BridgeMeter,
        counts: Counts,
    ) -> None:
        self._config = config
        self._stop = stop
        self._scope = scope
        self._works = works
        self._meter = meter
        self._counts = counts
        self._kafka = config.kafka.client_options()
        self._progress_topic = progress_topic(config.name)
        self._progress_key = stream_key(config.source.slot)
        self._history: HistoryEncoder | None = None
        self._demands: list[Demand] = []
        self._sql: psycopg.Connection[Any] | None = None
        self._watch: TopicWatch | None = None
        self._backfill: BesideStream | None = None
        self._publisher: KafkaPublisher | None = None
        self._stream: WalStream | None = None

    def run(self) -> None:
        """Stream until ``stop`` is set.

        Raises:
            CdcError: the supervisor decides by its class.
        """
        try:
            self._run()
        finally:
            if self._publisher is not None and self._publisher.is_open:
                self._meter.aborted()
            for part in (self._watch, self._backfill, self._publisher, self._stream, self._sql):
                if part is not None:
                    part.close()

    def _run(self) -> None:
        config, source = self._config, self._config.source
        self._sql = sql = connect(source.connection(), application_name=f"cdc {config.name}")
        resumption = Resumption(config, sql)
        resumption.refuse()
        registry = TableRegistry(config, sql, TopicAdmin(self._kafka), self._scope.left_out)
        refuse_unfit(sql, name=source.publication, mode=source.publication_mode, tables=registry.tables)
        resumption.refuse_foreign(topics_of(config, registry.tables))
        registry.ensure_topics()
        if not self._free_slot(sql, resumption, registry):
            return  # it was not free at once: what was looked up is old
        self._publisher = publisher = self._new_publisher(registry)
        publisher.start()
        self._ensure_publication(
            sql, registry
        )  # not before: a bridge that waits must not alter what the active one reads
        registry.successions = Successions(read_definitions(self._kafka, schemas_topic(config.name)))
        registry.members = memberships(sql, source.publication, registry.tables)
        resume, demands = resumption.resume(topics_of(config, registry.tables), registry.members)
        self._demands += demands
        self._stream_on(sql, registry, publisher, resumption, resume)

    def _new_publisher(self, registry: TableRegistry) -> KafkaPublisher:
        topics, transactions = self._config.topics, transactional_id(self._config.name)
        if not topics.history:
            return KafkaPublisher(
                self._kafka, transactional_id=transactions, max_message_bytes=topics.max_message_bytes
            )
        self._history = HistoryEncoder(registry.histories)
        return HistoryPublisher(
            self._kafka,
            transactional_id=transactions,
            max_message_bytes=history_message_bytes(topics),
            encoder=self._history,
        )

    def _stream_on(
        self,
        sql: psycopg.Connection[Any],
        registry: TableRegistry,
        publisher: KafkaPublisher,
        resumption: Resumption,
        resume: Progress,
    ) -> None:
        config, source = self._config, self._config.source
        where = {"slot": source.slot, "start": str(resume.lsn), "partial": bool(resume.partial)}
        log.info("streaming", **where, tables=len(registry.tables))
        session = CopyBoth(source.connection(), application_name=f"cdc {config.name}")
        resumption.expect(session.identify())
        self._stream = stream = WalStream(session, resume.lsn, streaming=source.streaming)
        session.start(source.slot, source.publication, resume.lsn, streaming=source.streaming)
        touched = TouchedKeys()
        translator = Translator(
            produce=publisher.produce,
            table_for=lambda relation: self._table_for(registry, publisher, relation),
            reread=self._reread,
            truncate=self._truncate,
            empty=self._empty,
            meet=lambda relation: self._demands.extend(registry.meet(relation)),
            resume=resume,
            counts=self._counts,
            xid=recent_xid(sql),
            touched=touched,
            keep_old=None if self._history is None else self._history.keep_old,
        )
        self._translator = translator
        self._backfill = backfill = start_backfill(
            config,
            sql=sql,
            registry=registry,
            publisher=publisher,
            streamed=translator,
            touched=touched,
            demands=self._demands,
            commit=lambda: self._bridge.close_batch(),
            report=self._meter.backfill,
            begin_anew=lambda table: self._begin_anew_beside_the_stream(registry, table),
            running=lambda: current_snapshot(sql).running,
        )
        self._bridge = bridge = Bridge(
            stream=stream,
            translator=translator,
            backfill=backfill,
            snapshot=lambda: current_snapshot(sql),
            has_records=lambda: publisher.is_open,
            commit=self._commit,
            resume=resume,
            is_first=not resume.commit_ts or bool(self._demands),
            watch=self._watch_topics(resumption, registry, publisher),
            on_commit=self._meter.committed,
        )
        self._works()
        self._scope.serves(registry)
        self._run_bridge(bridge, resumption, session)

    def _run_bridge(self, bridge: Bridge, resumption: Resumption, session: CopyBoth) -> None:
        self._meter.streaming(True)
        try:
            bridge.run(self._stop)
        except SourceUnavailable as error:
            if (meaning := resumption.explain(error, session.backend_pid)) is not None:
                raise meaning from error
            raise
        finally:
            self._meter.streaming(False)

    def _ensure_publication(self, sql: psycopg.Connection[Any], registry: TableRegistry) -> None:
        source = self._config.source
        ensure_publication(sql, name=source.publication, mode=source.publication_mode, tables=registry.tables)

    def _free_slot(self, sql: psycopg.Connection[Any], resumption: Resumption, registry: TableRegistry) -> bool:
        """Whether nobody reads from the slot; if somebody does, wait for the end of that, and then say False."""

        def is_first_start() -> bool:
            first = resumption.is_first_start(topics_of(self._config, registry.tables))
            if first:
                self._ensure_publication(sql, registry)  # a slot must not begin before the publication that it reads
            if first and self._config.snapshot.mode == "never":
                self._warn_of_older_rows(registry)
            return first

        return wait_for_slot(
            sql,
            self._config.source.slot,
            self._stop,
            application_name=waiting_application(self._config.name),
            is_first_start=is_first_start,
            waiting=self._meter.waiting,
        )

    def _watch_topics(
        self, resumption: Resumption, registry: TableRegistry, publisher: KafkaPublisher
    ) -> Callable[[], None]:
        self._watch = watch = TopicWatch(
            self._kafka,
            progress_topic=self._progress_topic,
            tables=lambda: topics_of(self._config, registry.tables),
            recorded=resumption.recorded,
            produce=publisher.produce,
            heals=self._config.heals_gaps,
        )
        watch.record(resumption.seen)
        resumption.record_members(publisher.produce)
        return watch.look

    def _warn_of_older_rows(self, registry: TableRegistry) -> None:
        """The stream begins at the slot: a row from before it reaches its topic when it changes."""
        for table in registry.tables:
            if table.estimated_rows:
                log.warning(
                    "rows from before the slot are not published until they change",
                    table=table.qualified_name,
                    estimated_rows=table.estimated_rows,
                )

    def _commit(self, progress: Progress) -> None:
        assert self._publisher is not None
        self._publisher.produce(self._progress_topic, self._progress_key, progress_value(progress), b"")
        self._publisher.commit()

    def _table_for(self, registry: TableRegistry, publisher: KafkaPublisher, relation: Relation) -> TableEncoder | None:
        """The encoder of a relation. What its transaction changed is in the catalog only when that is visible."""
        assert self._sql is not None
        while not current_snapshot(self._sql).sees(self._translator.xid):
            self._wait_for_visibility()
        table = registry.encoder(relation)
        if table is None:
            return None
        beginning = self._new_beginning(registry, table)
        if beginning is not None:
            self._translator.begin_anew(table)
        if demand := registry.demand(table, beginning):
            self._demands.append(demand)
        registry.describe(table, publisher.produce)
        return table

    def _new_beginning(self, registry: TableRegistry, table: TableEncoder) -> NewBeginning | None:
        beginning = registry.new_beginning(table)
        if beginning is not None:
            name = table.relation.qualified_name
            log.warning("table begins anew: every key of its topic is deleted first", table=name, reason=beginning.why)
        return beginning

    def _begin_anew_beside_the_stream(self, registry: TableRegistry, table: TableEncoder) -> None:
        """Between transactions: rows were read from the table, and the stream has come to where they were read."""
        if self._new_beginning(registry, table) is not None:
            self._translator.settle()
            before = LSN(self._translator.complete_lsn - 1)  # as the backfill's rows that follow
            stamp = HeaderStamp(before, self._translator.xid, time.time_ns() // 1_000)
            self._empty(table, stamp.header(TRUNCATE, 0, table.fingerprint))

    def _wait_for_visibility(self) -> None:
        if self._stop.wait(_VISIBLE_POLL_S):
            raise SourceUnavailable("stopped while waiting for a commit to become visible")
        if self._stream is not None:
            self._stream.feedback_if_due()

    def _reread(
        self, table: TableEncoder, rows: Sequence[Row], xids: Sequence[int]
    ) -> Sequence[tuple[Row, bool] | None]:
        """Complete rows from the table as it is now."""
        assert self._sql is not None
        names = [column.name for column in table.relation.columns]
        places = sorted({place for row in rows for place in table.missing(row)})
        key_places = [names.index(name) for name in table.key_columns]
        keys = [tuple(cell for place in key_places if isinstance(cell := row[place], bytes)) for row in rows]
        columns = [names[place] for place in places]
        snapshot, found = reread(self._sql, table.relation, table.key_columns, columns, keys)
        while not all(map(snapshot.sees, xids)):
            self._wait_for_visibility()
            snapshot, found = reread(self._sql, table.relation, table.key_columns, columns, keys)
        answers: list[tuple[Row, bool] | None] = []
        for row, key, xid in zip(rows, keys, xids, strict=True):
            current = found.get(key)
            if current is None:
                answers.append(None)
            else:
                whole = table.fill_at(row, dict(zip(places, current.values, strict=True)))
                answers.append((whole, current.xmin != xid & 0xFFFFFFFF))
        return answers

    def _truncate(self, table: TableEncoder, header: bytes) -> None:
        """What ``topics.truncate`` says."""
        policy = self._config.topics.truncate
        if policy == "ignore":
            log.warning("TRUNCATE ignored, as topics.truncate says", table=table.relation.qualified_name)
            return
        if policy == "fail":
            raise SourceRefused(
                f"table {table.relation.qualified_name} was truncated, and topics.truncate is 'fail'",
                remedy="set topics.truncate to 'tombstone' (delete all its keys) or 'ignore' (keep them), then restart",
            )
        count = self._empty(table, header)
        log.info("TRUNCATE published", table=table.relation.qualified_name, tombstones=count)

    def _empty(self, table: TableEncoder, header: bytes) -> int:
        """Tombstones for every live key, in Kafka transactions of bounded size; how many."""
        assert self._publisher is not None
        assert self._stream is not None
        self._bridge.close_batch()
        return publish_tombstones(
            self._kafka,
            table.topic,
            header,
            publisher=self._publisher,
            commit=self._bridge.close_batch,
            sign_of_life=self._stream.feedback_if_due,
        )
