"""Lesson: eight records before and after compaction, with their offsets."""

from __future__ import annotations

from contextlib import closing

from confluent_kafka import TopicPartition

from cdc.kafka.replay.client import open_consumer
from cdc.lab.learn.classroom import AT_ONCE, Classroom, LessonRecord, Topic, fold

_WRITTEN = [("A", "1"), ("B", "2"), ("A", "3"), ("C", "1"), ("B", "4"), ("A", "5"), ("C", "2"), ("B", "6")]


def teach(room: Classroom) -> None:
    """Write records, show them, let the cleaner pass, and show them again."""
    page, topic = room.page, room.topic("compaction")
    topic.put(_WRITTEN)
    before = topic.records()
    room.check([(each.key, each.value) for each in before] == _WRITTEN, "all eight records are there")
    page.say(
        f"This lesson wrote eight records to {topic.name}, a topic with cleanup.policy=compact. The cleaner stays "
        "away for now: it starts when the dirty share exceeds min.cleanable.dirty.ratio, which is 1 here."
    )
    newest = {each.key: each.offset for each in before}
    page.table(
        "Before",
        ("offset", "key", "value", "superseded by"),
        [
            (each.offset, each.key, each.value, _next(before, each) if newest[each.key] != each.offset else None)
            for each in before
        ],
    )
    page.say(
        "All of them lie in the active segment, the one that Kafka appends to. The cleaner never touches it. No timer "
        "closes it either: the first append after segment.ms (half a second here) does. So the lesson waits, writes "
        "a ninth record, and lets the cleaner start."
    )
    topic.close_segments("D", "7")
    topic.set(min_cleanable_dirty_ratio=AT_ONCE)
    after = room.until("the cleaner removes superseded records", lambda: _clean(topic))

    kept = {each.offset: each for each in after}
    room.check(set(before) >= set(after[:-1]), "every kept record has its old offset")
    room.check(fold(after) == {**fold(before), "D": "7"}, "the state is the same as before")
    page.table(
        "After one pass of the cleaner",
        ("offset", "key", "value", ""),
        [
            (each.offset, each.key, each.value, "kept" if each.offset in kept else "gone")
            for each in [*before, after[-1]]
        ],
    )
    landed = _first_at(topic, 0)
    room.check(landed == after[0].offset, "a read at a removed offset lands on the next record")
    page.say(
        f"{len(before) + 1 - len(after)} records are gone, {len(after)} are left. Kafka renumbered and reordered "
        f"nothing. A consumer that asks for offset 0 now gets the next record that exists, at offset {landed}. So end "
        f"minus start, {after[-1].offset + 1 - before[0].offset}, is not the number of records."
    )
    page.remember(
        "The newest record of each key stays for ever, and keeps its offset. Older records stay until the cleaner "
        "passes. So a topic is never free of duplicates: when you read it, let a later record of a key replace the "
        "earlier one. The cleaner works on closed segments only, and only an append closes a segment.",
        "cdc topics inspect users -b localhost:9092",
    )


def _next(records: list[LessonRecord], old: LessonRecord) -> str:
    newer = next(each for each in records if each.key == old.key and each.offset > old.offset)
    return f"offset {newer.offset}"


def _clean(topic: Topic) -> list[LessonRecord] | None:
    records = topic.records()
    return records if len(records) == len({each.key for each in records}) else None


def _first_at(topic: Topic, offset: int) -> int | None:
    with closing(open_consumer(topic.options)) as consumer:
        consumer.assign([TopicPartition(topic.name, 0, offset)])
        message = consumer.poll(30)
        return None if message is None or message.error() is not None else message.offset()
