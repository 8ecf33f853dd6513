"""Lesson: segments, head and tail of a log, and what a pass of the cleaner does to them."""

from __future__ import annotations

from collections.abc import Iterator

from cdc.lab.learn.classroom import AT_ONCE, NEVER, Classroom, Topic
from cdc.topics.layout import Layout

_KEYS = 20
_VERSIONS = 30
_HEADINGS = ("part", "offsets", "records", "bytes", "")


def teach(room: Classroom) -> None:
    """Three segments, a pass, two more, and another pass."""
    page, topic = room.page, room.topic("log")
    _fill(topic, segments=3)
    page.say(
        f"{topic.name} has one partition, and got {_VERSIONS} versions of {_KEYS} keys three times, with a pause "
        "longer than segment.ms between them. A partition is a row of files, the segments. Each is named after its "
        "first offset. Only the last one, the active segment, is written to."
    )
    layout = topic.layout()
    room.check(len(layout.segments) == 4 and layout.cleaned_ms is None, "there are four segments, none cleaned")
    page.table("Before any pass: all of it is head", _HEADINGS, _rows(topic, layout))
    page.say(
        "The head is what was appended since the last pass: every record in its place, offsets without gaps. The "
        "cleaner reads closed segments of the head first, and puts the last offset of each key into a map (24 bytes "
        "a key). Then it copies the log from its beginning up to there, and leaves out what the map knows a newer "
        "record of. New files replace the old ones, segment group by segment group; reading goes on meanwhile."
    )
    first = _pass(room, topic, layout)
    page.table("After the first pass", _HEADINGS, _rows(topic, first))
    page.say(
        "What was cleaned is the tail now: one record for each key, with gaps between the offsets, in one file, "
        "because small segments are merged. The active segment was left alone, whatever is in it."
    )

    topic.set(min_cleanable_dirty_ratio=NEVER)
    _fill(topic, segments=2)
    grown = topic.layout()
    page.table("Written again: a tail, and a new head", _HEADINGS, _rows(topic, grown))
    closed = grown.cleaned_bytes + sum(each.size for each in grown.segments[:-1])
    dirty = closed - grown.cleaned_bytes
    page.say(
        f"The dirty ratio is the head's share of all closed bytes: {dirty:,} / {closed:,} = {dirty / closed:.2f}. The "
        f"next pass starts when it is above min.cleanable.dirty.ratio. It reads {dirty:,} bytes for the map and then "
        f"{closed:,} for the copy, the tail among them. The lower the ratio, the more often the tail is copied: if "
        "every record survives, the cleaner writes each byte ten times at 0.1, and twice at 0.5."
    )
    second = _pass(room, topic, grown)
    page.table("After the second pass", _HEADINGS, _rows(topic, second))
    room.check(second.cleaned_until > first.cleaned_until, "the second pass came further than the first")
    page.remember(
        f"The cleaner came as far as offset {first.cleaned_until} in its first pass and {second.cleaned_until} in its "
        "second. Each pass reads the dirty head, and copies everything before it again. What is in the active "
        "segment waits, and on a partition that nobody writes to it waits for ever.",
        "cdc topics inspect users -b localhost:9092",
        "cdc topics estimate users -b localhost:9092",
    )


def _fill(topic: Topic, segments: int) -> None:
    """So many segments, and one more that is active and holds a single record."""
    for number in range(segments):
        if number:
            topic.close_segments("key-00", "closes the segment before")
        versions = [(f"key-{key:02}", f"version {version}") for version in range(_VERSIONS) for key in range(_KEYS)]
        topic.put(versions)
    topic.close_segments("key-00", "closes the segment before")


def _pass(room: Classroom, topic: Topic, before: Layout) -> Layout:
    """Let the cleaner pass over every closed segment."""
    active = before.segments[-1].base
    topic.set(min_cleanable_dirty_ratio=AT_ONCE)

    def cleaned() -> Layout | None:
        # Records first: a layout that is read behind them is of after the pass.
        left = sum(each.offset < active for each in topic.records())
        return topic.layout() if left == _KEYS else None

    return room.until(f"a pass up to offset {active}", cleaned)


def _rows(topic: Topic, layout: Layout) -> Iterator[tuple[object, ...]]:
    records = topic.records()
    parts = [("tail", layout.start, layout.cleaned_until, layout.cleaned_bytes, "cleaned, compact")]
    ends = [*(each.base for each in layout.segments[1:]), layout.end]
    for segment, end in zip(layout.segments, ends, strict=True):
        state = "active, never cleaned" if segment is layout.active else "closed, dirty"
        parts.append(("head", segment.base, end, segment.size, state))
    for name, start, end, size, state in parts:
        if end > start:
            count = sum(start <= each.offset < end for each in records)
            yield name, f"{start:,}–{end - 1:,}", count, size, state
