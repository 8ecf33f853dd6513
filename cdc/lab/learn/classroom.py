"""What lessons share: a broker, topics to write, clean and read step by step, and the waiting.

A lesson only prints what it has seen. If it does not see an effect in time, or sees something else than its text says,
it raises ``NotSeen`` instead of printing the text.
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
"""``segment.ms`` in the lessons: long enough to fill a segment, short enough to wait until it can be closed."""
NEVER: Final = 1.0
AT_ONCE: Final = 0.001
"""Values of min.cleanable.dirty.ratio. The cleaner starts when the dirty share exceeds it, which is at most 1."""
_WRITER: Final = {
    "partitioner": "murmur2_random",
    # Without idempotence a retried batch may land after a newer one, and an old value would then be the newest.
    "enable.idempotence": True,
    # Records that are written together should form one batch, as the layouts of the lessons assume.
    "linger.ms": 20,
    "batch.size": 65_536,
    "log.connection.close": False,
}
PATIENCE_S: Final = 60.0
"""How long a lesson waits for an effect. Brokers with default settings look for work of the cleaner every 15 s."""
_LOOK_S: Final = 0.05
_TIMEOUT_S: Final = 30.0

Found = TypeVar("Found")


class NotSeen(CdcError):
    """A lesson did not see what it is about to say."""


class LessonRecord(NamedTuple):
    """A record as a consumer gets it; the value of a tombstone is None."""

    partition: int
    offset: int
    key: str
    value: str | None


class Topic:
    """A topic of one lesson.

    Args:
        options: librdkafka settings, including ``bootstrap.servers``.
        name: the name of an existing topic.
        segment_ms: the topic's ``segment.ms``.
    """

    def __init__(self, options: Mapping[str, Any], name: str, segment_ms: int) -> None:
        self.name = name
        self.options = options
        self._segment_s = segment_ms / 1000
        self._producer = self._open()

    def put(self, records: Iterable[tuple[str, str | None]], partition: int | None = None) -> None:
        """Write records and wait until they are acknowledged. Without ``partition``, the key decides where they go."""
        where: dict[str, Any] = {} if partition is None else {"partition": partition}
        for key, value in records:
            while True:
                try:
                    self._producer.produce(self.name, key=key, value=value, **where)
                    break
                except BufferError:
                    self._producer.poll(0.1)
        if self._producer.flush(_TIMEOUT_S):
            raise NotSeen(
                f"the broker did not acknowledge the records for {self.name} within {_TIMEOUT_S:.0f} s",
                remedy="look at the broker's log",
            )

    def close_segments(self, key: str, value: str | None, partitions: Iterable[int] = (0,)) -> None:
        """Wait until the active segments are older than ``segment.ms``, then append a record, which closes each."""
        time.sleep(self._segment_s + 0.1)
        for number in partitions:
            self.put([(key, value)], number)

    def add_partitions(self, count: int) -> None:
        """Raise the topic's partition count to ``count``."""
        admin = BrokerAdmin(self.options)
        admin.create_partitions([NewPartitions(self.name, count)])[self.name].result(_TIMEOUT_S)
        self._producer = self._open()  # the previous producer would use the old count for minutes

    def set(self, **settings: object) -> None:
        """Change topic settings; write ``segment_ms`` for ``segment.ms``."""
        with Cluster(self.options) as cluster:
            cluster.alter(self.name, _settings(settings))

    def records(self) -> list[LessonRecord]:
        """Returns every committed record, ordered by partition and offset."""
        found = read_topic(BrokerAdmin(self.options), self.name)
        read = [LessonRecord(each.partition, each.offset, _text(each.key) or "", _text(each.value)) for each in found]
        return sorted(read, key=lambda each: (each.partition, each.offset))

    def layout(self, partition: int = 0) -> Layout:
        """Returns a partition's segments and batches as they lie on the leader's disk."""
        with Cluster(self.options) as cluster:
            place = cluster.places([self.name])[self.name][partition]
            ends = cluster.ends([place])[self.name, partition]
            parsed = topic_settings(cluster.settings([self.name])[self.name])
            wire = cluster.wire(place.leader)
            return read_layout(wire, place, ends.start, ends.high_watermark, settings=parsed, advance=_ignore)

    def report(self) -> TopicReport:
        """Returns what ``cdc topics inspect`` finds in the topic."""
        with Cluster(self.options) as cluster:
            places, settings = cluster.places([self.name])[self.name], cluster.settings([self.name])[self.name]
            now_ms = time.time_ns() // 1_000_000
            return inspect(cluster, places, settings, now_ms=now_ms, newest=None, begin=begin)

    def _open(self) -> Producer:
        return Producer({**self.options, **_WRITER}, logger=BROKER_LOG)


class Classroom:
    """The place where lessons run: a context manager that deletes their topics at the end.

    Args:
        bootstrap: the brokers.
        page: where lessons print.
        open_postgres: starts a PostgreSQL, which the caller stops; for lessons about the bridge.

    Attributes:
        exits: closed together with the classroom. A lesson puts its servers here, so that what it showed can still
            be looked at after it has ended.
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
        """Create a topic that the cleaner leaves alone until ``min.cleanable.dirty.ratio`` is lowered."""
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
        """Call ``look`` until it returns something, and return that.

        Raises:
            NotSeen: ``look`` returned None for ``PATIENCE_S``.
        """
        deadline = time.monotonic() + PATIENCE_S
        while (found := look()) is None:
            if time.monotonic() > deadline:
                raise NotSeen(
                    f"the lesson waited {PATIENCE_S:.0f} s in vain for this: {what}",
                    remedy="if CDC_KAFKA names your own brokers, their log.cleaner.backoff.ms may be too long: "
                    "unset CDC_KAFKA, or run the lesson with --backend embedded",
                )
            time.sleep(_LOOK_S)
        return found

    def check(self, holds: bool, what: str) -> None:
        """Make sure that what the lesson says next is true.

        Raises:
            NotSeen: it is not.
        """
        if not holds:
            raise NotSeen(f"the lesson expected this, but saw otherwise: {what}", remedy="run the lesson again")

    def _remove_topics(self) -> None:
        """Delete the topics; a broker that no longer answers keeps them."""
        if self._topics:
            admin = BrokerAdmin(self.options)
            for future in admin.delete_topics(self._topics, operation_timeout=10).values():
                with contextlib.suppress(KafkaException):
                    future.result(_TIMEOUT_S)


def fold(records: Iterable[LessonRecord], before: Mapping[str, str] | None = None) -> dict[str, str]:
    """Apply records to the state ``before`` and return the result: each key's newest value, without deleted keys."""
    state = dict(before or {})
    for each in records:
        if each.value is None:
            state.pop(each.key, None)
        else:
            state[each.key] = each.value
    return state


def begin(_place: PartitionPlace, _steps: int) -> Advance:
    """Returns a progress callback that ignores progress: the topics of lessons are small."""
    return _ignore


def _ignore(_done: int) -> None:
    """Does nothing with progress."""


def _settings(settings: Mapping[str, object]) -> dict[str, str]:
    return {name.replace("_", "."): str(value) for name, value in settings.items()}


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()
