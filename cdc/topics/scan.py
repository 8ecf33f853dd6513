"""Reads a partition twice: first its batches as they lie on the leader's disk, then its records.

The client library unpacks records and hides batches. The fetch in ``wire`` shows batches and unpacks nothing. So it
takes both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeAlias

from confluent_kafka import Consumer, KafkaError, TopicPartition

from cdc.base.errors import TopicUnavailable
from cdc.contract.compaction import TopicSettings
from cdc.contract.header import HEADER_NAME
from cdc.kafka.replay.client import REQUEST_TIMEOUT_S, open_consumer, translated
from cdc.kafka.wire import BrokerWire
from cdc.topics.batches import parse_batches
from cdc.topics.cluster import Cluster, Ends, PartitionPlace
from cdc.topics.formats import HEAD_BYTES
from cdc.topics.layout import Layout, LayoutBuilder

Advance: TypeAlias = Callable[[int], None]
"""Called with the number of offsets that a reading has advanced."""

Begin: TypeAlias = Callable[[PartitionPlace, int], Advance]
"""Called before a partition is read, with the number of offsets to read. Returns what to call at each step."""


class KeyRead(NamedTuple):
    """A record without its value.

    Attributes:
        partition, offset: where it is.
        key: its key.
        is_empty: the value is empty without being null.
        head: the first bytes of the value, as many as a schema's id takes; None for a tombstone.
        header: the header ``cdc``, or None.
    """

    partition: int
    offset: int
    key: bytes | None
    is_empty: bool
    header: bytes | None
    head: bytes | None


_AT_ONCE: Final = 5_000
_POLL_S: Final = 0.5
_STALL_S: Final = 60.0
_WIDE: Final = {"fetch.message.max.bytes": 1_048_576, "queued.max.messages.kbytes": 16_384, "fetch.wait.max.ms": 5}
"""Client settings for reading only one partition: it may fetch more at once than readers of many partitions do."""


def read_layout(
    wire: BrokerWire, place: PartitionPlace, start: int, end: int, *, settings: TopicSettings, advance: Advance
) -> Layout:
    """Reads the batches from ``start`` to ``end``.

    Raises:
        TopicUnavailable: the leader went away.
        TopicRefused: we may not read the topic.
    """
    builder, position = LayoutBuilder(start, settings), start
    while position < end:
        before = position
        for batch in parse_batches(wire.fetch(place.topic, place.partition, position)):
            if batch.last < position:
                continue
            if batch.base >= end:
                position = end
                break
            builder.add((batch,))
            position = batch.last + 1
        if position == before:
            break  # the cleaner has removed everything from here to the end
        advance(min(position, end) - before)
    return builder.built()


def read_records(
    options: Mapping[str, Any], place: PartitionPlace, start: int, ends: Ends, *, advance: Advance
) -> Iterator[Any]:
    """Yields the client library's messages: committed ones and, past the last stable offset, all others, too.

    Raises:
        TopicUnavailable: no broker answers, or nothing comes for a minute.
        TopicRefused: we may not read the topic.
    """
    stable = min(ends.last_stable, ends.high_watermark)
    for begin, end, isolation in (
        (start, stable, "read_committed"),
        (max(start, stable), ends.high_watermark, "read_uncommitted"),
    ):
        if begin < end:
            with _consumer(options, isolation) as consumer:
                yield from _until(consumer, options, TopicPartition(place.topic, place.partition, begin), end, advance)


def read_keys(
    cluster: Cluster, places: Sequence[PartitionPlace], *, newest: int | None, begin: Begin
) -> Iterator[KeyRead]:
    """Yields every record without its value.

    Args:
        cluster: the cluster that has the topic.
        places: the topic's partitions.
        newest: read at most this many of each partition's newest offsets; None reads all.
        begin: told of the progress.

    Raises:
        TopicUnavailable: no broker answers, or nothing comes for a minute.
        TopicRefused: we may not read the topic.
    """
    for place, ends in zip(places, cluster.ends(places).values(), strict=True):
        start = ends.start if newest is None else max(ends.start, ends.high_watermark - newest)
        advance = begin(place, ends.high_watermark - start)
        for message in read_records(cluster.options, place, start, ends, advance=advance):
            header = next((value for name, value in message.headers() or () if name == HEADER_NAME), None)
            value = message.value()
            head = None if value is None else value[:HEAD_BYTES]
            yield KeyRead(place.partition, message.offset(), message.key(), value == b"", header, head)


def _until(
    consumer: Consumer, options: Mapping[str, Any], start: TopicPartition, end: int, advance: Advance
) -> Iterator[Any]:
    # Saves half a second: a client that does not know the leader yet waits that long before it fetches
    consumer.list_topics(start.topic, timeout=REQUEST_TIMEOUT_S)
    consumer.assign([start])
    position, heard = start.offset, time.monotonic()
    while position < end:
        before = position
        # With a timeout, consume() waits until it has all messages. So wait for one, then take what is there.
        messages: list[Any] = consumer.consume(1, _POLL_S)
        messages += consumer.consume(_AT_ONCE, 0)
        for message in messages:
            error, offset = message.error(), message.offset()
            if error is None:
                position = max(position, offset + 1)
                if offset < end:
                    yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                position = max(position, offset)
            elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:  # the client needs a group, but never uses it
                raise translated(error, start.topic, options)
        if position > before:
            advance(min(position, end) - before)
            heard = time.monotonic()
        elif time.monotonic() - heard > _STALL_S:
            raise TopicUnavailable(
                f"partition {start.partition} of topic {start.topic!r} sent nothing for {_STALL_S:.0f} s at offset "
                f"{position:,}",
                remedy="is its leader up?",
            )


@contextmanager
def _consumer(options: Mapping[str, Any], isolation: str) -> Iterator[Consumer]:
    consumer = open_consumer({**_WIDE, **options, "isolation.level": isolation, "auto.offset.reset": "earliest"})
    try:
        yield consumer
    finally:
        consumer.close()
