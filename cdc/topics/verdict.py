"""Why a partition is not being compacted: the rules of Kafka's cleaner, applied to what can be seen from outside.

The cleaner takes closed segments only, and of them those below the last stable offset and below the first segment that
holds a record younger than ``min.compaction.lag.ms``. It then passes over a partition when the share of these dirty
bytes in all closed bytes is *above* ``min.cleanable.dirty.ratio``, or when the oldest of them has waited for
``max.compaction.lag.ms``. Whatever of the garbage stays without one of these reasons leaves the cleaner itself.

Pure: the moment is handed in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from cdc.base.words import counted, duration, moment, size
from cdc.contract.compaction import GARBAGE_SHARE, NEVER_MS, TopicSettings, alter
from cdc.topics.census import Garbage
from cdc.topics.layout import Layout, OpenKafkaTransaction, Segment
from cdc.topics.settings import CleanerSettings

PATIENCE_MS: Final = 300_000
"""A cleaner that lives may be busy with other partitions for this long."""

Code: TypeAlias = Literal[
    "clean",
    "not_compacted",
    "cleaner_off",
    "hanging_transaction",
    "open_transaction",
    "active_segment",
    "idle",
    "future_timestamp",
    "min_compaction_lag",
    "ratio_not_reached",
    "due",
    "cleaner_stopped",
    "tombstones_stuck",
]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One reason why superseded records are still there.

    Attributes:
        garbage_bytes: how much of the garbage stays for this reason.
        needs_someone: waiting will not help.
        remedy: the command or change that helps; empty when nothing needs to be done.
    """

    code: Code
    text: str
    remedy: str = ""
    garbage_bytes: int = 0
    needs_someone: bool = False


@dataclass(frozen=True, slots=True)
class PartitionSeen:
    """All that is known of a partition.

    Attributes:
        garbage: by segment of ``layout``; the first entry is of the cleaned part, where there should be none.
        last_stable: where read_committed readers stop.
        total_bytes: of the whole log, which may be more than what was read.
        record_bytes: of all records that were read, before compression.
        expired_tombstones: tombstones whose time is over.
    """

    topic: str
    partition: int
    layout: Layout
    garbage: Sequence[Garbage]
    last_stable: int
    high_watermark: int
    total_bytes: int
    record_bytes: int = 0
    expired_tombstones: int = 0


@dataclass(frozen=True, slots=True)
class Cleanable:
    """What a pass would work on now.

    Attributes:
        first: number of the first dirty segment.
        until: number of the first segment that the cleaner must not touch.
        clean_bytes: before the dirty segments.
        dirty_bytes: of segments from ``first`` to ``until``.
    """

    first: int
    until: int
    clean_bytes: int
    dirty_bytes: int

    @property
    def ratio(self) -> float:
        """The share of dirty bytes as the cleaner computes it: without the active segment."""
        whole = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / whole if whole else 0.0


def cleanable(seen: PartitionSeen, settings: TopicSettings, now_ms: int) -> Cleanable:
    """Returns the segments that the cleaner may work on, from the first one that supersedes something.

    Earlier segments count as clean, even those after the last batch with the cleaner's marks: nothing tells whether
    they are.
    """
    segments = seen.layout.segments
    first = next((number for number in range(len(segments)) if seen.garbage[number + 1].records), len(segments))
    until = max(len(segments) - 1, 0)
    for number in range(first, until):
        young = (
            settings.min_compaction_lag_ms > 0 and segments[number].largest_ms > now_ms - settings.min_compaction_lag_ms
        )
        if young or _end(seen.layout, number) > seen.last_stable:
            until = number
            break
    first = min(first, until)
    scanned_before = seen.layout.cleaned_bytes + sum(each.size for each in segments[:first])
    unseen = max(seen.total_bytes - seen.layout.size, 0)
    return Cleanable(first, until, unseen + scanned_before, sum(each.size for each in segments[first:until]))


def judge(seen: PartitionSeen, settings: TopicSettings, cleaner: CleanerSettings, now_ms: int) -> tuple[Verdict, ...]:
    """Every reason, those first that need someone; a single verdict ``clean`` when nothing is superfluous."""
    whole = Garbage()
    for each in seen.garbage:
        whole.include(each)
    if not settings.is_compacted:
        return (_not_compacted(seen, settings, whole),)
    if not cleaner.enabled and whole.records:
        return (
            Verdict(
                "cleaner_off",
                "log.cleaner.enable is false on the broker: nothing is ever compacted there",
                "set log.cleaner.enable=true in the broker's server.properties and restart it",
                whole.size,
                needs_someone=True,
            ),
        )
    found = list(_reasons(seen, settings, cleaner, now_ms))
    found.sort(key=lambda each: (not each.needs_someone, -each.garbage_bytes))
    if not found and seen.expired_tombstones:
        found.append(_tombstones_stuck(seen))
    return tuple(found) or (Verdict("clean", "nothing is superfluous"),)


