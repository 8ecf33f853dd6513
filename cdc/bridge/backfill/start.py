"""Puts a session's backfill together: what was left undone, what is new, and the threads that read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import psycopg

from cdc.base.config import Config
from cdc.base.lsn import LSN
from cdc.bridge.backfill.beside import BesideStream
from cdc.bridge.backfill.intake import NOT_CAPTURED, BackfillOrder, no_backfill, not_captured
from cdc.bridge.backfill.readers import ChunkReaders
from cdc.bridge.backfill.repair_work import Repairs
from cdc.bridge.backfill.requests import RequestBox
from cdc.bridge.backfill.rows import BackfillRowWriter, Ordinals
from cdc.bridge.backfill.stream_side import StreamSide
from cdc.bridge.backfill.sweep import Sweep
from cdc.bridge.backfill.work import Backfill
from cdc.bridge.capture.chunk import flush_wal
from cdc.bridge.capture.reread import current_snapshot
from cdc.bridge.encode import TableEncoder
from cdc.bridge.order.demand import Demand
from cdc.bridge.order.succession import Successions
from cdc.bridge.scope.captured import CapturedTables
from cdc.bridge.scope.topics import state_topic
from cdc.bridge.source.connect import source_errors
from cdc.bridge.source.table import TableInfo
from cdc.bridge.source.wal_end import wal_end
from cdc.contract.backfill import backfill_key, backfill_value
from cdc.contract.change import Relation
from cdc.contract.naming import progress_topic
from cdc.contract.progress import stream_key
from cdc.contract.record import BackfillOptions, BackfillProgress
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.publish.publisher import KafkaPublisher
from cdc.kafka.replay.backfills import Published, read_published
from cdc.kafka.replay.backlog import SinkBacklog
from cdc.kafka.replay.bounded import topic_ends


class BridgeSurroundings:
    """``Surroundings`` in one session of the bridge.

    Args:
        config: the whole configuration.
        sql: a connection to the source.
        registry: the session's tables.
        publisher: takes the records.
        beginnings: takes the encoder of a table that was read and whose topic the session must empty first.
        report: called with every progress that is written.
    """

    def __init__(
        self,
        config: Config,
        sql: psycopg.Connection[Any],
        registry: CapturedTables,
        publisher: KafkaPublisher,
        beginnings: list[TableEncoder],
        report: Callable[[BackfillProgress], None],
    ) -> None:
        self.config = config
        self.registry = registry
        self.admin = BrokerAdmin(config.kafka.client_options())
        self._backlog = SinkBacklog(self.admin, config.name)
        self.progress_topic = progress_topic(config.name)
        self._publisher = publisher
        self.produce = publisher.produce
        self.produce_all = publisher.produce_all
        self.bury = publisher.bury
        self.report = report
        self._sql = sql
        self._beginnings = beginnings
        self._known: Sequence[TableInfo] | None = None
        self._tables: dict[str, tuple[TableInfo, str]] = {}

    def tables(self) -> Mapping[str, tuple[TableInfo, str]]:
        """Returns the tables in scope; the mapping is made anew only when the registry has other tables."""
        if self.registry.tables is not self._known:
            self._known = known = self.registry.tables
            topics = (state_topic(self.config, each.namespace, each.name) for each in known)
            self._tables = {each.qualified_name: (each, topic) for each, topic in zip(known, topics, strict=True)}
        return self._tables

    def encoder(self, relation: Relation) -> TableEncoder | None:
        table = self.registry.chunk_encoder(relation)
        if table is None:
            return None
        if self.registry.new_beginning(table) is not None:
            if not self._beginnings:
                self._beginnings.append(table)
            return None
        self.registry.describe(table, self.produce)
        return table

    def give_up(self, topic: str, keys: Sequence[bytes], header: bytes) -> int:
        quarantine = self._publisher.quarantine
        dropped = [] if quarantine is None else quarantine.dropped(topic, keys, header)
        for record in dropped:
            self.produce(*record)
        return len(dropped)

    def note(self, key: bytes, value: bytes | None) -> None:
        self.produce(self.progress_topic, key, value, b"")

    def end_offsets(self, topic: str) -> tuple[int, ...]:
        return tuple(topic_ends(self.admin, topic).values())

    def ghosts(self, topic: str, below: tuple[int, ...]) -> Sweep:
        quarantine = self._publisher.quarantine
        return Sweep(self.admin, topic, below, () if quarantine is None else quarantine.keys(topic))

    def wal_end(self) -> LSN:
        return wal_end(self._sql)

    def flush_wal(self) -> None:
        flush_wal(self._sql)

    def is_sink_overtaken(self, topic: str) -> bool:
        return self.config.snapshot.wait_for_sink and self._backlog.is_long(topic)

    def sink_gets(self, rows: int) -> None:
        self._backlog.sends(rows)

    def running(self) -> frozenset[int]:
        """Returns the transactions that are running in the source.

        A snapshot names only those that are older than the newest one that is over. So one begins and ends before that.
        """
        with source_errors("asking which transactions are running"):
            self._sql.execute("SELECT pg_catalog.pg_current_xact_id()")
        return current_snapshot(self._sql).running


def start_backfill(around: BridgeSurroundings, stream: StreamSide, demands: Iterable[Demand]) -> BesideStream:
    """Start backfills and repairs. Tables without a backfill get one, as ``snapshot.mode`` says.

    Args:
        around: the session's surroundings.
        stream: the session's side of the stream.
        demands: what the session itself demands at its start.
    """
    config, successions = around.config, around.registry.successions
    # The ends first: what is written meanwhile is read twice, and counts once
    ends = topic_ends(around.admin, around.progress_topic)
    published = read_published(around.admin, around.progress_topic, stream_key(config.source.slot))

    records = _records(published, around, stream.complete_lsn)
    requests = RequestBox(around.admin, ends, published.requests, published.repairs)
    ordinals = _ordinals(published)
    rows = BackfillRowWriter(stream, ordinals, around)
    backfill = Backfill(records, _readers(config, config.snapshot.parallel), requests, stream, rows, around)
    tables = around.tables().values() if config.snapshot.mode != "never" else ()
    new = [each for each in tables if _is_new(*each, records, successions) or _is_withheld(around, each[0], records)]
    demanded = list(demands)
    # A transaction that is running may have changed a table before it joined, or be in the WAL before the slot's begin
    # and not visible yet, because it waits for a synchronous standby. The stream has neither
    stream.distrust(around.running() if new or demanded else ())
    _add_new(backfill, new, successions)
    for demand in demanded:
        backfill.demand(demand)
    return BesideStream(backfill, Repairs(requests.repairs, partial(_readers, config, 1), stream, ordinals, around))


def _ordinals(published: Published) -> Ordinals:
    ordinals = Ordinals()
    for stored in published.backfills.values():
        ordinals.learn(stored.progress.topic, stored.progress.seq)
    for outcome in published.outcomes:
        ordinals.learn(outcome.topic, outcome.seq)
    return ordinals


def _readers(config: Config, count: int) -> ChunkReaders:
    snapshot, source = config.snapshot, config.source
    return ChunkReaders(
        source.connection(),
        None if snapshot.dsn is None else snapshot.connection(),
        application_name=f"cdc {config.name} backfill",
        publication=source.publication,
        count=count,
    )


def _records(published: Published, around: BridgeSurroundings, lsn: LSN) -> dict[str, BackfillProgress]:
    """Returns the records that the last session left. Tables that are no longer captured get a new one: not whole."""
    records = {table: each.progress for table, each in published.backfills.items()}
    newest = around.registry.successions.newest
    names = {each.qualified_name: each.topic for each in newest if each.topic}
    never = [no_backfill(table, topic, lsn) for table, topic in names.items() if table not in records]
    for left in _left([*records.values(), *never], around.registry.tables):
        records[left.table] = left
        around.note(backfill_key(left.table), backfill_value(left))
    return records


def _left(records: Iterable[BackfillProgress], tables: Iterable[TableInfo]) -> list[BackfillProgress]:
    """Returns new records for tables that are no longer captured: if one comes back, its topic is not whole."""
    names = {table.qualified_name for table in tables}
    gone = (each for each in records if each.table not in names and each.reason != NOT_CAPTURED)
    return [not_captured(each) for each in gone]


def _add_new(backfill: Backfill, new: Iterable[tuple[TableInfo, str]], successions: Successions) -> None:
    for table, topic in new:
        options = BackfillOptions(sweep=successions.last(topic) is not None)
        backfill.add(table, topic, BackfillOrder("initial", options))


def _is_withheld(around: BridgeSurroundings, table: TableInfo, records: Mapping[str, BackfillProgress]) -> bool:
    """Whether the table is withheld until it is read, and nothing is under way that would read it."""
    record = records.get(table.qualified_name)
    is_withheld = around.registry.rows.withholds(table.namespace, table.name, table.qualified_name)
    return is_withheld and not (record is not None and record.is_open)


def _is_new(table: TableInfo, topic: str, records: Mapping[str, BackfillProgress], successions: Successions) -> bool:
    """Whether the table's rows have to be published: they never were, some were missed, or it is another table now."""
    record, last = records.get(table.qualified_name), successions.last(topic)
    if record is None or record.topic != topic or record.reason == NOT_CAPTURED:
        return True
    # An open backfill goes on anyway, and finds the new table's heaps
    return last is not None and last.relation_id not in (0, table.oid) and not record.is_open
