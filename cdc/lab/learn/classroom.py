"""What lessons share: a broker, topics that are written, cleaned and read step by step, and the waiting.

A lesson says what it sees. What it does not see in time, or finds otherwise than it says, is an error and never text.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any, Final, NamedTuple, TypeVar

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import NewPartitions

from cdc.base.broker_log import BROKER_LOG
from cdc.base.errors import CdcError
from cdc.contract.compaction import topic_settings
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.publish.topics import TopicAdmin, TopicSpecification
from cdc.kafka.replay.bounded import read_topic
from cdc.lab.learn.page import LessonPage
from cdc.lab.stack import Postgres
from cdc.topics.cluster import Cluster, PartitionPlace
from cdc.topics.inspection import TopicReport, inspect
from cdc.topics.layout import Layout
from cdc.topics.scan import Advance, read_layout

SEGMENT_MS: Final = 500
"""Segments of the lessons: long enough to write into one, short enough to wait for its end."""
NEVER: Final = 1.0
AT_ONCE: Final = 0.001
"""Values of min.cleanable.dirty.ratio: the cleaner starts above it, and no share is above one."""
_WRITER: Final = {
    "partitioner": "murmur2_random",
    # Without it a batch that is sent again may come behind a newer one, and an older value is the newest then.
    "enable.idempotence": True,
    # What is written together is one batch.
    "linger.ms": 20,
    "batch.size": 65_536,
    "log.connection.close": False,
}
PATIENCE_S: Final = 60.0
_LOOK_S: Final = 0.05
_TIMEOUT_S: Final = 30.0

Found = TypeVar("Found")


class NotSeen(CdcError):
    """A lesson did not see what it is about to say."""


class LessonRecord(NamedTuple):
    """A record as a consumer gets it; a tombstone's value is None."""

    partition: int
    offset: int
    key: str
    value: str | None


class Topic:
    """A topic of one lesson.

    Args:
        options: librdkafka settings, ``bootstrap.servers`` among them.
        name: of a topic that exists.
        segment_ms: its ``segment.ms``.
    """

    def __init__(self, options: Mapping[str, Any], name: str, segment_ms: int) -> None:
        self.name = name
        self.options = options
        self._segment_s = segment_ms / 1000
        self._producer = self._open()

    def put(self, records: Iterable[tuple[str, str | None]], partition: int | None = None) -> None:
        """Write records, and see them acknowledged; the key chooses the partition unless one is named."""
        where: dict[str, Any] = {} if partition is None else {"partition": partition}
        for key, value in records:
            while True:
                try:
                    self._producer.produce(self.name, key=key, value=value, **where)
                    break
                except BufferError:
                    self._producer.poll(0.1)
        if self._producer.flush(_TIMEOUT_S):
            raise NotSeen(f"the broker did not take records for {self.name}", remedy="look at the broker's log")

    def close_segments(self, key: str, value: str | None, partitions: Iterable[int] = (0,)) -> None:
        """Wait until the active segments are older than ``segment.ms``, then append the record that closes each."""
        time.sleep(self._segment_s + 0.1)
        for number in partitions:
            self.put([(key, value)], number)

    def add_partitions(self, count: int) -> None:
        """Let the topic have so many partitions from now on."""
        admin = BrokerAdmin(self.options)
        admin.create_partitions([NewPartitions(self.name, count)])[self.name].result(_TIMEOUT_S)
        self._producer = self._open()  # the one before goes by the old count for minutes

    def set(self, **settings: object) -> None:
        """Change settings; ``segment_ms`` is ``segment.ms``."""
        with Cluster(self.options) as cluster:
            cluster.alter(self.name, _settings(settings))

    def records(self) -> list[LessonRecord]:
        """Every committed record that is there, by partition in the order of the offsets."""
        found = read_topic(BrokerAdmin(self.options), self.name)
        read = [LessonRecord(each.partition, each.offset, _text(each.key) or "", _text(each.value)) for each in found]
        return sorted(read, key=lambda each: (each.partition, each.offset))

    def layout(self, partition: int = 0) -> Layout:
        """Its batches as they lie on the leader's disk."""
        with Cluster(self.options) as cluster:
            place = cluster.places([self.name])[self.name][partition]
            ends = cluster.ends([place])[self.name, partition]
            parsed = topic_settings(cluster.settings([self.name])[self.name])
            wire = cluster.wire(place.leader)
            return read_layout(wire, place, ends.start, ends.high_watermark, settings=parsed, advance=_ignore)

    def report(self) -> TopicReport:
        """What ``cdc topics inspect`` finds in it."""
        with Cluster(self.options) as cluster:
            places, settings = cluster.places([self.name])[self.name], cluster.settings([self.name])[self.name]
            now_ms = time.time_ns() // 1_000_000
            return inspect(cluster, places, settings, now_ms=now_ms, newest=None, begin=begin)

    def _open(self) -> Producer:
        return Producer({**self.options, **_WRITER}, logger=BROKER_LOG)


