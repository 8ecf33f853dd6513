"""Detects a topic that got more partitions after its keys were published.

A reader recognizes another program's records by their being in a partition where their key does not belong. After more
partitions were added, most of the bridge's own records would look like that, and their rows would be missing.
"""

from __future__ import annotations

from collections.abc import Iterable

from cdc.contract.known_topic import KnownTopic, named_topic, parse_known_topic
from cdc.contract.naming import progress_topic
from cdc.spark.errors import TopicUnreadable
from cdc.spark.offsets import Brokers, Extent


def refuse_added_partitions(brokers: Brokers, name: str, extents: Iterable[Extent]) -> None:
    """Stops the job if a topic has another number of partitions than the bridge knows; the bridge stops then, too.

    Args:
        brokers: the cluster with the topics.
        name: the configuration's ``name``, which begins the topics' names.
        extents: the topics as they are now.

    Raises:
        TopicUnreadable: the number of partitions of a topic has changed.
    """
    known: dict[str, KnownTopic] = {}
    for key, value in brokers.read_all(progress_topic(name)):
        if value is not None and (topic := named_topic(key)) is not None:
            known[topic] = parse_known_topic(value)
    for extent in extents:
        before = known.get(extent.topic)
        if before is None or before.topic_id != extent.topic_id or len(before.ends) == len(extent.ends):
            continue
        raise TopicUnreadable(
            f"topic {extent.topic} has {len(extent.ends)} partitions now, but had {len(before.ends)} when its keys were"
            " published, so they do not lie where they belong",
            remedy="start the bridge with cdc run; it says how to fill the topic again",
        )
