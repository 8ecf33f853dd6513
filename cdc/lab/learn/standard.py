"""Lesson: the same writes in a compacted and in a standard topic, compared in disk use, rebuild and reads.

``python -m tests.benchmarks compacted`` also measures with ``Pair``, and takes longer.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from statistics import median
from typing import Final, NamedTuple

from confluent_kafka import Producer, TopicPartition

from cdc.base.broker_log import BROKER_LOG
from cdc.base.words import size
from cdc.kafka.replay.client import open_consumer
from cdc.lab.learn.classroom import AT_ONCE, NEVER, Classroom, Topic, begin
from cdc.topics.cluster import Cluster
from cdc.topics.rebuild import Rebuild, rebuild

STANDARD: Final = "standard"
COMPACTED: Final = "compacted"
_ROUNDS: Final = 4
UPDATES: Final = 8_000
_KEYS: Final = 1_000
READS: Final = 200
_ONE_BATCH: Final = 1
"""The size limit of a fetch, in bytes. The broker returns at least one batch, however low the limit is."""


class PassSizes(NamedTuple):
    """Bytes on disk after ``written`` records: the standard topic, and the compacted one before and after a pass."""

    written: int
    standard: int
    before: int
    after: int


class Pair:
    """A standard and a compacted topic, of one partition each, that get the same records.

    Args:
        room: creates the topics.
        key_count: the number of different keys.
    """

    def __init__(self, room: Classroom, key_count: int) -> None:
        self.topics: Mapping[str, Topic] = {
            STANDARD: room.topic(STANDARD, cleanup_policy="delete", retention_ms=-1),
            COMPACTED: room.topic(COMPACTED),
        }
        self._room = room
        self._key_count = key_count
        self._chance = random.Random(8)
        self._written = 0

    def write(self, updates: int) -> None:
        """Write updates of random keys to both topics, and close the segments that hold them."""
        keys = [f"user-{self._chance.randrange(self._key_count):07}" for _ in range(updates)]
        for topic in self.topics.values():
            topic.put(
                (key, f'{{"version": {self._written + number}, "text": "{"." * 80}"}}')
                for number, key in enumerate(keys)
            )
            topic.close_segments("closing", "1")
        self._written += updates

    def clean(self) -> PassSizes:
        """Let the cleaner pass over the compacted topic, and return the sizes."""
        topic = self.topics[COMPACTED]
        standard, before, active = self.disk(STANDARD), self.disk(COMPACTED), topic.layout().segments[-1].base
        topic.set(min_cleanable_dirty_ratio=AT_ONCE)

        def cleaned() -> int | None:
            if self.disk(COMPACTED) == before:
                return None
            keys = [each.key for each in topic.records() if each.offset < active]
            return self.disk(COMPACTED) if len(keys) == len(set(keys)) else None

        after = self._room.until("the cleaner passes over the compacted topic", cleaned)
        topic.set(min_cleanable_dirty_ratio=NEVER)
        return PassSizes(self._written, standard, before, after)

    def disk(self, which: str) -> int:
        """Returns the bytes of a topic on its leader's disk."""
        topic = self.topics[which]
        with Cluster(topic.options) as cluster:
            return sum(cluster.sizes(cluster.places([topic.name])[topic.name]).values())

    def rebuild(self, which: str) -> Rebuild:
        """Read a topic as a new reader does."""
        topic = self.topics[which]
        with Cluster(topic.options) as cluster:
            return rebuild(cluster, cluster.places([topic.name])[topic.name], begin=begin)

    def reads(self, count: int) -> dict[str, list[float]]:
        """Time ``count`` fetches at random offsets of each topic, in turns; returns seconds by topic, ascending."""
        taken: dict[str, list[float]] = {which: [] for which in self.topics}
        with Cluster(self.topics[STANDARD].options) as cluster:
            places = {which: cluster.places([topic.name])[topic.name] for which, topic in self.topics.items()}
            ends = {which: next(iter(cluster.ends(place).values())).high_watermark for which, place in places.items()}
            for _ in range(count):
                for which, (place,) in places.items():
                    offset = self._chance.randrange(ends[which])
                    wire, began = cluster.wire(place.leader), time.perf_counter()
                    wire.fetch(place.topic, place.partition, offset, limit=_ONE_BATCH)
                    taken[which].append(time.perf_counter() - began)
        return {which: sorted(each) for which, each in taken.items()}

    def follow(self, which: str, count: int) -> list[float]:
        """Time ``count`` single records from the write until a reader at the end gets them; seconds, ascending."""
        topic, taken = self.topics[which], []
        producer = Producer({**topic.options, "linger.ms": 0}, logger=BROKER_LOG)
        with closing(open_consumer(topic.options)) as consumer, Cluster(topic.options) as cluster:
            (ends,) = cluster.ends(cluster.places([topic.name])[topic.name]).values()
            consumer.assign([TopicPartition(topic.name, 0, ends.high_watermark)])
            for number in range(count):
                began, value = time.perf_counter(), str(number).encode()
                producer.produce(topic.name, key="probe", value=value)
                producer.poll(0)
                while (message := consumer.poll(30)) is not None and message.value() != value:
                    continue
                self._room.check(message is not None, "a record that was written reaches a reader within 30 s")
                taken.append(time.perf_counter() - began)
        return sorted(taken)