def _reasons(seen: PartitionSeen, settings: TopicSettings, cleaner: CleanerSettings, now_ms: int) -> Iterator[Verdict]:
    layout, segments = seen.layout, seen.layout.segments
    reach, stuck_from = cleanable(seen, settings, now_ms), len(segments)
    if seen.last_stable < seen.high_watermark:
        hangs = _hangs(layout.open_transactions, cleaner, now_ms)
        # The active segment is not cleaned anyway: there, a transaction that will end keeps nothing back.
        if hangs or (layout.active is not None and seen.last_stable < layout.active.base):
            stuck_from = next((n for n in range(len(segments)) if _end(layout, n) > seen.last_stable), len(segments))
            garbage = _sum(seen.garbage[stuck_from + 1 :])
            if hangs or garbage.records:
                yield _open_transaction(seen, cleaner, garbage, now_ms, hangs=hangs)
    if reach.until < min(len(segments) - 1, stuck_from):
        blocked = _sum(seen.garbage[reach.until + 1 : min(len(segments), stuck_from + 1)])
        if blocked.records:
            yield _too_young(segments[reach.until], settings, blocked, now_ms)
    elif segments and stuck_from >= len(segments) and seen.garbage[len(segments)].records:
        yield _active(seen, settings, now_ms)
    waiting = _sum(seen.garbage[: reach.until + 1])
    if waiting.records:
        yield _closed(seen, settings, reach, waiting, now_ms)


def _not_compacted(seen: PartitionSeen, settings: TopicSettings, whole: Garbage) -> Verdict:
    policy = ",".join(sorted(settings.cleanup_policy)) or "empty"
    return Verdict(
        "not_compacted",
        f"cleanup.policy is {policy}: the cleaner does not look at this topic",
        f"{alter(seen.topic, 'cleanup.policy=compact')}; first make sure that each record has a key: "
        "the cleaner drops records without one",
        whole.size,
        needs_someone=True,
    )


def _hangs(opened: Sequence[OpenKafkaTransaction], cleaner: CleanerSettings, now_ms: int) -> bool:
    return bool(opened) and now_ms - opened[0].since_ms > cleaner.transaction_max_ms


def _open_transaction(
    seen: PartitionSeen, cleaner: CleanerSettings, garbage: Garbage, now_ms: int, *, hangs: bool
) -> Verdict:
    oldest = next(iter(seen.layout.open_transactions), None)
    who = "" if oldest is None else f" of producer id {oldest.producer_id} (epoch {oldest.epoch})"
    since = "" if oldest is None else f" for {duration(now_ms - oldest.since_ms)}"
    beyond, longest = seen.high_watermark - seen.last_stable, duration(cleaner.transaction_max_ms)
    text = (
        f"a Kafka transaction{who} is open{since}: the last stable offset stays at {seen.last_stable:,}, and the "
        f"{counted(beyond, 'offset')} from there on can be neither cleaned nor read by read_committed readers"
    )
    if not hangs:
        return Verdict("open_transaction", text, f"nothing: brokers end it after {longest} at most", garbage.size)
    where = f"--topic {seen.topic} --partition {seen.partition}"
    return Verdict(
        "hanging_transaction",
        f"{text}; it hangs: brokers end one after {longest} at most",
        f"kafka-transactions.sh --bootstrap-server … find-hanging {where}; if its producer is gone: "
        f"kafka-transactions.sh --bootstrap-server … abort {where} --start-offset {seen.last_stable}",
        garbage.size,
        needs_someone=True,
    )


def _active(seen: PartitionSeen, settings: TopicSettings, now_ms: int) -> Verdict:
    active, garbage = seen.layout.segments[-1], seen.garbage[-1]
    due_ms = active.first_ms + settings.roll_ms
    amount = f"{size(garbage.size)} of garbage wait in the active segment, which is never cleaned"
    if active.first_ms > now_ms:
        return Verdict(
            "future_timestamp",
            f"{amount}; its first record is dated {moment(active.first_ms)}, {duration(active.first_ms - now_ms)} "
            f"ahead, and segments are closed by their records' time: not before {moment(due_ms)}, or "
            f"{size(settings.segment_bytes)}",
            f"correct the clock of the writer; {alter(seen.topic, 'message.timestamp.type=LogAppendTime')} makes new "
            "segments independent of it",
            garbage.size,
            needs_someone=True,
        )
    if due_ms < now_ms:
        return Verdict(
            "idle",
            f"{amount}; it has been due since {moment(due_ms)}, but only an append closes a segment, and the newest "
            f"record is of {moment(active.largest_ms)}: the partition is idle",
            f"write one record to partition {seen.partition} of {seen.topic}: its writer may send an unchanged row "
            "again (cdc backfill for a table of yours). No setting closes a segment without an append",
            garbage.size,
            needs_someone=garbage.size >= GARBAGE_SHARE * seen.record_bytes,
        )
    return Verdict(
        "active_segment",
        f"{amount}; it is closed by the first append after {moment(due_ms)}, or at {size(settings.segment_bytes)}",
        f"nothing; to have it sooner: {alter(seen.topic, f'segment.ms={max(settings.roll_ms // 2, 60_000)}')}",
        garbage.size,
    )


