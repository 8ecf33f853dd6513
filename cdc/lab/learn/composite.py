"""Lesson: keys of several columns, and why they must not be joined into one string."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from cdc.lab.learn.classroom import AT_ONCE, Classroom, LessonRecord, Topic, fold

_ROWS = [{"region": "a-b", "user": "c"}, {"region": "a", "user": "b-c"}]
_NAMES = ["Ann", "Ben"]


def teach(room: Classroom) -> None:
    """Write two rows under joined keys and under JSON keys, then one row under two spellings of its key."""
    page = room.page
    joined, apart = room.topic("joined"), room.topic("composite")
    page.say(
        "Here are two rows of a table whose key has two columns. In one topic, the key is the columns joined with a "
        "dash. In the other it is a JSON object, which is how the bridge writes keys."
    )
    page.table(
        "Two rows, two ways to write a key",
        ("region", "user", "name", "joined", "as JSON"),
        [(row["region"], row["user"], name, _join(row), _json(row)) for row, name in zip(_ROWS, _NAMES, strict=True)],
    )
    left = {
        joined.name: _cleaned(room, joined, [(_join(row), name) for row, name in zip(_ROWS, _NAMES, strict=True)]),
        apart.name: _cleaned(room, apart, [(_json(row), name) for row, name in zip(_ROWS, _NAMES, strict=True)]),
    }
    page.table(
        "After a pass of the cleaner",
        ("topic", "offset", "key", "name"),
        [(name, each.offset, each.key, each.value) for name, records in left.items() for each in records],
    )
    room.check(fold(left[joined.name]) == {"a-b-c": "Ben"}, "one row is left under joined keys")
    room.check(len(fold(left[apart.name])) == 2, "both rows are left under JSON keys")
    page.say(
        "“a-b” with “c” and “a” with “b-c” give the same joined text. To Kafka this is one key: it takes Ben for the "
        "new version of Ann, and the cleaner removed Ann. Deleting one of them deletes both. Another separator does "
        "not help as long as a value may contain it."
    )

    spelled = orjson.dumps({"user": "c", "region": "a-b"}).decode()
    both = _cleaned(room, apart, [(spelled, "Anna")])
    page.table(
        "A second writer spells the same key in another way",
        ("offset", "key", "name"),
        [(each.offset, each.key, each.value) for each in both],
    )
    room.check(len(both) == 3, "both spellings stay")
    page.say(
        "The cleaner compares bytes. If the columns come in another order, or with one more space, or with 1.0 instead "
        "of 1, that is another key: the old row stays for ever, and a tombstone misses it. So let one function write "
        "every key. The bridge writes the columns in the order of the primary key, without spaces."
    )
    page.remember(
        "Write a key of several columns as an object or an array, never as joined text. Everybody who writes to the "
        "topic must produce the same key down to the byte, so share the code. With the columns in a fixed order, a "
        "view can also answer “everything in region a”.",
        "cdc health public.stock -c shop.yaml",
    )


def _join(row: dict[str, str]) -> str:
    return "-".join(row.values())


def _json(row: dict[str, str]) -> str:
    return orjson.dumps(row).decode()


def _cleaned(room: Classroom, topic: Topic, records: Sequence[tuple[str, str]]) -> list[LessonRecord]:
    """Write records, and return those that a pass over all of them leaves."""
    # The witness has two records: when the first is gone, the cleaner has passed.
    topic.put([*records, ("witness", "1"), ("witness", "2")])
    topic.close_segments("witness", "3")
    topic.set(min_cleanable_dirty_ratio=AT_ONCE)

    def look() -> list[LessonRecord] | None:
        found = topic.records()
        witnesses = [each.value for each in found if each.key == "witness"]
        return [each for each in found if each.key != "witness"] if witnesses == ["2", "3"] else None

    return room.until("the cleaner passes", look)
