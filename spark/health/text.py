"""The report on a terminal: each topic with its findings and what to do, and the verdict at the end."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from cdc.base.words import counted, duration, moment, size
from cdc.spark.health.model import HealthReport, TopicHealth

WIDTH = 120


def as_text(report: HealthReport) -> str:
    """Returns lines of at most ``WIDTH`` characters, unless a key is longer, ending with a newline."""
    lines = [line for topic in report.topics for line in [*_topic(topic, report.measured_ms), ""]]
    errors = sum(each.severity == "error" for topic in report.topics for each in topic.findings)
    verdict = "healthy" if report.healthy else f"not healthy: {counted(errors, 'error')}"
    return "\n".join([*lines, f"{counted(len(report.topics), 'topic')} at {report.kafka}: {verdict}"]) + "\n"


def _topic(topic: TopicHealth, now_ms: int) -> Iterator[str]:
    yield f"{topic.topic}" + (f" ({topic.table})" if topic.table else "")
    yield (
        f"  {counted(topic.total('records'), 'record')}, {size(topic.total('bytes'))}: "
        f"{counted(topic.total('live_keys'), 'live key')}, {counted(topic.total('tombstones'), 'tombstone')}, "
        f"{topic.total('superseded_records'):,} superseded ({topic.garbage_ratio:.0%} of the bytes)"
    )
    yield f"  produced {_range(topic)}; read in {topic.seconds:.1f} s"
    if topic.superseded_since_ms is not None:
        yield f"  a superseded record has waited for the cleaner for {duration(now_ms - topic.superseded_since_ms)}"
    if topic.total("tombstones"):
        ages = ", ".join(f"{bar.count:,} {bar.label}" for bar in topic.tombstone_ages if bar.count)
        yield f"  tombstones by age: {ages}; {topic.expired_tombstones:,} older than delete.retention.ms"
    spread = ", ".join(f"{bar.count:,} with {bar.label}" for bar in topic.records_per_key if bar.count)
    yield f"  keys by records: {spread or 'none'}"
    if topic.hot_keys and topic.hot_keys[0].records > 1:
        hot = "; ".join(f"{_short(each.key)} {each.records:,}" for each in topic.hot_keys[:3])
        yield f"  most records: {hot}"
    yield f"  partitions: {_partitions(topic)}"
    if topic.oldest_schema is not None:
        uses = ", ".join(f"{each.fingerprint} {each.live_keys:,} live of {each.records:,}" for each in topic.schemas)
        yield from textwrap.wrap(f"schemas: {uses}; oldest in use {topic.oldest_schema}", WIDTH, initial_indent="  ")
    for finding in topic.findings:
        mark = f"  {finding.severity.upper():<8}"
        yield from textwrap.wrap(finding.text, WIDTH, initial_indent=mark, subsequent_indent=" " * len(mark))
        yield from textwrap.wrap(f"what to do: {finding.remedy}", WIDTH, initial_indent=" " * 10, subsequent_indent=" " * 10)  # fmt: skip  # noqa: E501 - one call
    if not topic.findings:
        yield "  OK"


def _range(topic: TopicHealth) -> str:
    oldest = [each.oldest_ms for each in topic.partitions if each.oldest_ms is not None]
    newest = [each.newest_ms for each in topic.partitions if each.newest_ms is not None]
    return f"{moment(min(oldest))} to {moment(max(newest))}" if oldest else "never"


def _partitions(topic: TopicHealth) -> str:
    sizes = [each.bytes for each in topic.partitions]
    live = [each.live_keys for each in topic.partitions]
    return f"{len(sizes)}, {size(min(sizes))} to {size(max(sizes))}, {min(live):,} to {max(live):,} live keys"


def _short(key: str) -> str:
    return key if len(key) <= 60 else key[:57] + "…"
