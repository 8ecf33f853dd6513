"""The rules for a topic that holds state: what it requires of Kafka's settings and of its records. Pure.

``cdc topics lint``, ``cdc topics plan``, ``cdc topics why`` and Spark's health job judge topics in different ways: by
the settings alone, against a wish, by what the cleaner left, and by every record. This module has the rules that they
share.

Sources: Kafka's topic configuration reference; ``LogCleaner`` for what is dropped and when; KIP-354 for
``max.compaction.lag.ms``; KIP-937 for timestamps ahead; KIP-1030 for short segments; KIP-1161 for an empty policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

from cdc.base.words import duration

NEVER_MS: Final = (1 << 63) - 1
_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS
_DAY_MS: Final = 24 * _HOUR_MS

SHORTEST_SEGMENT_MS: Final = _MINUTE_MS
"""Each segment is three files, and Kafka 5.0 will refuse a shorter time."""
SHORTEST_WINDOW_MS: Final = _MINUTE_MS
"""A reader that restarts may need this long until it reads on; with less, it misses deletes."""
GARBAGE_SHARE: Final = 0.5
"""A topic with this share of superseded records is worth attention: new readers throw away half of what they fetch."""


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """A topic's settings; the attributes have Kafka's names."""

    cleanup_policy: frozenset[str] = frozenset({"compact"})
    segment_ms: int = 604_800_000
    segment_bytes: int = 1_073_741_824
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = NEVER_MS
    delete_retention_ms: int = 86_400_000

    @property
    def is_compacted(self) -> bool:
        """Whether the topic is compacted at all."""
        return "compact" in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """The record time after which a segment is closed; max.compaction.lag.ms closes segments, too."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms

    @property
    def tombstone_window_ms(self) -> int:
        """How long a tombstone is sure to stay.

        Its clock starts when the cleaner first meets it, and the cleaner waits for the compaction lag before that.
        """
        return self.delete_retention_ms + self.min_compaction_lag_ms


def topic_settings(found: Mapping[str, str]) -> TopicSettings:
    """Reads what DescribeConfigs says; a setting that this broker does not know keeps Kafka's default."""
    default = TopicSettings()

    def number(name: str, fallback: int) -> int:
        return int(found.get(name) or fallback)

    return TopicSettings(
        cleanup_policy=policies(found.get("cleanup.policy", "")),
        segment_ms=number("segment.ms", default.segment_ms),
        segment_bytes=number("segment.bytes", default.segment_bytes),
        min_cleanable_dirty_ratio=float(found.get("min.cleanable.dirty.ratio") or default.min_cleanable_dirty_ratio),
        min_compaction_lag_ms=number("min.compaction.lag.ms", default.min_compaction_lag_ms),
        max_compaction_lag_ms=number("max.compaction.lag.ms", default.max_compaction_lag_ms),
        delete_retention_ms=number("delete.retention.ms", default.delete_retention_ms),
    )


def superseded_at_most_ms(segment_ms: int, max_compaction_lag_ms: int) -> int:
    """Returns how long a superseded record may stay: its segment has to be closed first, and then to be due."""
    return max_compaction_lag_ms + segment_ms


def policies(text: str) -> frozenset[str]:
    """Returns the policies that ``cleanup.policy`` lists. Kafka 4.2 also allows none: records stay for ever."""
    return frozenset(part.strip() for part in text.split(",") if part.strip())


class SettingRule(NamedTuple):
    """What a topic that holds state requires of one setting.

    Attributes:
        reason: what the setting is for.
        least: the lowest value that suits every such topic; None if there is no limit.
        most: the highest value that suits every such topic; None if there is no limit.
        lowering: what a lower value may lose or stop; empty if it is safe.
    """

    reason: str
    least: int | None = None
    most: int | None = None
    lowering: str = ""


