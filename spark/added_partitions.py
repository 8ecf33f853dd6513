"""A topic that was given partitions while its keys lie where fewer partitions put them.

Readers that leave out what another program wrote elsewhere tell it by the key's place among the topic's partitions.
With more partitions most of the bridge's own records would pass for such, and their rows would be missing.
"""

from __future__ import annotations

from collections.abc import Iterable

from cdc.contract.known_topic import KnownTopic, named_topic, parse_known_topic
from cdc.contract.naming import progress_topic
from cdc.spark.errors import TopicUnreadable
from cdc.spark.offsets import Brokers, Extent


def refuse_added_partitions(brokers: Brokers, name: str, extents: Iterable[Extent]) -> None:
    """Stop where a topic has other partitions than the bridge knows, which stops over that as well.

    Args:
        brokers: where the topics are.
        name: the topics' common one, of the configuration.
        extents: the topics as they are now.

    Raises:
        TopicUnreadable: one has.
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
            f"topic {extent.topic} has {len(extent.ends)} partitions now, and {len(before.ends)} when its keys were "
            "published: they do not lie where they belong",
            remedy="start the bridge (cdc run), which says how the topic is filled anew",
        )
