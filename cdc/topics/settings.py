"""The settings that decide about compaction, of a topic and of its brokers' cleaner, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

NEVER_MS: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """A topic's settings, in the words of Kafka's own names."""

    cleanup_policy: frozenset[str] = frozenset({"compact"})
    segment_ms: int = 604_800_000
    segment_bytes: int = 1_073_741_824
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = NEVER_MS
    delete_retention_ms: int = 86_400_000

    @property
    def is_compacted(self) -> bool:
        """Whether the cleaner looks at the topic at all."""
        return "compact" in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """After how much time of its records a segment is closed: max.compaction.lag.ms closes segments, too."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """A broker's cleaner; the defaults are Kafka's.

    Attributes:
        is_known: the broker told them; otherwise they are defaults.
    """

    enabled: bool = True
    threads: int = 1
    buffer_bytes: int = 134_217_728
    load_factor: float = 0.9
    io_bytes_per_s: float = float("inf")
    backoff_ms: int = 15_000
    transaction_max_ms: int = 900_000
    file_delete_delay_ms: int = 60_000
    is_known: bool = False


def topic_settings(found: Mapping[str, str]) -> TopicSettings:
    """From what DescribeConfigs says; a setting that this broker does not know keeps Kafka's default."""
    default = TopicSettings()

    def number(name: str, fallback: int) -> int:
        return int(found.get(name) or fallback)

    return TopicSettings(
        # Kafka 4.2 allows an empty list: keep for ever.
        cleanup_policy=frozenset(part.strip() for part in found.get("cleanup.policy", "").split(",") if part.strip()),
        segment_ms=number("segment.ms", default.segment_ms),
        segment_bytes=number("segment.bytes", default.segment_bytes),
        min_cleanable_dirty_ratio=float(found.get("min.cleanable.dirty.ratio") or default.min_cleanable_dirty_ratio),
        min_compaction_lag_ms=number("min.compaction.lag.ms", default.min_compaction_lag_ms),
        max_compaction_lag_ms=number("max.compaction.lag.ms", default.max_compaction_lag_ms),
        delete_retention_ms=number("delete.retention.ms", default.delete_retention_ms),
    )


def cleaner_settings(found: Mapping[str, str]) -> CleanerSettings:
    """From a broker's DescribeConfigs."""
    default = CleanerSettings()
    io_bytes_per_s = float(found.get("log.cleaner.io.max.bytes.per.second") or "inf")
    return CleanerSettings(
        enabled=found.get("log.cleaner.enable", "true") != "false",
        threads=int(found.get("log.cleaner.threads") or default.threads),
        buffer_bytes=int(found.get("log.cleaner.dedupe.buffer.size") or default.buffer_bytes),
        load_factor=float(found.get("log.cleaner.io.buffer.load.factor") or default.load_factor),
        io_bytes_per_s=io_bytes_per_s if io_bytes_per_s < 1e300 else float("inf"),
        backoff_ms=int(found.get("log.cleaner.backoff.ms") or default.backoff_ms),
        transaction_max_ms=int(found.get("transaction.max.timeout.ms") or default.transaction_max_ms),
        file_delete_delay_ms=int(found.get("log.segment.delete.delay.ms") or default.file_delete_delay_ms),
        is_known=True,
    )
