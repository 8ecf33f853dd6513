"""Reads a topic once: everything that is committed up to the end that it has now."""

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
"""Longer than the bridge's transaction timeout: if no record came for so long, the bridge is not the cause."""

_FETCH_ONCE: Final = {"fetch.wait.max.ms": 5}
"""The client learns the end of a partition from an empty answer, and a single read should not wait long for that."""


def partitions_of(admin: BrokerAdmin, topic: str) -> list[Partition]:
    """Returns the topic's partitions.

    Raises:
        TopicRefused: there is no such topic, or we may not see it.
        TopicUnavailable: no broker answers.
    """
    found = topic_partitions(admin, topic)
    if not found:
        raise missing_topic(topic)
    return found


def topic_ends(admin: BrokerAdmin, topic: str) -> dict[Partition, int]:
    """Returns the high watermarks of the topic's partitions, in order; errors as for ``partitions_of``."""
    return high_watermarks(admin, partitions_of(admin, topic))


def read_topic(admin: BrokerAdmin, topic: str) -> Iterator[StoredRecord]:
    """Yield every committed record of the topic, as ``read_to_end`` does.

    Raises:
        TopicRefused: there is no such topic, or we may not read it.
        TopicUnavailable: no broker answers, or an open Kafka transaction hides the end for minutes.
    """
    return read_to_end(admin, partitions_of(admin, topic))


def read_to_end(admin: BrokerAdmin, partitions: Collection[Partition]) -> Iterator[StoredRecord]:
    """Yield the committed records of the partitions up to the ends that they have now, in order in each partition.

    Args:
        admin: asks for the ends; the reader takes its settings.
        partitions: as ``partitions_of`` returns them.

    Raises:
        TopicRefused: a topic is gone, or we may not read it.
        TopicUnavailable: no broker answers, or an open Kafka transaction hides the end for minutes.
    """
    with closing(open_once(admin)) as reader:
        reader.add(dict.fromkeys(partitions, 0))
        yield from read_until(reader, reader.high_watermarks(partitions))


def read_what_is_stable(admin: BrokerAdmin, partitions: Collection[Partition]) -> Iterator[StoredRecord]:
    """Yield records as ``read_to_end`` does, but only up to the first open Kafka transaction, which hides the rest.

    Use it without having fenced the bridge: the transaction of a bridge that died stays open for up to a minute.
    """
    with closing(open_once(admin)) as reader:
        reader.add(dict.fromkeys(partitions, 0))
        yield from read_until(reader, reader.stable_ends(partitions))


def open_once(admin: BrokerAdmin) -> TopicReader:
    """Open a reader for a single read up to the end; it asks the brokers through ``admin``."""
    return TopicReader({**_FETCH_ONCE, **admin.options}, admin=admin)


def read_until(
    reader: TopicReader, ends: Mapping[Partition, int], before_poll: Callable[[], object] = lambda: None
) -> Iterator[StoredRecord]:
    """Yield the committed records below ``ends``, in order in each partition. Do not read on with ``reader`` after it.

    The reader also fetches records past the ends, and this function drops them: a caller that reads on would never see
    them. To read on, use ``read_through``.

    Args:
        reader: reads these partitions, and no others.
        ends: high watermarks.
        before_poll: called before each poll, several times a second.

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
    """Yield the committed records below ``ends``, and those past them that were fetched as well; you may read on.

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
    """The error for partitions whose newest records are hidden by a Kafka transaction that nobody ends."""
    topic, number = min(partitions)
    return TopicUnavailable(
        f"cannot read partition {number} of topic {topic!r} to its end: a Kafka transaction stays open",
        remedy="find the transaction with kafka-transactions.sh find-hanging, end it with kafka-transactions.sh abort, "
        "then run `cdc backfill --sweep`: a broker that lost a transaction's end (KAFKA-20734) may have lost a commit",
    )
