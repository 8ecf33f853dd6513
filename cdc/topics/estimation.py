"""What the next cleaning of a topic will cost, from what lies in it now."""

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
    """A partition's next cleaning, once its active segment is closed.

    Attributes:
        clean_bytes: up to where the cleaner left its last mark.
        dirty_bytes: behind it.
        active_bytes: of these, in the segment that is written to.
        dirty_keys: distinct keys in them, for each pass anew.
    """

    partition: int
    clean_bytes: int
    dirty_bytes: int
    active_bytes: int
    dirty_keys: int
    passes: tuple[Pass, ...]


@dataclass(frozen=True, slots=True)
class TopicCost:
    """A topic's next cleaning.

    Attributes:
        survivors: share of the dirty bytes that outlive their first pass.
    """

    topic: str
    settings: TopicSettings
    cleaner: CleanerSettings
    partitions: tuple[PartitionCost, ...]
    survivors: float

    @property
    def work(self) -> Pass:
        """All passes over all partitions."""
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
        """Dirty keys of the partition that has most: what a map must hold."""
        return max(each.dirty_keys for each in self.partitions)


def estimate(
    cluster: Cluster,
    places: Sequence[PartitionPlace],
    settings: Mapping[str, str],
    cleaner: CleanerSettings,
    *,
    begin: Begin,
) -> TopicCost:
    """Read a topic, and work out its cleaning.

    Args:
        cluster: where it is.
        places: its partitions.
        settings: its settings, as Kafka writes them.
        cleaner: the broker's, or the one that is thought of.
        begin: told of the progress.

    Raises:
        TopicRefused: we may not read it.
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
