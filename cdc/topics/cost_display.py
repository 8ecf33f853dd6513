"""Formats what ``cdc topics estimate`` found: tables and lines for people, a document for programs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

from rich import box
from rich.table import Table

from cdc.base.words import counted, duration, size
from cdc.contract.compaction import alter
from cdc.topics.cost import (
    SHOWN_RATIOS,
    buffer_for,
    head_room,
    least_passes,
    map_keys,
    seconds,
    wanted_ratio,
    wanted_segment_bytes,
    write_amplification,
)
from cdc.topics.estimation import TopicCost


def cost_table(found: TopicCost) -> Table:
    """Returns a table with a row for each partition."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("P", "Clean", "Dirty", "Active", "Dirty keys", "Passes", "Read: map", "Read: copy", "Written"):
        table.add_column(title, justify="right")
    for each in found.partitions:
        sums = (sum(getattr(one, name) for one in each.passes) for name in ("indexed", "copied", "written"))
        table.add_row(
            str(each.partition),
            size(each.clean_bytes),
            size(each.dirty_bytes),
            size(each.active_bytes),
            f"{each.dirty_keys:,}",
            str(len(each.passes)),
            *(size(round(amount)) for amount in sums),
        )
    return table


def cost_lines(found: TopicCost, bytes_per_s: float) -> Iterator[str]:
    """Yields lines about time and disk, the cost of the ratio, and what to change."""
    work, cleaner, largest = found.work, found.cleaner, found.largest
    log_bytes = largest.clean_bytes + largest.dirty_bytes
    room = head_room(log_bytes, found.settings.segment_bytes, bytes_per_s, cleaner.file_delete_delay_ms)
    took = seconds(work.total, bytes_per_s)
    pace = f"{duration(round(took * 1_000))} at {size(round(bytes_per_s))}/s" if took else "no throttle is set"
    yield (
        f"  the next cleaning reads {size(round(work.indexed + work.copied))} and writes {size(round(work.written))}: "
        f"{pace}; it needs up to {size(round(room))} of free disk"
    )
    source = "the broker's settings" if cleaner.is_known else "Kafka's defaults, because we may not read the broker's"
    yield (
        f"  a map holds {map_keys(cleaner):,} keys ({size(cleaner.buffer_bytes)} for "
        f"{counted(cleaner.threads, 'thread')}; {source})"
    )
    shown = ", ".join(f"{ratio:g}: {write_amplification(ratio, found.survivors):.1f}" for ratio in SHOWN_RATIOS)
    yield f"  bytes written by the cleaner per byte appended, by min.cleanable.dirty.ratio: {shown}"
    yield f"  ({found.survivors:.0%} of the dirty bytes survive their first pass; the ratio is now {found.settings.min_cleanable_dirty_ratio:g})"  # noqa: E501 - one sentence
    for text, remedy in advice(found):
        yield f"! {text}"
        yield f"    what to do: {remedy}"


def advice(found: TopicCost) -> Iterator[tuple[str, str]]:
    """Yields what should change, and the command for it."""
    most, cleaner = max(len(each.passes) for each in found.partitions), found.cleaner
    if most > 1:
        wanted = buffer_for(found.most_keys, cleaner)
        yield (
            f"{most} passes, each of which copies the clean part again: the map is too small for "
            f"{found.most_keys:,} dirty keys",
            "kafka-configs.sh --bootstrap-server … --alter --entity-type brokers --entity-default --add-config "
            f"log.cleaner.dedupe.buffer.size={wanted}",
        )
    ratio, now = wanted_ratio(found.survivors), found.settings.min_cleanable_dirty_ratio
    if now < ratio:
        yield (
            f"with min.cleanable.dirty.ratio {now:g} the cleaner writes each byte "
            f"{write_amplification(now, found.survivors):.0f} times",
            alter(found.topic, f"min.cleanable.dirty.ratio={ratio:g}"),
        )
    largest = found.largest
    log_bytes = largest.clean_bytes + largest.dirty_bytes
    segment = wanted_segment_bytes(log_bytes)
    if largest.active_bytes > 2 * segment and found.settings.segment_bytes > segment:
        yield (
            f"{largest.active_bytes / log_bytes:.0%} of partition {largest.partition} lie in the active segment, which "
            "no pass cleans",
            alter(found.topic, f"segment.bytes={segment}"),
        )


def cost_document(found: TopicCost, bytes_per_s: float) -> dict[str, Any]:
    """Returns the estimate as plain values. Bytes are whole numbers, and an infinite rate is null."""
    work, largest = found.work, found.largest
    log_bytes = largest.clean_bytes + largest.dirty_bytes
    return {
        "topic": found.topic,
        "partitions": [
            {
                **{name: value for name, value in dataclasses.asdict(each).items() if name != "passes"},
                "passes": [
                    {name: round(value) for name, value in dataclasses.asdict(one).items()} for one in each.passes
                ],
            }
            for each in found.partitions
        ],
        "indexed_bytes": round(work.indexed),
        "copied_bytes": round(work.copied),
        "written_bytes": round(work.written),
        "bytes_per_second": None if math.isinf(bytes_per_s) else bytes_per_s,
        "seconds": None if math.isinf(bytes_per_s) else seconds(work.total, bytes_per_s),
        "free_disk_bytes": round(
            head_room(log_bytes, found.settings.segment_bytes, bytes_per_s, found.cleaner.file_delete_delay_ms)
        ),
        "map_keys": map_keys(found.cleaner),
        "least_passes": least_passes(found.most_keys, found.cleaner),
        "survivors": found.survivors,
        "write_amplification": {f"{ratio:g}": write_amplification(ratio, found.survivors) for ratio in SHOWN_RATIOS},
        "wanted_ratio": wanted_ratio(found.survivors),
        "wanted_segment_bytes": wanted_segment_bytes(log_bytes),
        "wanted_buffer_bytes": buffer_for(found.most_keys, found.cleaner),
        "advice": [{"text": text, "remedy": remedy} for text, remedy in advice(found)],
    }
