"""Lesson: the segments, head and tail of a log, and what a pass of the cleaner does to them."""

from __future__ import annotations

from collections.abc import Iterator

from cdc.lab.learn.classroom import AT_ONCE, NEVER, Classroom, Topic
from cdc.topics.layout import Layout

_KEYS = 20
_VERSIONS = 30
_HEADINGS = ("part", "offsets", "records", "bytes", "")


def teach(room: Classroom) -> None:
    """Fill three segments, let the cleaner pass, fill two more, and let it pass again."""
    page, topic = room.page, room.topic("log")
    _fill(topic, segments=3)
    page.say(
        f"{topic.name} has one partition. Three times, this lesson wrote {_VERSIONS} versions of {_KEYS} keys to it, "
        "and then paused for longer than segment.ms. A partition is a sequence of files, the segments. Each is named "
        "after its first offset. Kafka appends to the last one only, the active segment."
    )
    layout = topic.layout()
    room.check(len(layout.segments) == 4 and layout.cleaned_ms is None, "there are four segments, none cleaned")
    page.table("Before any pass: all of it is head", _HEADINGS, _rows(topic, layout))
    page.say(
        "The head is everything that was appended since the last pass: all records are there, and the offsets have no "
        "gaps. The cleaner first reads the closed segments of the head, and notes the last offset of each key in a map "
        "(24 bytes a key). Then it copies the log from its beginning to the end of those segments, and leaves out each "
        "record whose key has a later offset in the map. New files replace the old ones, one group of segments after "
        "the other. Consumers can read all the time."
    )
    first = _pass(room, topic, layout)
    page.table("After the first pass", _HEADINGS, _rows(topic, first))
    page.say(
        "The cleaned part is now the tail: one record for each key, with gaps between the offsets. It is a single "
        "file, because the cleaner merges small segments. The active segment was not touched."
    )

    topic.set(min_cleanable_dirty_ratio=NEVER)
    _fill(topic, segments=2)
    grown = topic.layout()
    page.table("Written again: a tail, and a new head", _HEADINGS, _rows(topic, grown))
    closed = grown.cleaned_bytes + sum(each.size for each in grown.segments[:-1])
    dirty = closed - grown.cleaned_bytes
    page.say(
        f"The dirty ratio is the head's share of all closed bytes: {dirty:,} / {closed:,} = {dirty / closed:.2f}. The "
        "next pass starts when this ratio exceeds min.cleanable.dirty.ratio. The pass will read "
        f"{dirty:,} bytes for the map and then {closed:,} for the copy, including the tail. The lower you set the "
        "ratio, the more often the cleaner copies the tail: if every record survives, it writes each byte ten times "
        "at 0.1, and twice at 0.5."
    )
    second = _pass(room, topic, grown)
    page.table("After the second pass", _HEADINGS, _rows(topic, second))
    room.check(second.cleaned_until > first.cleaned_until, "the second pass got further than the first")
    page.remember(
        f"The cleaner got to offset {first.cleaned_until} in its first pass, and to {second.cleaned_until} in its "
        "second. Each pass reads the dirty head, and copies everything before it again. Records in the active "
        "segment wait until an append closes it. On a partition that nobody writes to, they wait for ever.",
        "cdc topics inspect users -b localhost:9092",
        "cdc topics estimate users -b localhost:9092",
    )


def _fill(topic: Topic, segments: int) -> None:
    """Write ``segments`` closed segments; one more is active after that, and holds a single record."""
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
        # Read the records first: if they show that the pass is over, a layout read after them shows it, too.
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
