"""What is wrong with a topic, and what to do: rules over the counts, without Spark or Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cdc.base.words import counted, duration
from cdc.contract.compaction import GARBAGE_SHARE, alter, policies, policy_fault, record_fault, superseded_at_most_ms
from cdc.spark.health.model import HealthFinding, Severity, TopicHealth

_SKEW: Final = 3.0
"""A partition this many times the average keeps one reader busy while the others are done."""
_SKEW_BYTES: Final = 16 * 1024 * 1024
"""Smaller partitions are read within a second, however uneven."""
_HOT_KEY_SHARE: Final = 0.2
_HOT_KEY_RECORDS: Final = 1_000


def findings(topic: TopicHealth, now_ms: int) -> tuple[HealthFinding, ...]:
    """All findings, the worst first.

    Args:
        topic: as measured.
        now_ms: what ages count from.
    """
    order: dict[Severity, int] = {"error": 0, "warning": 1, "note": 2}
    found = [*_setup(topic), *_contract(topic), *_cleaning(topic, now_ms), *_shape(topic)]
    return tuple(sorted(found, key=lambda each: order[each.severity]))


def _setup(topic: TopicHealth) -> Iterator[HealthFinding]:
    fault = policy_fault(policies(topic.settings.cleanup_policy), "retention.ms")
    if fault is not None:
        mend = alter(topic.topic, "cleanup.policy=compact")
        yield _finding(
            "error" if fault.loses_rows and topic.table is not None else "warning",
            "cleanup_policy",
            fault.text,
            f"{mend}, then cdc backfill, because rows may be gone" if fault.loses_rows else mend,
        )


def _contract(topic: TopicHealth) -> Iterator[HealthFinding]:
    odd, ours = topic.oddities, topic.table is not None
    if odd.live_alias_groups:
        keys = " and ".join(next((each.keys for each in topic.aliases if each.live > 1), ()))
        yield _finding(
            "error",
            "alias_keys",
            f"{counted(odd.live_alias_groups, 'logical key')} with several rows under different bytes, such as {keys}: "
            "compaction takes them for different keys and keeps both for ever",
            "find the second writer and stop it; then cdc reconcile --repair deletes the keys that the table has not",
        )
    if idle := odd.alias_groups - odd.live_alias_groups:
        yield _finding(
            "note",
            "alias_keys_deleted",
            f"{counted(idle, 'logical key')} with several spellings, at most one of them with a row",
            "nothing, where the table changed a key's spelling (1.0 to 1.00); otherwise look for a second writer",
        )
    if odd.split_keys:
        yield _finding(
            "error",
            "split_keys",
            f"{counted(odd.split_keys, 'key')} in more than one partition, such as {topic.split_examples[0]}: "
            "which record is the latest cannot be told, and compaction keeps one in each",
            "the partition count was changed, or a writer has another partitioner than murmur2_random: give the table "
            "a new topic (topics.names) and backfill it",
        )
    severity: Severity = "error" if ours else "warning"
    if odd.null_values:
        yield _finding(
            severity,
            "null_values",
            *record_fault("empty", f"{counted(odd.null_values, 'key')} with an empty value or the text null"),
        )
    if odd.without_key:
        yield _finding(
            severity, "without_key", *record_fault("keyless", f"{counted(odd.without_key, 'record')} without a key")
        )
    yield from _strangers(topic)


def _strangers(topic: TopicHealth) -> Iterator[HealthFinding]:
    """What another program, or another version of this one, wrote into a topic of ours."""
    if topic.table is None:
        return
    odd = topic.oddities
    for count, code, text in (
        (odd.without_header, "without_header", "without the header cdc: another program writes into this topic"),
        (odd.unknown_version, "unknown_version", "with a header that is not of version 1 of the topic contract"),
    ):
        if count:
            yield _finding(
                "error",
                code,
                f"{counted(count, 'record')} {text}",
                "take WRITE on this topic from everyone but the bridge (cdc grants), then cdc reconcile --repair",
            )
    if odd.not_json_keys:
        yield _finding(
            "error",
            "not_json_keys",
            f"{counted(odd.not_json_keys, 'key')} in another form than a JSON object",
            "find the second writer and stop it; then send a tombstone for each of these keys",
        )
    if unknown := [each.fingerprint for each in topic.schemas if each.columns is None]:
        yield _finding(
            "error",
            "unknown_schema",
            f"definitions that the schemas topic does not have: {', '.join(unknown[:5])}",
            "restart the bridge, which writes the definition in use; if it is an old one, cdc backfill writes the "
            "rows anew",
        )


def _cleaning(topic: TopicHealth, now_ms: int) -> Iterator[HealthFinding]:
    settings = topic.settings
    if "compact" not in policies(settings.cleanup_policy):
        return
    allowed_ms = superseded_at_most_ms(settings.segment_ms, settings.max_compaction_lag_ms)
    waiting_ms = 0 if topic.superseded_since_ms is None else now_ms - topic.superseded_since_ms
    if waiting_ms > allowed_ms:
        yield _finding(
            "warning",
            "compaction_overdue",
            f"a record has been superseded for {duration(waiting_ms)} and is still there; max.compaction.lag.ms and "
            f"segment.ms allow {duration(allowed_ms)}",
            "the cleaner has not passed: see whether its thread died (log-cleaner.log on the brokers, metric "
            "max-clean-time-secs), and whether the partition has had a write since: the open segment is never cleaned",
        )
    age_ms = 0 if topic.oldest_tombstone_ms is None else now_ms - topic.oldest_tombstone_ms
    if topic.expired_tombstones:
        overdue = age_ms > settings.delete_retention_ms + allowed_ms
        yield _finding(
            "warning" if overdue else "note",
            "tombstones_expired",
            f"{counted(topic.expired_tombstones, 'tombstone')} older than delete.retention.ms "
            f"({duration(settings.delete_retention_ms)}) still there, the oldest is {duration(age_ms)} old: the "
            "cleaner has not passed since their time was over",
            "see whether the cleaner's threads live (log-cleaner.log on the brokers); lower max.compaction.lag.ms to "
            "have it pass more often"
            if overdue
            else "nothing: they go when the cleaner passes the next time",
        )
    if topic.garbage_ratio > GARBAGE_SHARE and waiting_ms <= allowed_ms:
        yield _finding(
            "note",
            "garbage",
            f"{topic.garbage_ratio:.0%} of the bytes are superseded",
            f"nothing yet; if new readers must start faster, lower min.cleanable.dirty.ratio "
            f"({settings.min_cleanable_dirty_ratio:g}) or max.compaction.lag.ms",
        )


def _shape(topic: TopicHealth) -> Iterator[HealthFinding]:
    largest = max(topic.partitions, key=lambda each: each.bytes)
    average = topic.total("bytes") / len(topic.partitions)
    if largest.bytes > _SKEW_BYTES and largest.bytes > _SKEW * average:
        yield _finding(
            "warning",
            "partition_skew",
            f"partition {largest.partition} holds {largest.bytes / average:.1f} times the average of all",
            "look at the hot keys below: a few keys with many records lie there, or the keys are few",
        )
    records = topic.total("records")
    if topic.hot_keys and topic.hot_keys[0].records > max(_HOT_KEY_RECORDS, _HOT_KEY_SHARE * records):
        hot = topic.hot_keys[0]
        yield _finding(
            "note",
            "hot_key",
            f"key {hot.key} has {hot.records:,} of {records:,} records",
            "see whether the application must update one row that often; compaction keeps up, readers read all of it",
        )


def _finding(severity: Severity, code: str, text: str, remedy: str) -> HealthFinding:
    return HealthFinding(severity=severity, code=code, text=text, remedy=remedy)