def percentile(ordered: Sequence[float], share: float) -> float:
    """Returns a percentile of ascending values; ``share`` is 0.99 for the 99th."""
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def teach(room: Classroom) -> None:
    """Write the same records to both topics, and measure."""
    page, pair = room.page, Pair(room, _KEYS)
    page.say(
        f"{pair.topics[STANDARD].name} keeps every record, {pair.topics[COMPACTED].name} is compacted. Both get the "
        f"same records, in {_ROUNDS} rounds of {UPDATES:,} updates of {_KEYS:,} keys. After each round, the cleaner "
        "passes over the compacted topic."
    )
    rounds = []
    for _ in range(_ROUNDS):
        pair.write(UPDATES)
        rounds.append(pair.clean())
    page.table(
        "Bytes on disk",
        ("records written", "standard", "compacted, before a pass", "after it"),
        [tuple(each) for each in rounds],
    )
    last = rounds[-1]
    room.check(last.after < last.standard / 2, "the compacted topic is much smaller")
    page.say(
        "A standard topic grows with every record. A compacted topic grows with the number of keys. Between two passes "
        "it holds the records that the last pass kept, and everything written since."
    )
    built = {which: [pair.rebuild(which) for _ in range(3)] for which in (STANDARD, COMPACTED)}
    states = {(each.keys, each.state_bytes) for runs in built.values() for each in runs}
    room.check(len(states) == 1, "both topics give the same state")
    reads, follows = pair.reads(READS), {which: pair.follow(which, READS) for which in pair.topics}
    page.table(
        "The same state from both",
        ("", STANDARD, COMPACTED),
        [
            ("on disk", size(last.standard), size(last.after)),
            ("keys with a row", *(built[which][0].keys for which in built)),
            ("records to read for a rebuild", *(built[which][0].records for which in built)),
            ("a rebuild", *(f"{median(each.seconds for each in runs):.3f} s" for runs in built.values())),
            *_percentiles("a read at an offset", reads),
            *_percentiles("a new record, until it is read", follows),
        ],
    )
    page.say(
        "A rebuild reads everything on disk, so compaction shortens it. Reading at an offset, and getting a new "
        "record, are the same work in both topics. Compare the medians there: the 99th percentile of so few reads is "
        "chance. Neither topic can answer “what is the row of this key?” without a rebuild; a view can."
    )
    page.remember(
        "With compaction, disk use grows with the keys and not with the changes, and rebuilds are short. The price is "
        "the cleaner's reading and writing, and every version but the last: if you need the past, write it to another "
        "topic. If nearly every record has a new key, compaction saves nothing.",
        "cdc topics estimate users -b localhost:9092",
        "cdc topics rebuild-test users -b localhost:9092",
    )


def _percentiles(what: str, taken: Mapping[str, Sequence[float]]) -> list[tuple[str, str, str]]:
    def cells(share: float) -> tuple[str, str]:
        standard, compacted = (f"{percentile(taken[which], share) * 1000:.2f} ms" for which in (STANDARD, COMPACTED))
        return standard, compacted

    return [(f"{what}, p50", *cells(0.5)), (f"{what}, p99", *cells(0.99))]
