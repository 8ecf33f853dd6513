"""Puts a session's backfill together: what was left undone, what is new, and the threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import psycopg

from cdc.backfill.beside import BesideStream
from cdc.backfill.job import NOT_CAPTURED, Asked, not_captured
from cdc.backfill.readers import ChunkReaders
from cdc.backfill.repair_work import Repairs
from cdc.backfill.requests import RequestBox, ends_of
from cdc.backfill.rows import Ordinals
from cdc.backfill.surroundings import Streamed, Surroundings
from cdc.backfill.sweep import Sweep
from cdc.backfill.work import Backfill
from cdc.capture.chunk import flush_wal
from cdc.change import Relation
from cdc.config import Config
from cdc.contract.backfill import backfill_key, backfill_value
from cdc.contract.naming import progress_topic
from cdc.contract.progress import stream_key
from cdc.encode.table import TableEncoder
from cdc.order.demand import Demand
from cdc.order.succession import Successions
from cdc.order.touched import TouchedKeys
from cdc.publish.publisher import KafkaPublisher
from cdc.record import BackfillOptions, BackfillProgress
from cdc.replay.backfills import Published, read_published
from cdc.scope.captured import CapturedTables, Produce
from cdc.scope.topics import state_topic
from cdc.source.table import TableInfo
from cdc.source.wal_end import wal_end


def start_backfill(
    config: Config,
    *,
    sql: psycopg.Connection[Any],
    registry: CapturedTables,
    publisher: KafkaPublisher,
    streamed: Streamed,
    touched: TouchedKeys,
    demands: Iterable[Demand],
    commit: Callable[[], None],
    report: Callable[[BackfillProgress], None],
    begins_anew: Callable[[TableEncoder], bool],
    running: Callable[[], Iterable[int]],
) -> BesideStream:
    """The backfill and the repairs of one session, with a table for each that has none yet, as ``snapshot.mode`` says.

    Args:
        registry, publisher, streamed, touched: the session's tables, records, order engine, and what that notes down.
        demands: what the session itself asks for at its start.
        commit: closes the Kafka transaction.
        report: told of every progress that is written.
        begins_anew: told of each definition; whether the topic has to be emptied first, which the session then does.
        running: transactions under way in the source: what they wrote before a table joined is not in the stream.
    """
    options, topic = config.kafka.client_options(), progress_topic(config.name)
    ends = ends_of(options, topic)
    published = read_published(options, topic, stream_key(config.source.slot))

    tables = _tables(config, registry)
    records = _records(published, registry, topic, publisher.produce)
    around = Surroundings(
        tables=tables,
        end_offsets=lambda name: tuple(ends_of(options, name).values()),
        encoder=partial(_encoder, registry, begins_anew, publisher.produce),
        produce=publisher.produce,
        bury=publisher.bury,
        commit=commit,
        wal_end=lambda: wal_end(sql),
        flush_wal=lambda: flush_wal(sql),
        report=report,
        sweep=lambda name, below: Sweep(options, name, below),
    )
    requests = RequestBox(options, ends, published.requests, published.repairs)
    ordinals, readers = _ordinals(published), partial(_readers, config)
    backfill = Backfill(
        records, readers(config.snapshot.parallel), requests, touched, streamed, ordinals, topic, around
    )
    if config.snapshot.mode != "never":
        new = [each for each in tables().values() if _is_new(*each, records, registry.successions)]
        streamed.distrust(running() if new else ())
        _add_new(backfill, new, registry.successions)
    for demand in demands:
        backfill.demand(demand)
    repairs = Repairs(requests.repairs, lambda: readers(1), touched, streamed, ordinals, topic, around)
    return BesideStream(backfill, repairs)


def _encoder(
    registry: CapturedTables, begins_anew: Callable[[TableEncoder], bool], produce: Produce, relation: Relation
) -> TableEncoder | None:
    """See ``Surroundings.encoder``."""
    table = registry.chunk_encoder(relation)
    if table is None or begins_anew(table):
        return None
    registry.describe(table, produce)
    return table


def _ordinals(published: Published) -> Ordinals:
    ordinals = Ordinals()
    for stored in published.backfills.values():
        ordinals.learn(stored.progress.topic, stored.progress.seq)
    for outcome in published.outcomes:
        ordinals.learn(outcome.topic, outcome.seq)
    return ordinals


def _tables(config: Config, registry: CapturedTables) -> Callable[[], Mapping[str, tuple[TableInfo, str]]]:
    """See ``Surroundings.tables``; put together again only when the registry's tables are others."""
    known: Sequence[TableInfo] | None = None
    found: dict[str, tuple[TableInfo, str]] = {}

    def tables() -> Mapping[str, tuple[TableInfo, str]]:
        nonlocal known, found
        if registry.tables is not known:
            known = registry.tables
            found = {each.qualified_name: (each, state_topic(config, each.namespace, each.name)) for each in known}
        return found

    return tables


def _readers(config: Config, count: int) -> ChunkReaders:
    snapshot, source = config.snapshot, config.source
    return ChunkReaders(
        source.connection(),
        None if snapshot.dsn is None else snapshot.connection(),
        application_name=f"cdc {config.name} backfill",
        publication=source.publication,
        count=count,
    )


def _records(
    published: Published, registry: CapturedTables, topic: str, produce: Callable[[str, bytes, bytes, bytes], None]
) -> dict[str, BackfillProgress]:
    """What the last session left; those of tables that are not captured any more are written anew, as not whole."""
    records = {table: each.progress for table, each in published.backfills.items()}
    for left in _left(records.values(), registry.tables):
        records[left.table] = left
        produce(topic, backfill_key(left.table), backfill_value(left), b"")
    return records


def _left(records: Iterable[BackfillProgress], tables: Iterable[TableInfo]) -> list[BackfillProgress]:
    """Records of tables that are not captured any more, as they should be: should one come back, it is not whole."""
    names = {table.qualified_name for table in tables}
    gone = (each for each in records if each.table not in names and each.reason != NOT_CAPTURED)
    return [not_captured(each) for each in gone]


def _add_new(backfill: Backfill, new: Iterable[tuple[TableInfo, str]], successions: Successions) -> None:
    for table, topic in new:
        options = BackfillOptions(sweep=successions.last(topic) is not None)
        backfill.add(table, topic, Asked("initial", options))


def _is_new(table: TableInfo, topic: str, records: Mapping[str, BackfillProgress], successions: Successions) -> bool:
    """Whether the table's rows have to be published: never done, missed something, or it is another table now."""
    record, last = records.get(table.qualified_name), successions.last(topic)
    if record is None or record.topic != topic or record.reason == NOT_CAPTURED:
        return True
    return last is not None and last.relation_id not in (0, table.oid) and not record.is_open
