"""Reads one partition twice: its batches, as they lie on the leader's disk, and then its records.

The client library unpacks records and hides batches; our own fetch shows batches and unpacks nothing. Each does what
the other cannot.
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
from cdc.topics.batches import parse_batches
from cdc.topics.cluster import Cluster, Ends, PartitionPlace
from cdc.topics.layout import Layout, LayoutBuilder
from cdc.topics.wire import BrokerWire

Advance: TypeAlias = Callable[[int], None]
"""Told how many offsets further a reading is."""

Begin: TypeAlias = Callable[[PartitionPlace, int], Advance]
"""Called before a partition is read, with the offsets to go; returns who is told of each step."""


class KeyRead(NamedTuple):
    """A record without its value; ``is_empty``: that is so without being null; ``header``: ``cdc``, if it has one."""

    partition: int
    offset: int
    key: bytes | None
    is_empty: bool
    header: bytes | None


_AT_ONCE: Final = 5_000
_POLL_S: Final = 0.5
_STALL_S: Final = 60.0
_WIDE: Final = {"fetch.message.max.bytes": 1_048_576, "queued.max.messages.kbytes": 16_384, "fetch.wait.max.ms": 5}
"""One partition at a time is read, so more of it at once than followers of many partitions take."""


def read_layout(
    wire: BrokerWire, place: PartitionPlace, start: int, end: int, *, settings: TopicSettings, advance: Advance
) -> Layout:
    """The batches from ``start`` to ``end``.

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
            # Nothing is left up to the end: the cleaner took away all that was there.
            break
        advance(min(position, end) - before)
    return builder.built()


def read_records(
    options: Mapping[str, Any], place: PartitionPlace, start: int, ends: Ends, *, advance: Advance
) -> Iterator[Any]:
    """The client library's messages: committed ones, and behind the last stable offset those of open transactions.

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
    """Of every record where it is, its key, and what is short of its value.

    Args:
        cluster: where the topic is.
        places: its partitions.
        newest: read at most so many of each partition's newest offsets; None for all.
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
            yield KeyRead(place.partition, message.offset(), message.key(), message.value() == b"", header)


def _until(
    consumer: Consumer, options: Mapping[str, Any], start: TopicPartition, end: int, advance: Advance
) -> Iterator[Any]:
    # A client that does not know the leader yet asks for the first offset half a second later.
    consumer.list_topics(start.topic, timeout=REQUEST_TIMEOUT_S)
    consumer.assign([start])
    position, heard = start.offset, time.monotonic()
    while position < end:
        before = position
        # With a timeout, consume() waits until all are there; so wait for one, then take what is there.
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
            elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:  # of the group that we name and never use
                raise translated(error, start.topic, options)
        if position > before:
            advance(min(position, end) - before)
            heard = time.monotonic()
        elif time.monotonic() - heard > _STALL_S:
            raise TopicUnavailable(
                f"partition {start.partition} of topic {start.topic!r}: nothing came for {_STALL_S:.0f} s at offset "
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
