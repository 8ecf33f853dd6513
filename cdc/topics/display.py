"""Formats what ``cdc topics inspect`` found: a table and verdicts for people, a document for programs."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich import box
from rich.table import Table

from cdc.base.words import counted, duration, moment, size
from cdc.topics.inspection import PartitionReport, TopicReport
from cdc.topics.verdict import Verdict

WIDTH = 120


def as_table(report: TopicReport) -> Table:
    """Returns a table with a row for each partition."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in (
        "P",
        "On disk",
        "Offsets",
        "Stable",
        "Dense",
        "Keys",
        "Garbage",
        "Tombstones",
        "Cleaned",
        "Verdict",
    ):
        table.add_column(heading, justify="left" if heading in ("Offsets", "Verdict", "Cleaned") else "right")
    for each in report.partitions:
        stones = each.tombstones
        table.add_row(
            str(each.partition),
            size(each.disk_bytes),
            f"{each.ends.start}–{each.ends.high_watermark}",
            "end" if each.ends.last_stable == each.ends.high_watermark else str(each.ends.last_stable),
            f"{each.density:.0%}",
            str(each.keys),
            f"{'' if each.is_whole else '≥ '}{each.garbage_ratio:.0%}",
            f"{stones.waiting}+{stones.fresh}+{stones.expired}" if stones.total else "0",
            "no trace" if each.cleaned_until is None else f"to {each.cleaned_until}",
            each.verdicts[0].code.replace("_", " "),
        )
    return table


def as_lines(report: TopicReport) -> Iterator[str]:
    """Yields each verdict once, with its partitions and the remedy."""
    for verdict, partitions in _by_code(report.partitions):
        mark = "! " if verdict.needs_someone else "  "
        head = f"{mark}{verdict.code.replace('_', ' ')} (partition {_ranges(partitions)}): "
        yield from textwrap.wrap(head + verdict.text, WIDTH, subsequent_indent="    ")
        if verdict.remedy:
            yield f"    what to do: {verdict.remedy}"  # not wrapped, so that it can be copied
    if any(not each.is_whole for each in report.partitions):
        yield "  Only the newest offsets were read: the counts cover these, and there may be more garbage."
    if any(each.tombstones.total for each in report.partitions):
        yield "  Tombstones: not met by the cleaner yet + within delete.retention.ms + past it."


def as_document(reports: Sequence[TopicReport]) -> dict[str, Any]:
    """Returns all reports as plain values."""
    return {"topics": [_topic(each) for each in reports]}


def as_title(report: TopicReport) -> str:
    """Returns the heading: the topic, its size and the settings that matter to the cleaner."""
    settings = report.settings
    policy = ",".join(sorted(settings.cleanup_policy)) or "none"
    return (
        f"{report.topic}: {counted(len(report.partitions), 'partition')}, "
        f"{size(sum(each.disk_bytes for each in report.partitions))} on the leaders' disks; cleanup.policy {policy}, "
        f"ratio {settings.min_cleanable_dirty_ratio:g}, segments {duration(settings.segment_ms)}, compaction lag "
        f"{duration(settings.min_compaction_lag_ms)} to {duration(settings.max_compaction_lag_ms)}, "
        f"tombstones {duration(settings.delete_retention_ms)}"
    )


def _by_code(partitions: Iterable[PartitionReport]) -> Iterator[tuple[Verdict, list[int]]]:
    found: dict[str, tuple[Verdict, list[int]]] = {}
    for each in partitions:
        for verdict in each.verdicts:
            worst, numbers = found.get(verdict.code, (verdict, []))
            numbers.append(each.partition)
            found[verdict.code] = (max(worst, verdict, key=lambda one: one.garbage_bytes), numbers)
    return iter(sorted(found.values(), key=lambda each: not each[0].needs_someone))


def _ranges(numbers: Sequence[int]) -> str:
    """Returns numbers as ranges: ``0-3, 7``."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


def _topic(report: TopicReport) -> dict[str, Any]:
    settings = dataclasses.asdict(report.settings)
    settings["cleanup_policy"] = sorted(report.settings.cleanup_policy)
    return {
        "topic": report.topic,
        "at": moment(report.now_ms),
        "settings": settings,
        "partitions": [_partition(each) for each in report.partitions],
    }


def _partition(each: PartitionReport) -> dict[str, Any]:
    return {
        "partition": each.partition,
        "leader": each.leader,
        "start": each.ends.start,
        "last_stable": each.ends.last_stable,
        "high_watermark": each.ends.high_watermark,
        "read_from": each.read_from,
        "read_whole": each.is_whole,
        "disk_bytes": each.disk_bytes,
        "records": each.records,
        "record_bytes": each.record_bytes,
        "distinct_keys": each.keys,
        "keyless": each.keyless,
        "density": each.density,
        "garbage_records": each.garbage_records,
        "garbage_bytes": each.garbage_bytes,
        "garbage_ratio": each.garbage_ratio,
        "tombstones": dataclasses.asdict(each.tombstones),
        "cleaned_until": each.cleaned_until,
        "cleaned_after": None if each.cleaned_after_ms is None else moment(each.cleaned_after_ms),
        "dirty_bytes": each.reach.dirty_bytes,
        "dirty_ratio": each.reach.ratio,
        "verdicts": [dataclasses.asdict(verdict) for verdict in each.verdicts],
    }
