"""Puts a session's backfill together: what was left undone, what is new, and the threads."""

from __future__ import annotations

from collections.abc import Callable, Collection

from cdc.app.backfill.demand import Demand
from cdc.app.backfill.readers import ChunkReaders
from cdc.app.backfill.requests import RequestBox, ends_of
from cdc.app.backfill.surroundings import Streamed, Surroundings
from cdc.app.backfill.sweep import Sweep
from cdc.app.backfill.touched import TouchedKeys
from cdc.app.backfill.work import Backfill
from cdc.app.tables import TableRegistry, state_topic
from cdc.capture.table import TableInfo
from cdc.change import Relation
from cdc.config import Config
from cdc.encode.naming import progress_topic
from cdc.encode.progress import stream_key
from cdc.encode.table import TableEncoder
from cdc.publish.publisher import KafkaPublisher
from cdc.record import BackfillProgress
from cdc.replay.backfills import read_published


def start_backfill(
    config: Config,
    *,
    registry: TableRegistry,
    publisher: KafkaPublisher,
    streamed: Streamed,
    touched: TouchedKeys,
    demands: list[Demand],
    commit: Callable[[], None],
    report: Callable[[BackfillProgress], None],
) -> Backfill:
    """The backfill of one session, with a table for each that has none yet, as ``snapshot.mode`` says.

    Args:
        registry: which tables there are.
        publisher: takes records.
        streamed: the translator.
        touched: the translator's.
        demands: what the session itself asks for, now and later.
        commit: closes the Kafka transaction.
        report: told of every progress that is written.
    """
    options, topic = config.kafka.client_options(), progress_topic(config.name)
    snapshot, source = config.snapshot, config.source
    ends = ends_of(options, topic)
    published = read_published(options, topic, stream_key(source.slot))

    def tables() -> list[tuple[TableInfo, str]]:
        return [(each, state_topic(config, each.namespace, each.name)) for each in registry.tables]

    def encoder(relation: Relation) -> TableEncoder | None:
        table = registry.chunk_encoder(relation)
        if table is not None:
            registry.describe(table, publisher.produce)
        return table

    backfill = Backfill(
        {table: each.progress for table, each in published.backfills.items()},
        ChunkReaders(
            source.connection() if snapshot.dsn is None else snapshot.connection(),
            application_name=f"cdc {config.name} backfill",
            publication=source.publication,
            count=snapshot.parallel,
        ),
        RequestBox(options, ends, published.requests),
        touched,
        streamed,
        topic,
        demands,
        Surroundings(
            tables=tables,
            end_offsets=lambda name: tuple(ends_of(options, name).values()),
            encoder=encoder,
            produce=publisher.produce,
            commit=commit,
            report=report,
            sweep=lambda name, below: Sweep(options, name, below),
        ),
    )
    if snapshot.mode != "never":
        _add_new(backfill, tables(), published.backfills)
    return backfill


def _add_new(backfill: Backfill, tables: list[tuple[TableInfo, str]], known: Collection[str]) -> None:
    for table, topic in tables:
        if table.qualified_name not in known:
            backfill.add(table, topic, cause="initial", whole=False)
