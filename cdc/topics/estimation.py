"""Estimates what the next cleaning of a topic will cost, from its records now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cdc.contract.compaction import TopicSettings, topic_settings
from cdc.topics.census import Census
from cdc.topics.cluster import Cluster, PartitionPlace
from cdc.topics.cost import Pass, PassPart, map_keys, passes
from cdc.topics.scan import Begin, read_layout, read_records
from cdc.topics.settings import CleanerSettings


@dataclass(frozen=True, slots=True)
class PartitionCost:
    """The next cleaning of a partition, once its active segment is closed.

    Attributes:
        partition: its number.
        clean_bytes: bytes before the last batch with the cleaner's marks, that batch included.
        dirty_bytes: bytes after that.
        active_bytes: the part of ``dirty_bytes`` in the active segment.
        dirty_keys: distinct keys in the dirty bytes, summed over the passes.
        passes: the passes that the cleaner needs.
    """

    partition: int
    clean_bytes: int
    dirty_bytes: int
    active_bytes: int
    dirty_keys: int
    passes: tuple[Pass, ...]


@dataclass(frozen=True, slots=True)
class TopicCost:
    """The next cleaning of a topic.

    Attributes:
        topic: its name.
        settings: its settings.
        cleaner: the cleaner's settings that the estimate assumes.
        partitions: the cleaning of each partition.
        survivors: the share of dirty bytes that survive their first pass.
    """

    topic: str
    settings: TopicSettings
    cleaner: CleanerSettings
    partitions: tuple[PartitionCost, ...]
    survivors: float

    @property
    def work(self) -> Pass:
        """The bytes of all passes over all partitions."""
        every = [each for one in self.partitions for each in one.passes]
        return Pass(
            sum(each.indexed for each in every), sum(each.copied for each in every), sum(each.written for each in every)
        )

    @property
    def largest(self) -> PartitionCost:
        """The partition with the most bytes."""
        return max(self.partitions, key=lambda each: each.clean_bytes + each.dirty_bytes)

    @property
    def most_keys(self) -> int:
        """The number of dirty keys in the partition that has most of them: a map must hold these."""
        return max(each.dirty_keys for each in self.partitions)


def estimate(
    cluster: Cluster,
    places: Sequence[PartitionPlace],
    settings: Mapping[str, str],
    cleaner: CleanerSettings,
    *,
    begin: Begin,
) -> TopicCost:
    """Reads a topic and estimates its next cleaning.

    Args:
        cluster: the cluster that has the topic.
        places: the topic's partitions.
        settings: the topic's settings, as Kafka writes them.
        cleaner: the broker's cleaner settings, or others to try out.
        begin: told of the progress.

    Raises:
        TopicRefused: we may not read the topic.
        TopicUnavailable: no broker answers.
    """
    parsed, costs, newest, size = topic_settings(settings), [], 0, 0
    for place in places:
        ends = cluster.ends([place])[place.topic, place.partition]
        advance = begin(place, 2 * (ends.high_watermark - ends.start))
        layout = read_layout(
            cluster.wire(place.leader), place, ends.start, ends.high_watermark, settings=parsed, advance=advance
        )
        census = Census(layout, map_keys(cleaner))
        for message in read_records(cluster.options, place, ends.start, ends, advance=advance):
            value = message.value()
            length = 0 if value is None else len(value)
            census.add(message.offset(), message.key(), length, is_tombstone=value is None)
        segments = [each.size for each in layout.segments]
        found = census.passes.parts
        record_bytes = sum(each.size for each in found)
        scale = sum(segments) / record_bytes if record_bytes else 0.0
        parts = [PassPart(each.size * scale, each.newest * scale, each.removed * scale) for each in found]
        newest, size = newest + sum(each.newest for each in found), size + record_bytes
        costs.append(
            PartitionCost(
                place.partition,
                layout.cleaned_bytes,
                sum(segments),
                segments[-1] if segments else 0,
                sum(each.keys for each in found),
                tuple(passes(layout.cleaned_bytes, parts, segments)),
            )
        )
    return TopicCost(places[0].topic, parsed, cleaner, tuple(costs), newest / size if size else 1.0)
