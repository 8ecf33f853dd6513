"""Keeps in Kafka how far the sink is, as offsets of a consumer group: the bridge and Kafka's own tools read them.

The sink itself goes on from the offsets in its replica, which are right. Those in Kafka are a copy, written now and
then, that nothing relies on: a backfill is slowed down by them, and lag monitors show them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import closing
from types import TracebackType
from typing import Any, Final, NamedTuple

import structlog
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from cdc.base.daemon.worker import Worker
from cdc.contract.ports import Partition
from cdc.kafka.acls import Acl, sink_group
from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.replay.client import open_consumer

_STORE_INTERVAL_S: Final = 0.05
_ASK_INTERVAL_S: Final = 0.05
_PAUSE_S: Final = 5.0
"""How soon to ask again when no sink has ever stored offsets, or Kafka refused to say."""
_TIMEOUT_S: Final = 5.0
_LONGEST_CALL_S: Final = 1.0
"""How long to wait for the thread when the ``with`` block ends."""
_GONE_AFTER_S: Final = 30.0
"""A sink that stores nothing for so long is down, or a table of it is stopped: then nobody waits for it. The largest
cuts take less."""
_LATEST: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client gives it no types
_LONG_S: Final = 0.25
"""A backlog that takes the sink longer than this is long. Rows of the stream wait for it, and half a second more is
lost on the way to the replica."""
_FIRST_RATE: Final = 20_000.0
"""Records per second of a sink that was not seen at work yet."""
_LOWEST_RATE: Final = 5_000.0
"""Even a sink that is slower gets a thousand records at a time."""
_NEWEST_SHARE: Final = 0.2
"""The weight of the newest measurement in the sink's rate."""

log = structlog.get_logger("cdc.kafka")


class StoredOffsets:
    """Stores the sink's offsets in Kafka while the ``with`` block lasts. Nobody waits for that: it has a thread.

    Args:
        options: librdkafka settings from the configuration.
        name: the deployment's name.
        stop: set when the thread fails; leaving the ``with`` block then raises the failure.
    """

    def __init__(self, options: Mapping[str, Any], name: str, stop: threading.Event) -> None:
        self._options = options
        self._group = sink_group(name)
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._ended = threading.Event()
        self._next: dict[Partition, int] = {}
        self._is_under_way = self._is_refused = False
        self._worker = Worker(self._run, name="offsets", on_failure=stop.set)

    def __enter__(self) -> StoredOffsets:
        self._worker.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._news.set()
        self._worker.end(error, _LONGEST_CALL_S)

    def store(self, offsets: Mapping[Partition, int]) -> None:
        """Takes the offsets of a cut."""
        with self._lock:
            self._next.update(offsets)
        self._news.set()

    def _run(self) -> None:
        self._news.wait()
        if not self._next:
            return
        settings = {"group.id": self._group, "on_commit": self._answered}
        with closing(open_consumer({**self._options, **settings})) as consumer:
            while places := self._take():
                consumer.commit(offsets=places, asynchronous=True)
                self._is_under_way = True
                # One call at a time: without a coordinator, the client would keep all of them
                while self._is_under_way and not self._ended.is_set():
                    told = consumer.poll(_STORE_INTERVAL_S)
                    if told is not None and (error := told.error()) is not None:
                        self._heard(error)
                    if self._is_refused:
                        return
            consumer.poll(_STORE_INTERVAL_S)

    def _answered(self, error: KafkaError | None, _places: list[TopicPartition]) -> None:
        self._is_under_way = False
        if error is not None:
            self._heard(error)

    def _heard(self, error: KafkaError) -> None:
        """Gives up without the right to store offsets. An outage is told by others, and ends by itself."""
        if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED and not self._is_refused:
            self._is_refused = True
            log.warning(
                "Kafka does not let the sink store its offsets: lag monitors do not see it, and backfills do not wait "
                "for it",
                group=self._group,
                remedy=Acl("group", self._group, ("Read",)).remedy(self._options),
            )

    def _take(self) -> list[TopicPartition]:
        """Waits for offsets that are not stored yet, and returns them; none at the end."""
        while not self._next and not self._ended.is_set():
            self._news.wait()
            self._news.clear()
        with self._lock:
            offsets, self._next = self._next, {}
        return [TopicPartition(*place, offset) for place, offset in offsets.items()]


class _Reported(NamedTuple):
    """What was last seen of a partition: the sink's offset, and since when it is that."""

    offset: int
    since: float


