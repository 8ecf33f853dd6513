"""What is wrong with a topic that is meant to hold state: rules over its settings, replicas, keys and readers. Pure.

An *error* loses rows or deletes, or will; a *warning* costs availability, time or disk some day.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from cdc.base.words import counted, duration
from cdc.contract.compaction import (
    NEVER_MS,
    SETTING_RULES,
    SHORTEST_SEGMENT_MS,
    SHORTEST_WINDOW_MS,
    TopicSettings,
    alter,
    policy_fault,
    record_fault,
    short_segments,
    topic_settings,
    writers_date_records,
)
from cdc.topics.foreign import ForeignRecord

Level: TypeAlias = Literal["error", "warning"]

_LOW_RATIO: Final = 0.1
"""Below, the cleaner rewrites each byte more than ten times."""


@dataclass(frozen=True, slots=True)
class Lint:
    """One thing to change.

    Attributes:
        code: stays the same between versions.
        remedy: the command or change that mends it.
    """

    level: Level
    code: str
    text: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Subject:
    """A topic as far as lint looks.

    Attributes:
        settings: as Kafka writes them.
        replicas: copies of the partition that has fewest.
        keyless: records without a key among those that were read.
        empty: records whose value is empty, but not null.
        looked_at: how many records were read.
        foreign: of these, in a bridge's topic, those that the bridge cannot have written.
        formats: of these, how many rows are in each format; a row is the last record of a key.
        share_groups: of its readers.
        rebuild_ms: how long a reader needs from the beginning to the end; None when nobody said.
    """

    topic: str
    settings: Mapping[str, str]
    replicas: int
    keyless: int = 0
    empty: int = 0
    looked_at: int = 0
    foreign: Sequence[ForeignRecord] = ()
    formats: Mapping[str, int] = field(default_factory=dict)
    share_groups: Collection[str] = ()
    rebuild_ms: int | None = None


def lint(subject: Subject) -> list[Lint]:
    """Everything that is wrong, errors first."""
    settings = topic_settings(subject.settings)
    found = [
        *_policy(subject, settings),
        *_tombstones(subject, settings),
        *_copies(subject),
        *_segments(subject, settings),
        *_times(subject),
        *_use(subject),
    ]
    return sorted(found, key=lambda each: each.level != "error")


def _policy(subject: Subject, settings: TopicSettings) -> Iterator[Lint]:
    fault = policy_fault(settings.cleanup_policy, _retention(subject))
    if fault is not None:
        mend = alter(subject.topic, "cleanup.policy=compact")
        if fault.code == "delete":
            mend = f"{mend}; the rows that are gone must be published again"
        yield Lint("error" if fault.loses_rows else "warning", fault.code, fault.text, mend)
    if subject.settings.get("remote.storage.enable") == "true":
        yield Lint(
            "error",
            "remote_storage",
            "remote.storage.enable is true: tiered storage and compaction exclude each other, in every Kafka so far",
            "copy the topic into a new one without tiered storage: it cannot be taken back where data was uploaded",
        )
    if subject.settings.get("unclean.leader.election.enable") == "true":
        yield Lint(
            "error",
            "unclean_election",
            "unclean.leader.election.enable is true: a copy that lags may lead, and what it lacks is lost",
            alter(subject.topic, "unclean.leader.election.enable=false"),
        )


def _tombstones(subject: Subject, settings: TopicSettings) -> Iterator[Lint]:
    window_ms = settings.tombstone_window_ms
    if subject.rebuild_ms is not None and window_ms < subject.rebuild_ms:
        yield Lint(
            "error",
            "tombstones_too_short",
            f"tombstones are sure to be there for {duration(window_ms)} only, and a rebuild takes "
            f"{duration(subject.rebuild_ms)}: a reader misses deletes and keeps the rows",
            alter(subject.topic, f"delete.retention.ms={2 * subject.rebuild_ms}"),
        )
    elif window_ms < SHORTEST_WINDOW_MS:
        yield Lint(
            "error",
            "tombstones_too_short",
            f"tombstones are sure to be there for {duration(window_ms)} only: a reader that restarts misses deletes",
            alter(subject.topic, _bounded("delete.retention.ms")),
        )


def _copies(subject: Subject) -> Iterator[Lint]:
    least = int(subject.settings.get("min.insync.replicas") or 1)
    if subject.replicas == 1:
        yield Lint(
            "warning",
            "one_replica",
            "there is one copy of each partition: a lost disk is a lost topic",
            "kafka-reassign-partitions.sh --bootstrap-server … --execute with three replicas for each partition",
        )
    elif least == 1:
        yield Lint(
            "warning",
            "min_insync",
            f"min.insync.replicas is 1 of {subject.replicas}: a record may be acknowledged and lie on one disk only",
            alter(subject.topic, "min.insync.replicas=2"),
        )
    elif least >= subject.replicas:
        yield Lint(
            "warning",
            "min_insync",
            f"min.insync.replicas is {least} of {subject.replicas}: with one broker down nobody can write",
            alter(subject.topic, f"min.insync.replicas={subject.replicas - 1}"),
        )


def _segments(subject: Subject, settings: TopicSettings) -> Iterator[Lint]:
    for name, value in (("segment.ms", settings.segment_ms), ("max.compaction.lag.ms", settings.max_compaction_lag_ms)):
        if (fault := short_segments(name, str(value))) is not None:
            yield Lint("warning", "short_segments", fault, alter(subject.topic, f"{name}={SHORTEST_SEGMENT_MS}"))
    if not settings.is_compacted:
        return
    if settings.max_compaction_lag_ms == NEVER_MS:
        yield Lint(
            "warning",
            "no_max_lag",
            "max.compaction.lag.ms is not set: below min.cleanable.dirty.ratio old rows stay for ever",
            alter(subject.topic, _bounded("max.compaction.lag.ms")),
        )
    if settings.min_cleanable_dirty_ratio < _LOW_RATIO:
        ratio = settings.min_cleanable_dirty_ratio
        times = f"about {1 / ratio:,.0f} times" if ratio > 0 else "with every closed segment"
        yield Lint(
            "warning",
            "low_ratio",
            f"min.cleanable.dirty.ratio is {ratio:g}: the cleaner writes each byte {times}",
            f"{alter(subject.topic, 'min.cleanable.dirty.ratio=0.3')}; cdc topics estimate shows the cost of both",
        )


def _times(subject: Subject) -> Iterator[Lint]:
    if not writers_date_records(subject.settings):
        return
    ahead_ms = int(subject.settings.get("message.timestamp.after.max.ms") or NEVER_MS)
    if ahead_ms > (SETTING_RULES["message.timestamp.after.max.ms"].most or NEVER_MS):
        far = "as far ahead as they like" if ahead_ms == NEVER_MS else f"{duration(ahead_ms)} ahead"
        yield Lint(
            "warning",
            "future_timestamps",
            f"writers may date records {far}: one such record keeps its segment from being closed or cleaned",
            f"{alter(subject.topic, _bounded('message.timestamp.after.max.ms'))}; first make sure that no writer's "
            "clock is further ahead, for brokers refuse its records then",
        )


def _use(subject: Subject) -> Iterator[Lint]:
    among = f" among the {subject.looked_at:,} that were read"
    if subject.keyless:
        yield Lint(
            "error", "keyless", *record_fault("keyless", f"{counted(subject.keyless, 'record')} without a key{among}")
        )
    if subject.empty:
        yield Lint(
            "warning",
            "empty_values",
            *record_fault("empty", f"{counted(subject.empty, 'record')} with an empty value{among}"),
        )
    if subject.foreign:
        yield Lint(
            "error",
            "foreign",
            f"{counted(len(subject.foreign), 'record')} among the {subject.looked_at:,} that were read are not "
            f"this bridge's; the first: {subject.foreign[0]}",
            "find who else writes here and stop it (its ACLs: kafka-acls.sh --list --topic "
            f"{subject.topic} --bootstrap-server …); then cdc reconcile --repair puts the rows right",
        )
    if len(subject.formats) > 1:
        counts = ", ".join(f"{count:,} in {name}" for name, count in sorted(subject.formats.items()))
        yield Lint(
            "warning",
            "mixed_formats",
            f"its rows are in several formats: {counts} of the last records of keys that were read; readers of one "
            "format fail at the others",
            "publish the rows again in one format (a bridge's: cdc backfill TABLE --sweep); if they come back, another "
            f"program writes here: cdc topics lint {subject.topic} -c … names records that are not the bridge's",
        )
    for group in sorted(subject.share_groups):
        yield Lint(
            "error",
            "share_group",
            f"share group {group!r} reads it: its members get records in no order, so an older row may be applied last",
            "read the topic with a consumer, or with all partitions assigned",
        )


def _retention(subject: Subject) -> str:
    retention_ms = int(subject.settings.get("retention.ms") or -1)
    return "retention.bytes" if retention_ms < 0 else duration(retention_ms)


def _bounded(setting: str) -> str:
    """The setting with the value that suits any topic, as ``cdc topics plan`` would set it."""
    rule = SETTING_RULES[setting]
    return f"{setting}={rule.most if rule.least is None else rule.least}"
