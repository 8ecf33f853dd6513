"""Everything committed in a topic up to its end now: the way to read a topic once and be done."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from typing import Final

from cdc.base.errors import TopicUnavailable
from cdc.base.long_wait import TELL_AFTER_S, tell
from cdc.contract.ports import Partition, StoredRecord
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.replay.client import missing_topic, topic_partitions
from cdc.kafka.replay.reader import TopicReader
from cdc.kafka.replay.topic_facts import high_watermarks

_RECORDS_PER_POLL: Final = 5_000
_POLL_S: Final = 0.2
_STALL_S: Final = 120.0
"""Longer than the bridge's transaction timeout: what holds a partition back for so long is nothing of ours."""

_FETCH_ONCE: Final = {"fetch.wait.max.ms": 5}
"""The end of a partition is known from an empty answer; who reads once should not wait long for it."""


def partitions_of(admin: BrokerAdmin, topic: str) -> list[Partition]:
    """The topic's partitions.

    Raises:
        TopicRefused: there is no such topic, or we may not see it.
        TopicUnavailable: no broker answers.
    """
    found = topic_partitions(admin, topic)
    if not found:
        raise missing_topic(topic)
    return found


def topic_ends(admin: BrokerAdmin, topic: str) -> dict[Partition, int]:
    """High watermarks of the topic's partitions, in order; errors as for ``partitions_of``."""
    return high_watermarks(admin, partitions_of(admin, topic))


def read_topic(admin: BrokerAdmin, topic: str) -> Iterator[StoredRecord]:
    """Every committed record of the topic; see ``read_to_end``.

    Raises:
        TopicRefused: there is no such topic, or we may not read it.
        TopicUnavailable: no broker answers, or an open Kafka transaction hides the end for minutes.
    """
    return read_to_end(admin, partitions_of(admin, topic))


def read_to_end(admin: BrokerAdmin, partitions: Collection[Partition]) -> Iterator[StoredRecord]:
    """Every record of the partitions that is committed and lies below their ends now, in order within each partition.

    Args:
        admin: asks for the ends; the reader takes its settings.
        partitions: as ``partitions_of`` tells them.

    Raises:
        TopicRefused: a topic is gone, or we may not read it.
        TopicUnavailable: no broker answers, or an open Kafka transaction hides the end for minutes.
    """
    with closing(open_once(admin)) as reader:
        reader.add(dict.fromkeys(partitions, 0))
        yield from read_until(reader, reader.high_watermarks(partitions))


def read_what_is_stable(admin: BrokerAdmin, partitions: Collection[Partition]) -> Iterator[StoredRecord]:
    """As ``read_to_end``, but only as far as can be read at once: an open Kafka transaction hides what follows it.

    For whoever has not fenced the one that may hold it open: a bridge that died does so for a minute.
    """
    with closing(open_once(admin)) as reader:
        reader.add(dict.fromkeys(partitions, 0))
        yield from read_until(reader, reader.stable_ends(partitions))


def open_once(admin: BrokerAdmin) -> TopicReader:
    """A reader for whoever reads once, as far as a topic goes now; it asks what it has to ask through ``admin``."""
    return TopicReader({**_FETCH_ONCE, **admin.options}, admin=admin)


def read_until(
    reader: TopicReader, ends: Mapping[Partition, int], before_poll: Callable[[], object] = lambda: None
) -> Iterator[StoredRecord]:
    """Every committed record below ``ends``, in order within each partition. No reader may go on behind it.

    Records behind the ends come along with those before them, and are left out here: a reader that goes on would never
    see them. For such a one there is ``read_through``.

    Args:
        reader: reads these partitions, and no others.
        ends: high watermarks.
        before_poll: called several times a second meanwhile.

    Raises:
        TopicRefused: a topic is gone, or we may not read it.
        TopicUnavailable: no broker answers, or an open Kafka transaction hides an end for minutes.
    """
    for record in read_through(reader, ends, before_poll):
        if record.offset < ends[record.topic, record.partition]:
            yield record


def read_through(
    reader: TopicReader, ends: Mapping[Partition, int], before_poll: Callable[[], object] = lambda: None
) -> Iterator[StoredRecord]:
    """Every committed record below ``ends``, and of those behind them what came along; the reader may go on.

    Arguments and errors as for ``read_until``.
    """
    missing = {each for each, end in ends.items() if end > 0}
    moved, is_told = time.monotonic(), False
    while missing:
        before = dict(reader.positions())
        before_poll()
        yield from reader.poll(_RECORDS_PER_POLL, _POLL_S)
        positions = reader.positions()
        missing = {each for each in missing if positions[each] < ends[each]}
        if positions != before:
            moved = time.monotonic()
        elif missing and time.monotonic() > moved + _STALL_S:
            raise hidden_end(missing)
        elif missing and time.monotonic() > moved + TELL_AFTER_S and not is_told:
            topic, number = min(missing)
            doing = "to become readable to its end (a Kafka transaction is open, or its broker does not answer)"
            tell(f"partition {number} of topic {topic!r}", doing, f"up to {_STALL_S:g} s")
            is_told = True


def hidden_end(partitions: Collection[Partition]) -> TopicUnavailable:
    """A Kafka transaction that nobody ends hides what is newest in these partitions."""
    topic, number = min(partitions)
    return TopicUnavailable(
        f"partition {number} of topic {topic!r} does not become readable to its end: a Kafka transaction stays open",
        remedy="kafka-transactions.sh find-hanging names it, kafka-transactions.sh abort ends it; then run "
        "`cdc backfill --sweep`: a broker that lost the end of a transaction (KAFKA-20734) may have lost a commit",
    )
