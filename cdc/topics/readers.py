"""Finds the consumer groups that read a topic, and the age of the oldest record that each has not read."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

from cdc.topics.batches import parse_batches
from cdc.topics.budget import TombstoneReader
from cdc.topics.cluster import Cluster, Ends, PartitionPlace


def readers(cluster: Cluster, places: Sequence[PartitionPlace], now_ms: int) -> list[TombstoneReader]:
    """Returns the groups with committed offsets in the topic, the slowest first, as far as we may see them.

    Raises:
        TopicRefused: we may not see the topic.
        TopicUnavailable: no broker answers.
    """
    ends, found = cluster.ends(places), []
    by_number = {each.partition: each for each in places}
    for group in cluster.groups():
        committed = _committed(cluster, group, places)
        if committed:
            lags = [_lag(cluster, by_number[number], ends, offset, now_ms) for number, offset in committed.items()]
            found.append(TombstoneReader(group, max(age for age, _ in lags), sum(count for _, count in lags)))
    return sorted(found, key=lambda each: -each.behind_ms)


def _committed(cluster: Cluster, group: str, places: Sequence[PartitionPlace]) -> dict[int, int]:
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(each.topic, each.partition) for each in places])
    try:
        answer = cluster.committed(asked)
    except KafkaException:
        return {}  # a group that is being deleted, or that we may not describe
    return {each.partition: each.offset for each in answer if each.offset >= 0 and each.error is None}


def _lag(
    cluster: Cluster, place: PartitionPlace, ends: dict[tuple[str, int], Ends], offset: int, now_ms: int
) -> tuple[int, int]:
    """Returns the age in milliseconds of the first record from ``offset`` on, and the number of offsets to the end."""
    end = ends[place.topic, place.partition]
    if offset >= end.last_stable:  # a read_committed reader can read no further
        return 0, 0
    # A group that was away for long may have an offset before the log's start
    batches = parse_batches(cluster.wire(place.leader).fetch(place.topic, place.partition, max(offset, end.start)))
    ages = (now_ms - each.max_ms for each in batches if each.last >= offset and not each.is_control)
    return max(next(ages, 0), 0), end.high_watermark - offset