class Classroom:
    """Where lessons are held; a context manager that takes their topics away.

    Args:
        bootstrap: the brokers.
        page: what is shown.
        open_postgres: starts a PostgreSQL, which the caller ends; for lessons about the bridge.

    Attributes:
        exits: what a lesson leaves here ends with the room, so that what the lesson showed can be looked at until then.
    """

    def __init__(self, bootstrap: str, page: LessonPage, open_postgres: Callable[[], Postgres]) -> None:
        self.options: dict[str, Any] = {"bootstrap.servers": bootstrap}
        self.page = page
        self.open_postgres = open_postgres
        self.exits = ExitStack()
        self._topics: list[str] = []

    def __enter__(self) -> Classroom:
        return self

    def __exit__(self, *_: object) -> None:
        with self.exits:
            self._remove_topics()

    def topic(self, lesson: str, partitions: int = 1, **settings: object) -> Topic:
        """A new topic that the cleaner leaves alone, until ``min.cleanable.dirty.ratio`` is lowered."""
        wanted = {
            "cleanup_policy": "compact",
            "segment_ms": SEGMENT_MS,
            "min_cleanable_dirty_ratio": NEVER,
            **settings,
        }
        name = f"learn-{lesson}-{secrets.token_hex(3)}"
        TopicAdmin(BrokerAdmin(self.options)).create_missing(
            [TopicSpecification(name, partitions, 1, _settings(wanted))]
        )
        self._topics.append(name)
        return Topic(self.options, name, int(str(wanted["segment_ms"])))

    def until(self, what: str, look: Callable[[], Found | None]) -> Found:
        """What ``look`` finds at last.

        Raises:
            NotSeen: it finds nothing for ``PATIENCE_S``.
        """
        deadline = time.monotonic() + PATIENCE_S
        while (found := look()) is None:
            if time.monotonic() > deadline:
                raise NotSeen(
                    f"the lesson waited {PATIENCE_S:.0f} s in vain for this: {what}",
                    remedy="brokers of your own clean as often as log.cleaner.backoff.ms says; "
                    "unset CDC_KAFKA, or run the lesson with --backend embedded",
                )
            time.sleep(_LOOK_S)
        return found

    def check(self, holds: bool, what: str) -> None:
        """Make sure of what the lesson says next.

        Raises:
            NotSeen: it does not hold.
        """
        if not holds:
            raise NotSeen(f"the lesson would say what is not so here: {what}", remedy="run the lesson again")

    def _remove_topics(self) -> None:
        """As far as the broker still answers."""
        if self._topics:
            admin = BrokerAdmin(self.options)
            for future in admin.delete_topics(self._topics, operation_timeout=10).values():
                with contextlib.suppress(KafkaException):
                    future.result(_TIMEOUT_S)


def fold(records: Iterable[LessonRecord], before: Mapping[str, str] | None = None) -> dict[str, str]:
    """The state that records come to, after that of ``before``: each key's newest value, and no deleted key."""
    state = dict(before or {})
    for each in records:
        if each.value is None:
            state.pop(each.key, None)
        else:
            state[each.key] = each.value
    return state


def begin(_place: PartitionPlace, _steps: int) -> Advance:
    """Nobody follows how far a reading is: topics of lessons are small."""
    return _ignore


def _ignore(_done: int) -> None:
    """Told of progress."""


def _settings(settings: Mapping[str, object]) -> dict[str, str]:
    return {name.replace("_", "."): str(value) for name, value in settings.items()}


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()
