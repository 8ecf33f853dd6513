"""Compares Kafka's topics with what is recorded of them: which topic it is, where it begins and ends, how new it is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from typing import Final, NamedTuple

from cdc.base.errors import DecodeError
from cdc.base.lsn import LSN
from cdc.contract.header import header_position
from cdc.contract.known_topic import KnownTopic, named_topic, parse_known_topic
from cdc.contract.membership import Membership, member_table, parse_membership
from cdc.contract.ports import Partition, StoredRecord
from cdc.contract.progress import parse_progress
from cdc.contract.record import Progress
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.replay.bounded import hidden_end, open_once, read_to_end, read_until, read_what_is_stable
from cdc.kafka.replay.client import topic_partitions
from cdc.kafka.replay.topic_facts import described_topics, high_watermarks, stable_ends, topic_extents

_FIRST_LOOK_BACK: Final = 16
_WIDER: Final = 64
"""Nearly always, one of a partition's last 16 offsets is a record; if all are markers, look 64 times further back."""


class Known(NamedTuple):
    """What the progress topic says about stream, topics and publication; empty when there is no such topic.

    Attributes:
        progress: the stream's progress.
        topics: each topic as the bridge last saw it.
        members: what carried each table in the publication.
    """

    progress: Progress | None
    topics: dict[str, KnownTopic]
    members: dict[str, Membership]


def read_known(admin: BrokerAdmin, progress_topic: str, stream_key: bytes, *, fenced: bool) -> Known:
    """Read the stored progress, and the last known state of the topics and the publication that it depends on.

    Args:
        admin: asks the brokers; the reader takes its settings.
        progress_topic: the progress topic.
        stream_key: as ``contract.progress.stream_key`` makes it.
        fenced: whether other writers are fenced, so that no Kafka transaction stays open and the end can be waited for.
            If not, the call does not wait, and may miss the newest records.

    Raises:
        TopicRefused: we may not read the progress topic.
        TopicUnavailable: no broker answers.
        DecodeError: a record does not follow this contract.
    """
    stream: bytes | None = None
    topics: dict[str, KnownTopic] = {}
    members: dict[str, Membership | None] = {}
    read = read_to_end if fenced else read_what_is_stable
    for record in read(admin, topic_partitions(admin, progress_topic)):
        if record.key == stream_key:
            stream = record.value
        elif (topic := named_topic(record.key)) is not None and record.value is not None:
            topics[topic] = parse_known_topic(record.value)
        elif (table := member_table(record.key)) is not None:
            members[table] = None if record.value is None else parse_membership(record.value)
    return Known(
        None if stream is None else parse_progress(stream),
        topics,
        {table: each for table, each in members.items() if each is not None},
    )


def look_at(admin: BrokerAdmin, topics: Collection[str]) -> dict[str, KnownTopic]:
    """Returns the topics as they are now; leaves out topics that do not exist.

    Args:
        admin: asks the brokers.
        topics: their names.

    Raises:
        TopicUnavailable: no broker answers.
        TopicRefused: we may not see a topic.
    """
    return {
        name: KnownTopic(facts.topic_id, facts.low, facts.ends) for name, facts in topic_extents(admin, topics).items()
    }


def refuse_hidden_ends(admin: BrokerAdmin, topics: Collection[str]) -> None:
    """Make sure that no open Kafka transaction hides the end of a topic. Call it after fencing the topics' writer.

    Fencing ends what the writer left open, so nobody will end a transaction that is still open afterwards. Brokers of
    Kafka 4.3 and 4.4 can cause one: when no replica of a partition was up, the broker that comes back skips the
    partition's markers (KAFKA-20734).

    Args:
        admin: asks the brokers; the reader takes its settings.
        topics: their names; a topic that does not exist counts as empty.

    Raises:
        TopicUnavailable: an end is hidden, or no broker answers.
        TopicRefused: we may not see a topic.
    """
    described = described_topics(admin, topics)
    partitions = [(name, each.id) for name, topic in described.items() for each in topic.partitions]
    ends = high_watermarks(admin, partitions)
    stable = stable_ends(admin, partitions)  # asked second, so that records written in between do not count as hidden
    if hidden := [each for each, end in ends.items() if stable[each] < end]:
        raise hidden_end(hidden)


def newest_lsn(admin: BrokerAdmin, topics: Mapping[str, KnownTopic]) -> LSN | None:
    """Returns the greatest LSN among the partitions' last records; None when there is no record. Reads only the ends.

    Args:
        admin: asks the brokers; the reader takes its settings.
        topics: as ``look_at`` returns them.

    Raises:
        TopicUnavailable: no broker answers.
        TopicRefused: we may not read a topic.
    """
    newest = last_records(admin, topics).values()
    return max((header_position(record.header).lsn for record in newest), default=None)


def last_records(admin: BrokerAdmin, topics: Mapping[str, KnownTopic]) -> dict[Partition, StoredRecord]:
    """Returns the newest committed record of a bridge in each partition that has one. Reads only the ends.

    Args:
        admin: asks the brokers; the reader takes its settings.
        topics: as ``look_at`` returns them.

    Raises:
        TopicUnavailable: no broker answers.
        TopicRefused: we may not read a topic.
    """
    newest: dict[Partition, StoredRecord] = {}

    def take(record: StoredRecord) -> bool:
        try:
            header_position(record.header)
        except DecodeError:
            return False  # not written by a bridge, so it says nothing about the stream
        newest[record.topic, record.partition] = record
        return True

    _read_back(admin, topics, take)
    return newest


def foreign_topics(admin: BrokerAdmin, topics: Mapping[str, KnownTopic]) -> list[str]:
    """Returns the topics with records, but without one from a bridge among each partition's last. Reads only the ends.

    Args:
        admin: asks the brokers; the reader takes its settings.
        topics: as ``look_at`` returns them.

    Raises:
        TopicUnavailable: no broker answers.
        TopicRefused: we may not read a topic.
    """
    ours: set[str] = set()
    others: set[str] = set()

    def take(record: StoredRecord) -> bool:
        try:
            header_position(record.header)
            ours.add(record.topic)
        except DecodeError:
            others.add(record.topic)
        return True

    _read_back(admin, topics, take)
    return sorted(others - ours)


def _read_back(admin: BrokerAdmin, topics: Mapping[str, KnownTopic], take: Callable[[StoredRecord], bool]) -> None:
    """Read the newest records of each partition, and then older ones, until ``take`` returns True for one of them."""
    places = {
        (name, number): (topic.low[number], end)
        for name, topic in topics.items()
        for number, end in enumerate(topic.ends)
        if end > topic.low[number]
    }
    enough: set[Partition] = set()
    back = _FIRST_LOOK_BACK
    while places:
        starts = {place: max(end - back, low) for place, (low, end) in places.items()}
        with closing(open_once(admin)) as reader:
            ends = {place: end for place, end in reader.stable_ends(starts).items() if end > starts[place]}
            reader.add({place: starts[place] for place in ends})
            for record in read_until(reader, ends):
                if take(record):
                    enough.add((record.topic, record.partition))
        places = {
            place: bounds for place, bounds in places.items() if place not in enough and starts[place] > bounds[0]
        }
        back *= _WIDER
