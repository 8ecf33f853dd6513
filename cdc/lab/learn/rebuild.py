"""Lesson: a service reads its whole state back from offset 0 after a pass of the cleaner, and nothing is missing."""

from __future__ import annotations

import random
import secrets
import time
from contextlib import closing

from confluent_kafka import Producer

from cdc.base.broker_log import BROKER_LOG
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.replay.bounded import open_once, partitions_of, read_until, topic_ends
from cdc.lab.learn.classroom import AT_ONCE, NEVER, Classroom, LessonRecord, Topic, fold

_PARTITIONS = 3
_WRITES = 6_000
_KEYS = 400
_DELETED = 0.1


def teach(room: Classroom) -> None:
    """Write as a service would, lose the state, and read it back."""
    page, topic = room.page, room.topic("rebuild", partitions=_PARTITIONS)
    state = _work(topic)
    written = topic.records()
    room.check(fold(written) == state, "the records of the topic add up to the service's state")
    page.say(
        f"A service wrote {len(written):,} changes of {_KEYS} accounts to {topic.name}, which has {_PARTITIONS} "
        f"partitions. About one change in ten is a delete. The service holds {len(state):,} accounts in memory. Now "
        "the cleaner passes, and the service loses its memory."
    )
    topic.close_segments("marker", None, range(_PARTITIONS))
    topic.set(min_cleanable_dirty_ratio=AT_ONCE)
    room.until("the cleaner removes superseded records", lambda: _half(topic, len(written)))
    # The Kafka transaction may close another segment. What the cleaner took then would be missing from what is shown.
    topic.set(min_cleanable_dirty_ratio=NEVER)
    _commit_nothing_new(room, topic)

    began = time.monotonic()
    rebuilt, rows = _rebuild(topic)
    took = time.monotonic() - began
    page.table(
        "Read from offset 0 to the ends noted at the start",
        ("partition", "end", "last record", "read", "accounts"),
        rows,
    )
    room.check(rebuilt == state, "the rebuilt state is the state that was lost")
    page.say(
        f"The service wrote {len(written):,} records, and had to read {sum(row[3] for row in rows):,} of them, which "
        f"took {took:.2f} s. They come to {len(rebuilt):,} accounts, each equal to what the service held before."
    )
    hidden = next(row for row in rows if row[1] != row[2] + 1)
    page.say(
        f"When is a rebuild complete? Not when nothing arrives for a while: a slow broker looks the same. Nor when you "
        f"have seen the record before the end: partition {hidden[0]} ends at {hidden[1]}, but its last record is at "
        f"{hidden[2]}, because the end of a Kafka transaction takes an offset that no consumer gets. Ask for the end "
        "offsets first, then read until your position reaches them."
    )
    page.remember(
        "A compacted topic holds the final value of every key, so a service that lost everything can begin at offset "
        "0. It reads all partitions, without a consumer group. It is ready when its position has reached the end "
        "offsets that it asked for at the start. Measure how long this takes before you need it.",
        "cdc topics rebuild-test users -b localhost:9092",
    )


def _work(topic: Topic) -> dict[str, str]:
    """Do what the service does: change its own state, and write each change to the topic."""
    chance, state = random.Random(7), dict[str, str]()
    changes: list[tuple[str, str | None]] = []
    for number in range(_WRITES):
        key = f"account-{chance.randrange(_KEYS):03}"
        value = None if chance.random() < _DELETED else f'{{"balance": {number}}}'
        changes.append((key, value))
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value
    topic.put(changes)
    return state


def _half(topic: Topic, written: int) -> list[LessonRecord] | None:
    """Returns the records once every partition is down to less than half of its share; None before."""
    records = topic.records()
    few = written / _PARTITIONS / 2
    counts = [sum(each.partition == number for each in records) for number in range(_PARTITIONS)]
    return records if all(count < few for count in counts) else None


def _commit_nothing_new(room: Classroom, topic: Topic) -> None:
    """Run a Kafka transaction that changes no account; its commit marker takes an offset in partition 0."""
    before = _ends(topic)[0]
    producer = Producer(
        {**topic.options, "transactional.id": f"{topic.name}-{secrets.token_hex(3)}"}, logger=BROKER_LOG
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic.name, key="marker", partition=0)
    producer.commit_transaction(30)
    # The commit is decided, and acknowledged, before the marker is written to the partitions.
    room.until("the marker of a Kafka transaction", lambda: True if _ends(topic)[0] == before + 2 else None)


def _ends(topic: Topic) -> dict[int, int]:
    return {number: end for (_, number), end in topic_ends(BrokerAdmin(topic.options), topic.name).items()}


def _rebuild(topic: Topic) -> tuple[dict[str, str], list[tuple[int, int, int, int, int]]]:
    """Returns the state, and for each partition: number, end, last offset, records, keys."""
    admin = BrokerAdmin(topic.options)
    with closing(open_once(admin)) as reader:
        partitions = partitions_of(admin, topic.name)
        reader.add(dict.fromkeys(partitions, 0))
        ends = reader.high_watermarks(partitions)
        found: dict[int, list[LessonRecord]] = {number: [] for _, number in partitions}
        for each in read_until(reader, ends):
            value = None if each.value is None else each.value.decode()
            found[each.partition].append(LessonRecord(each.partition, each.offset, (each.key or b"").decode(), value))
    states = {number: fold(records) for number, records in found.items()}
    rows = [
        (number, ends[topic.name, number], records[-1].offset, len(records), len(states[number]))
        for number, records in found.items()
    ]
    return {key: value for each in states.values() for key, value in each.items()}, rows