SETTING_RULES: Final[Mapping[str, SettingRule]] = {
    "cleanup.policy": SettingRule("a state topic keeps the latest record of each key, however old it is"),
    "delete.retention.ms": SettingRule(
        "how long a reader may be away and still see every tombstone",
        least=_DAY_MS,
        lowering="a reader that is behind misses deletes: check with cdc topics tombstones first",
    ),
    "max.compaction.lag.ms": SettingRule(
        "bounds how long a superseded row stays while too little is dirty for the ratio", most=7 * _DAY_MS
    ),
    "max.message.bytes": SettingRule(
        "the largest row must fit",
        lowering="a writer whose rows fit now would be stopped: make sure that there is none",
    ),
    "message.timestamp.after.max.ms": SettingRule(
        "a record dated far ahead keeps its segment from being closed and cleaned",
        most=_HOUR_MS,
        lowering="a writer whose clock is ahead by more would be refused: make sure that there is none",
    ),
    "min.cleanable.dirty.ratio": SettingRule("when the cleaner starts: lower keeps rebuilds short, and rewrites more"),
    "min.compaction.lag.ms": SettingRule("how long readers are sure to see each version of a row"),
    "min.insync.replicas": SettingRule("the least number of brokers that have an acknowledged record"),
    "partitions": SettingRule("a key's partition depends on their count"),
    "retention.bytes": SettingRule(
        "time alone decides what goes", lowering="the oldest records beyond that are deleted at once"
    ),
    "retention.ms": SettingRule(
        "how long a change stays in the history", lowering="changes older than that are deleted at once"
    ),
    "segment.ms": SettingRule(
        "the active segment is never cleaned, so it must be closed now and then", least=SHORTEST_SEGMENT_MS
    ),
}


class PolicyFault(NamedTuple):
    """Why ``cleanup.policy`` does not suit state; with ``loses_rows``, the latest row of a key may be deleted."""

    code: Literal["compact_delete", "delete", "keeps_all"]
    text: str
    loses_rows: bool


def policy_fault(policy: frozenset[str], retention: str) -> PolicyFault | None:
    """Returns what is wrong with ``cleanup.policy``; None if it is ``compact``. ``retention`` says in words how long
    records stay."""
    if policy == {"compact", "delete"}:
        text = f"retention deletes the latest row of every key that has not changed within {retention}"
        return PolicyFault("compact_delete", f"cleanup.policy is compact,delete: {text}", loses_rows=True)
    if "delete" in policy:
        text = f"records older than {retention} are deleted, rows that never changed first"
        return PolicyFault("delete", f"cleanup.policy is delete: {text}", loses_rows=True)
    if not policy:
        return PolicyFault("keeps_all", "cleanup.policy is empty: every record stays for ever", loses_rows=False)
    return None


RecordFault: TypeAlias = Literal["keyless", "empty"]

_RECORD_FAULTS: Final[Mapping[RecordFault, tuple[str, str]]] = {
    "keyless": (
        "the cleaner drops them, and no record ever replaces one",
        "find the writer that sends them and stop it; then publish their content again with keys",
    ),
    "empty": (
        "they do not delete anything, and their keys stay for ever",
        "let the writer send real nulls, because only a record without a value is a tombstone; then send one for each "
        "such key",
    ),
}


def record_fault(fault: RecordFault, which: str) -> tuple[str, str]:
    """Returns what is wrong with faulty records (``which``, like "3 records without a key"), and what corrects it."""
    why, remedy = _RECORD_FAULTS[fault]
    return f"{which}: {why}", remedy


def writers_date_records(found: Mapping[str, str]) -> bool:
    """Whether records have their writers' timestamps, and not the brokers', so that a limit on timestamps matters."""
    return found.get("message.timestamp.type", "CreateTime") == "CreateTime"


def short_segments(setting: str, value: str) -> str | None:
    """Returns why the time after which segments are closed is too short; None if it is long enough."""
    if setting not in ("segment.ms", "max.compaction.lag.ms") or int(value) >= SHORTEST_SEGMENT_MS:
        return None
    return f"{setting} is {duration(int(value))}: each segment is three files, and Kafka 5.0 will refuse that"


def alter(topic: str, setting: str) -> str:
    """Returns the command that changes a topic's setting."""
    return (
        f"kafka-configs.sh --bootstrap-server … --alter --entity-type topics --entity-name {topic} "
        f"--add-config {setting}"
    )