def _too_young(segment: Segment, settings: TopicSettings, garbage: Garbage, now_ms: int) -> Verdict:
    free_ms = segment.largest_ms + settings.min_compaction_lag_ms
    if segment.largest_ms > now_ms:
        return Verdict(
            "future_timestamp",
            f"a record in the segment from offset {segment.base:,} on is dated {moment(segment.largest_ms)}, "
            f"{duration(segment.largest_ms - now_ms)} ahead: min.compaction.lag.ms keeps the cleaner away from this "
            f"segment and all later ones until {moment(free_ms)}",
            "correct the clock of the writer, and then set message.timestamp.after.max.ms so that brokers refuse such "
            "records; min.compaction.lag.ms=0 lets the cleaner pass now, if no reader needs that window",
            garbage.size,
            needs_someone=True,
        )
    return Verdict(
        "min_compaction_lag",
        f"{size(garbage.size)} of garbage are younger than min.compaction.lag.ms "
        f"({duration(settings.min_compaction_lag_ms)}), which is over at {moment(free_ms)}",
        "nothing: they can be cleaned then",
        garbage.size,
    )


def _closed(seen: PartitionSeen, settings: TopicSettings, reach: Cleanable, garbage: Garbage, now_ms: int) -> Verdict:
    since_ms = _eligible_since(seen, settings, reach, now_ms)
    if since_ms is None:
        wanted = settings.min_cleanable_dirty_ratio
        share = f"{size(reach.dirty_bytes)} of {size(reach.clean_bytes + reach.dirty_bytes)} closed bytes are dirty"
        forced = (
            ""
            if settings.max_compaction_lag_ms == NEVER_MS
            else f"; max.compaction.lag.ms makes it due {duration(settings.max_compaction_lag_ms)} after the oldest"
        )
        return Verdict(
            "ratio_not_reached",
            f"{share}: {reach.ratio:.3f} is not above min.cleanable.dirty.ratio {wanted:g} (the active segment does "
            f"not count){forced}",
            "nothing, unless readers must start faster: "
            + alter(seen.topic, f"min.cleanable.dirty.ratio={max(reach.ratio / 2, 0.01):.2f}"),
            garbage.size,
        )
    if now_ms - since_ms <= PATIENCE_MS or not _surely_closed(seen, settings, garbage):
        return Verdict(
            "due",
            f"{size(garbage.size)} of garbage can be cleaned since {moment(since_ms)}: the cleaner should be along",
            "nothing; look again in a few minutes",
            garbage.size,
        )
    return Verdict(
        "cleaner_stopped",
        f"{size(garbage.size)} of garbage could have been cleaned since {moment(since_ms)}, and nothing forbids it: "
        "likely the cleaner's thread died, or the broker has put this partition into quarantine after an error",
        f"look for 'uncleanable' and 'log cleaner' in the log of the leader of {seen.topic}-{seen.partition} (metrics "
        "uncleanable-partitions-count, DeadThreadCount); a quarantine ends when that broker restarts",
        garbage.size,
        needs_someone=True,
    )


def _eligible_since(seen: PartitionSeen, settings: TopicSettings, reach: Cleanable, now_ms: int) -> int | None:
    """Returns the time from which the cleaner may pass, or None if it may not yet."""
    dirty = 0
    for segment in seen.layout.segments[reach.first : reach.until]:
        dirty += segment.size
        closed_ms = segment.closed_ms if segment.closed_ms is not None else segment.largest_ms
        ready_ms = max(closed_ms, segment.largest_ms + settings.min_compaction_lag_ms)
        if dirty / (reach.clean_bytes + dirty) > settings.min_cleanable_dirty_ratio:
            return ready_ms
        forced_ms = segment.first_ms + settings.max_compaction_lag_ms
        if forced_ms < now_ms:
            return max(ready_ms, forced_ms)
    return None


def _surely_closed(seen: PartitionSeen, settings: TopicSettings, garbage: Garbage) -> bool:
    """Whether the garbage lies in closed segments even if segments begin elsewhere than worked out."""
    layout, first = seen.layout, garbage.first
    if layout.cleaned_ms is None or first is None:
        return True
    newest_ms = max(each.largest_ms for each in layout.segments)
    place = max((number for number, each in enumerate(layout.segments) if each.base <= first), default=0)
    later = sum(each.size for each in layout.segments[place + 1 :])
    return newest_ms - layout.segments[place].largest_ms > settings.roll_ms or later > settings.segment_bytes


def _tombstones_stuck(seen: PartitionSeen) -> Verdict:
    return Verdict(
        "tombstones_stuck",
        f"{counted(seen.expired_tombstones, 'tombstone')} could go by now, but tombstones go only when the cleaner "
        "passes again, and it passes only where something new has been written",
        f"nothing, unless readers must start faster: any new records in partition {seen.partition} bring a pass",
    )


def _end(layout: Layout, number: int) -> int:
    return layout.segments[number + 1].base if number + 1 < len(layout.segments) else layout.end


def _sum(parts: Sequence[Garbage]) -> Garbage:
    found = Garbage()
    for each in parts:
        found.include(each)
    return found
