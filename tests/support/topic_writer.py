"""Writes topics as the bridge does, record by record as a test wants it: rows, definitions, progress."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import orjson
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from cdc.base.lsn import LSN
from cdc.contract.backfill import backfill_key, backfill_value
from cdc.contract.header import BACKFILL, DELETE, UPDATE, HeaderStamp
from cdc.contract.known_topic import known_topic_key, known_topic_value
from cdc.contract.naming import progress_topic, schemas_topic, topic_name
from cdc.contract.progress import progress_value, stream_key
from cdc.contract.record import BackfillProgress, Position, Progress, SchemaColumn, SourceIdentity, TableSchema
from cdc.contract.schema import schema_key, schema_value
from cdc.kafka.brokers import BrokerAdmin, connect
from cdc.kafka.replay.topic_state import look_at
from tests.support.names import unique
from tests.support.topic_settings import create_topic
from tests.support.waiting import eventually

SOURCE = SourceIdentity("7300000000000000001", 1, 16384)
FIRST_BACKFILL = BackfillProgress(
    table="",
    topic="",
    request="r1",
    state="running",
    cause="initial",
    whole=False,
    where=None,
    rate=None,
    sweep=False,
    below=(),
    leaves=(),
    estimated_rows=0,
    rows=0,
    swept=0,
    seq=0,
    lsn=LSN(0),
    started_at=1_700_000_000_000_000,
    updated_at=1_700_000_000_000_000,
)
_TIMEOUT_S = 30


class TopicWriter:
    """A transactional producer that plays one bridge.

    Args:
        bootstrap: of the brokers.
        partitions: of each state topic.
        name: of the bridge; a fresh one by default.
    """

    def __init__(self, bootstrap: str, partitions: int = 2, name: str = "") -> None:
        self.bootstrap = bootstrap
        self.name = name or unique("w")
        self.options: dict[str, Any] = {"bootstrap.servers": bootstrap}
        self.progress_topic, self.schemas_topic = progress_topic(self.name), schemas_topic(self.name)
        self.key = stream_key(f"cdc_{self.name}")
        self.admin = BrokerAdmin(self.options)
        self._partitions = partitions
        self.create_topic(self.progress_topic, 1)
        self.create_topic(self.schemas_topic, 1)
        self.producer = self.new_producer(self.name)

    def new_producer(self, transactional_id: str) -> Producer:
        """Another transactional producer, ready to begin."""
        producer = Producer(
            {
                **self.options,
                "transactional.id": transactional_id,
                "partitioner": "murmur2_random",
                "linger.ms": 1,
                "compression.type": "lz4",
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        connect(producer)
        producer.init_transactions(_TIMEOUT_S)
        return producer

    def create_topic(self, topic: str, partitions: int | None = None) -> None:
        """A compacted topic."""
        settings = {"cleanup.policy": "compact", "min.compaction.lag.ms": "60000"}
        new = NewTopic(topic, partitions or self._partitions, 1, config=settings)
        create_topic(self.admin, new)

    def delete_topic(self, topic: str) -> None:
        """Delete it, and see it gone."""
        self.admin.delete_topics([topic])[topic].result(_TIMEOUT_S)
        eventually(lambda: topic not in self.admin.list_topics(timeout=_TIMEOUT_S).topics)

    def know(self, topic: str) -> None:
        """Write down which topic it is, as the bridge does when it has met it."""
        known = look_at(self.admin, [topic])[topic]
        self.producer.produce(self.progress_topic, key=known_topic_key(topic), value=known_topic_value(known))

    def table(self, name: str, key: tuple[str, ...] = ("id",), /, **columns: str) -> TableSchema:
        """A definition of ``public.<name>``; its topic is created unless it exists. Publish it with ``define``."""
        topic = topic_name(self.name, "public", name)
        if topic not in self.admin.list_topics(timeout=_TIMEOUT_S).topics:
            self.create_topic(topic)
        fingerprint = f"{abs(hash((name, key, tuple(columns.items())))):016x}"[:16]
        return TableSchema(
            fingerprint, "public", name, topic, key, tuple(SchemaColumn(*each) for each in columns.items())
        )

    @contextmanager
    def kafka_transaction(self, *, commit: bool = True) -> Iterator[TopicWriter]:
        """Everything written inside is committed, or aborted, together."""
        self.producer.begin_transaction()
        yield self
        if commit:
            self.producer.commit_transaction(_TIMEOUT_S)
        else:
            self.producer.flush(_TIMEOUT_S)
            self.producer.abort_transaction(_TIMEOUT_S)

    def define(self, table: TableSchema) -> None:
        """Write a definition."""
        self.producer.produce(self.schemas_topic, key=schema_key(table.fingerprint), value=schema_value(table))

    def progress(
        self, lsn: int, partial: tuple[int, int] | None = None, source: SourceIdentity = SOURCE, **aside: int
    ) -> None:
        """Write progress; ``aside`` says how many rows of ``public.<name>`` are in quarantine."""
        position = Position(LSN(partial[0]), partial[1]) if partial else None
        lacking = tuple((f"public.{name}", count) for name, count in aside.items())
        progress = Progress(LSN(lsn), position, 1_700_000_000_000_000 + lsn, source, quarantined=lacking)
        self.producer.produce(self.progress_topic, key=self.key, value=progress_value(progress))

    def backfill(self, table: TableSchema, lsn: int, **changes: Any) -> None:
        """Write a backfill's progress: of the first one of a table, under way, unless ``changes`` say otherwise."""
        progress = replace(FIRST_BACKFILL, table=f"{table.namespace}.{table.name}", topic=table.topic, lsn=LSN(lsn))
        progress = replace(progress, **changes)
        self.producer.produce(self.progress_topic, key=backfill_key(progress.table), value=backfill_value(progress))

    def backfilled(self, table: TableSchema, row: Mapping[str, Any], lsn: int, seq: int = 1) -> None:
        """Write a row of a backfill, published while the stream stood at ``lsn``."""
        header = HeaderStamp(LSN(lsn - 1), None, 1_700_000_000_000_000, "700:700:").header(
            BACKFILL, seq, table.fingerprint
        )
        self.write(table.topic, self.key_of(table, row), orjson.dumps(dict(row)), header)

    def upsert(self, table: TableSchema, row: Mapping[str, Any], lsn: int, seq: int = 1) -> None:
        """Write a row; values as JSON takes them, or raw with ``orjson.Fragment``."""
        self.write(table.topic, self.key_of(table, row), orjson.dumps(dict(row)), self.header(table, lsn, seq))

    def delete(self, table: TableSchema, row: Mapping[str, Any], lsn: int, seq: int = 1) -> None:
        """Write a tombstone."""
        self.write(table.topic, self.key_of(table, row), None, self.header(table, lsn, seq, DELETE))

    def write(self, topic: str, key: bytes | None, value: bytes | None, header: bytes, **where: Any) -> None:
        """Write any record."""
        headers: list[tuple[str, str | bytes | None]] | None = [("cdc", header)] if header else None
        while True:
            try:
                self.producer.produce(topic, key=key, value=value, headers=headers, **where)
                return
            except BufferError:
                self.producer.poll(0.1)

    def transaction(self, lsn: int, *changes: tuple[TableSchema, Mapping[str, Any]]) -> None:
        """One source transaction that commits at ``lsn``, in one Kafka transaction with progress behind it."""
        with self.kafka_transaction():
            for (table, row), seq in zip(changes, itertools.count(1), strict=False):
                self.upsert(table, row, lsn, seq)
            self.progress(lsn + 1)

    @staticmethod
    def key_of(table: TableSchema, row: Mapping[str, Any]) -> bytes:
        return orjson.dumps({column: row[column] for column in table.key})

    @staticmethod
    def header(table: TableSchema, lsn: int, seq: int = 1, op: str = UPDATE) -> bytes:
        return HeaderStamp(LSN(lsn), 700 + lsn, 1_700_000_000_000_000 + lsn).header(op, seq, table.fingerprint)
