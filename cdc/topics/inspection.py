"""Reports for each partition what it holds, and why garbage is still there."""

from __future__ import annotations

from dataclasses import dataclass

from cdc.contract.compaction import TopicSettings, topic_settings
from cdc.topics.census import Census, Tombstones
from cdc.topics.cluster import Cluster, Ends, PartitionPlace
from cdc.topics.layout import Layout
from cdc.topics.scan import Begin, read_layout, read_records
from cdc.topics.settings import CleanerSettings
from cdc.topics.verdict import Cleanable, PartitionSeen, Verdict, cleanable, judge


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """What was found in a partition.

    Attributes:
        partition: its number.
        leader: its leader's broker id.
        ends: where it begins and ends.
        read_from: the first offset that was read: the log's start, unless only the newest offsets were read.
        disk_bytes: bytes on the leader's disk.
        records: how many records were read.
        record_bytes: bytes of these records, before compression.
        keys: how many keys they have, deleted ones included.
        keyless: how many of them have no key.
        garbage_records: how many of them are superseded.
        garbage_bytes: bytes of superseded records, before compression.
        tombstones: tombstones that are the newest record of their key.
        cleaned_until: the cleaner has passed at least up to here; None when it left no marks.
        cleaned_after_ms: its last visible pass was later than this.
        reach: what the cleaner could clean now.
        verdicts: why garbage is still there, and what to do.
    """

    partition: int
    leader: int
    ends: Ends
    read_from: int
    disk_bytes: int
    records: int
    record_bytes: int
    keys: int
    keyless: int
    garbage_records: int
    garbage_bytes: int
    tombstones: Tombstones
    cleaned_until: int | None
    cleaned_after_ms: int | None
    reach: Cleanable
    verdicts: tuple[Verdict, ...]

    @property
    def is_whole(self) -> bool:
        """Whether every offset was read. If not, counts cover only the newest offsets, and ratios are lower bounds."""
        return self.read_from <= self.ends.start

    @property
    def garbage_ratio(self) -> float:
        """The share of superseded bytes in all bytes that were read."""
        return self.garbage_bytes / self.record_bytes if self.record_bytes else 0.0

    @property
    def density(self) -> float:
        """Records per offset: 1 if nothing was ever removed, and there are no markers of Kafka transactions."""
        offsets = self.ends.high_watermark - self.read_from
        return self.records / offsets if offsets else 1.0


@dataclass(frozen=True, slots=True)
class TopicReport:
    """A topic, its settings and its partitions."""

    topic: str
    settings: TopicSettings
    cleaner: CleanerSettings
    now_ms: int
    partitions: tuple[PartitionReport, ...]

    @property
    def needs_someone(self) -> bool:
        """Whether somebody must act, because a partition will not become clean by itself."""
        return any(verdict.needs_someone for each in self.partitions for verdict in each.verdicts)


def inspect(
    cluster: Cluster,
    places: list[PartitionPlace],
    settings: dict[str, str],
    *,
    now_ms: int,
    newest: int | None,
    begin: Begin,
) -> TopicReport:
    """Reads a topic and judges it.

    Args:
        cluster: the cluster that has the topic.
        places: the topic's partitions.
        settings: the topic's settings, as Kafka writes them.
        now_ms: the time from which ages count.
        newest: read at most this many of each partition's newest offsets; None reads all.
        begin: told of the progress.

    Raises:
        TopicRefused: we may not read the topic.
        TopicUnavailable: no broker answers.
    """
    parsed, cleaner, sizes = topic_settings(settings), cluster.cleaner(), cluster.sizes(places)
    reports = []
    for place in places:
        ends = cluster.ends([place])[place.topic, place.partition]
        start = ends.start if newest is None else max(ends.start, ends.high_watermark - newest)
        advance = begin(place, 2 * (ends.high_watermark - start))
        layout = read_layout(
            cluster.wire(place.leader), place, start, ends.high_watermark, settings=parsed, advance=advance
        )
        census = Census(layout)
        for message in read_records(cluster.options, place, start, ends, advance=advance):
            value = message.value()
            size = 0 if value is None else len(value)
            census.add(message.offset(), message.key(), size, is_tombstone=value is None)
        disk_bytes = sizes.get((place.topic, place.partition), layout.size)
        reports.append(
            _report(place, ends, layout, census, disk_bytes=disk_bytes, parsed=parsed, cleaner=cleaner, now_ms=now_ms)
        )
    return TopicReport(places[0].topic, parsed, cleaner, now_ms, tuple(reports))


def _report(
    place: PartitionPlace,
    ends: Ends,
    layout: Layout,
    census: Census,
    *,
    disk_bytes: int,
    parsed: TopicSettings,
    cleaner: CleanerSettings,
    now_ms: int,
) -> PartitionReport:
    tombstones, garbage = census.tombstones(layout.horizons, now_ms), census.total_garbage
    seen = PartitionSeen(
        place.topic,
        place.partition,
        layout,
        census.garbage,
        ends.last_stable,
        ends.high_watermark,
        max(disk_bytes, layout.size),
        census.size,
        tombstones.expired,
    )
    return PartitionReport(
        partition=place.partition,
        leader=place.leader,
        ends=ends,
        read_from=layout.start,
        disk_bytes=disk_bytes,
        records=census.records,
        record_bytes=census.size,
        keys=census.distinct_keys,
        keyless=census.keyless,
        garbage_records=garbage.records,
        garbage_bytes=garbage.size,
        tombstones=tombstones,
        cleaned_until=None if layout.cleaned_ms is None else layout.cleaned_until,
        cleaned_after_ms=layout.cleaned_ms,
        reach=cleanable(seen, parsed, now_ms),
        verdicts=judge(seen, parsed, cleaner, now_ms),
    )