class SinkBacklog:
    """Tells whether the sink has more to read than it can take in a moment. Asks in the background, and never waits.

    Args:
        admin: asks the brokers.
        name: the deployment's name.
        clock: returns seconds that never go back.
    """

    def __init__(self, admin: BrokerAdmin, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._admin = admin
        self._group = sink_group(name)
        self._clock = clock
        self._due = 0.0
        self._offsets: Future[ConsumerGroupTopicPartitions] | None = None
        self._ends: Mapping[TopicPartition, Future[Any]] = {}
        self._stored: dict[Partition, _Reported] = {}
        self._looked_at: float | None = None
        self._rate = _FIRST_RATE
        self._is_known = self._held_back = False
        self._followed: frozenset[str] = frozenset()
        self._left = self._sent = self._asked_after = 0

    def sends(self, records: int) -> None:
        """Counts records that are sent: until Kafka is asked again, they are what the sink has to read in addition."""
        self._sent += records

    def is_long(self, topic: str) -> bool:
        """Returns whether more records of a topic would wait too long for the sink. Also True before the first answer.

        Args:
            topic: its name; one that no sink follows now need not wait.
        """
        self._attend()
        if not self._is_known:
            return True
        if topic not in self._followed or self._left + self._sent <= _LONG_S * self._rate:
            return False
        self._held_back = True
        return True

    def _attend(self) -> None:
        now = self._clock()
        if self._offsets is not None and self._offsets.done():
            future, self._offsets = self._offsets, None
            self._take_offsets(future, now)
        elif self._ends and all(each.done() for each in self._ends.values()):
            ends, self._ends = self._ends, {}
            self._take_ends(ends, now)
        elif self._offsets is None and not self._ends and now >= self._due:
            self._due = now + _ASK_INTERVAL_S
            asked = [ConsumerGroupTopicPartitions(self._group)]
            self._offsets = self._admin.list_consumer_group_offsets(asked, request_timeout=_TIMEOUT_S)[self._group]

    def _take_offsets(self, future: Future[ConsumerGroupTopicPartitions], now: float) -> None:
        try:
            places = future.result().topic_partitions or []
        except KafkaException:  # no right to ask, or no answer: then there is nobody to wait for
            places = []
        found = {(each.topic, each.partition): each.offset for each in places if each.offset >= 0}
        if not found:
            self._know(0, frozenset())
            self._due = now + _PAUSE_S
            return
        if self._looked_at is not None and now - self._looked_at > _PAUSE_S:
            self._stored, self._held_back = {}, False  # nobody asked meanwhile: that a place is as it was says nothing
        self._measure(found, now)
        self._stored = {each: self._told(each, offset, now) for each, offset in found.items()}
        self._asked_after = self._sent
        self._ends = self._admin.list_offsets(
            {TopicPartition(*each): _LATEST for each in found}, request_timeout=_TIMEOUT_S
        )

    def _told(self, place: Partition, offset: int, now: float) -> _Reported:
        known = self._stored.get(place)
        return known if known is not None and known.offset == offset else _Reported(offset, now)

    def _measure(self, found: Mapping[Partition, int], now: float) -> None:
        """Learns the sink's rate from a time in which more would have been sent to it.

        A sink that took all of it within less than ``_LONG_S`` seems quicker than that, and gets more the next time.
        """
        moved = sum(max(at - self._stored[each].offset, 0) for each, at in found.items() if each in self._stored)
        if self._looked_at is not None and self._held_back:
            newest = moved / max(now - self._looked_at, _ASK_INTERVAL_S)
            self._rate = max(self._rate + _NEWEST_SHARE * (newest - self._rate), _LOWEST_RATE)
        self._looked_at, self._held_back = now, False

    def _take_ends(self, ends: Mapping[TopicPartition, Future[Any]], now: float) -> None:
        left, followed = 0, set[str]()
        for place, future in ends.items():
            stored = self._stored[place.topic, place.partition]
            try:
                records = max(future.result().offset - stored.offset, 0)
            except KafkaException:  # a topic that was deleted, or a leader that moves: asked again with the others
                continue
            if records == 0:
                self._stored[place.topic, place.partition] = _Reported(stored.offset, now)
            if records == 0 or now - stored.since <= _GONE_AFTER_S:
                left += records
                followed.add(place.topic)
        self._know(left, frozenset(followed))

    def _know(self, records: int, followed: frozenset[str]) -> None:
        self._left, self._followed, self._is_known = records, followed, True
        self._sent, self._asked_after = self._sent - self._asked_after, 0
