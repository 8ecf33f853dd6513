"""The double of confluent_kafka's Consumer, for partitions that a program assigns itself, without a group."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, KafkaException, Message, TopicPartition

from tests.world.kafka import KafkaCluster, Session
from tests.world.kafka_log import PartitionLog
from tests.world.kafka_metadata import asked_metadata, cluster_at

_FETCHED_AHEAD: Final = 2_000
"""Above so many records in memory, a client fetches no more of a partition."""
_ANSWER: Final = 500
"""How many records a partition gives in one answer, at most."""


class _Fetching:
    """A partition that is read.

    Attributes:
        at: the offset to fetch next, which may be one of librdkafka's logical offsets.
        told_end: the end that was last told with an event; -1 when none was.
        told_code: the error that was told; the partition is not read any more.
    """

    __slots__ = ("at", "is_paused", "number", "told_code", "told_end", "topic")

    def __init__(self, topic: str, number: int, at: int) -> None:
        self.topic = topic
        self.number = number
        self.at = at
        self.is_paused = False
        self.told_end = -1
        self.told_code: int | None = None


class Fetcher(Session):
    """The threads of one consumer: they fetch ahead of what the program takes.

    Attributes:
        ready: what was fetched and not taken yet, events among it.
        partitions: what is read, by topic and number.
    """

    def __init__(self, cluster: KafkaCluster, conf: Mapping[str, Any]) -> None:
        super().__init__(cluster, conf.get("error_cb"))
        self.is_committed = conf.get("isolation.level", "read_committed") == "read_committed"
        self.tells_end = conf.get("enable.partition.eof") in {True, "true"}
        self.ready: list[Message] = []
        self.partitions: dict[tuple[str, int], _Fetching] = {}

    def add_steps(self, found: list[Callable[[], object]]) -> None:
        """Add the fetches that bring something."""
        if not self.cluster.answers:
            return
        is_full = len(self.ready) >= _FETCHED_AHEAD
        log_of = self.cluster.log
        for each in self.partitions.values():
            if each.is_paused or each.told_code is not None:
                continue
            log = log_of(each.topic, each.number)
            if log is None:  # nobody is told: it looks like a partition without new records
                continue
            limit = log.stable if self.is_committed else log.end
            if each.at != limit if each.at >= 0 else True:
                if not is_full:
                    found.append(partial(self._fetch, each, log))
            elif self.tells_end and each.told_end != each.at:
                found.append(partial(self._fetch, each, log))

    def add(self, places: Sequence[TopicPartition]) -> None:
        """Read these partitions as well.

        Raises:
            KafkaException: one of them is read already.
        """
        if any((each.topic, each.partition) in self.partitions for each in places):
            raise KafkaException(KafkaError(KafkaError._CONFLICT, "A partition is in the current assignment"))
        for each in places:
            self.partitions[each.topic, each.partition] = _Fetching(each.topic, each.partition, each.offset)

    def remove(self, places: Sequence[TopicPartition]) -> None:
        """Read these partitions no more, and drop what was fetched of them.

        Raises:
            KafkaException: one of them is not read.
        """
        if any((each.topic, each.partition) not in self.partitions for each in places):
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, "A partition is not in the current assignment"))
        for each in places:
            fetching = self.partitions.pop((each.topic, each.partition))
            self._drop(fetching)

    def pause(self, place: TopicPartition, *, is_paused: bool) -> None:
        """Stop or go on reading a partition: from the first record on that the program has not taken.

        Afterwards the end is told again. A partition that is not read is passed over.
        """
        fetching = self.partitions.get((place.topic, place.partition))
        if fetching is None:
            return
        fetching.is_paused = is_paused
        fetching.told_end = -1
        if is_paused:
            self._drop(fetching)

    def _drop(self, fetching: _Fetching) -> None:
        topic, number = fetching.topic, fetching.number
        dropped = [each for each in self.ready if each.partition() == number and each.topic() == topic]
        if not dropped:
            return
        self.ready = [each for each in self.ready if each.partition() != number or each.topic() != topic]
        fetching.at = dropped[0].offset() or 0
        fetching.told_code = None

    def _fetch(self, each: _Fetching, log: PartitionLog) -> None:
        """Fetch what there is, or part of it; at the end, tell it."""
        if each.at == OFFSET_BEGINNING:
            each.at = log.low
        elif each.at == OFFSET_END:
            each.at = log.end
        limit = log.stable if self.is_committed else log.end
        if each.at < log.low or each.at > log.end:
            self._tell(each, KafkaError._AUTO_OFFSET_RESET)
            return
        if each.at < limit:
            rng = self.cluster.turns.rng
            most = _ANSWER if rng.random() < 0.5 else rng.randint(1, 20)
            found, each.at = log.read(each.at, limit, most, committed=self.is_committed)
            self.ready += found
        if self.tells_end and each.at == limit and each.told_end != limit:
            each.told_end = limit
            self.ready.append(_event(each, KafkaError._PARTITION_EOF, limit))

    def _tell(self, each: _Fetching, code: int) -> None:
        """Tell why a partition cannot be read on."""
        each.told_code = code
        self.ready.append(_event(each, code, each.at))


def _event(each: _Fetching, code: int, at: int) -> Message:
    return Message(each.topic, each.number, at, None, None, None, KafkaError(code))


class Consumer:
    """confluent_kafka's Consumer. It ends when it is closed or freed."""

    def __init__(self, conf: Mapping[str, Any], **others: Any) -> None:
        cluster = cluster_at(conf)
        self._fetcher = Fetcher(cluster, {**conf, **others})
        self._cluster = cluster
        self._is_closed = False

    def __del__(self) -> None:
        self._fetcher.end()

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Ask a broker for metadata."""
        return asked_metadata(self._fetcher, topic, timeout)

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read exactly these partitions."""
        self._fetcher.partitions.clear()
        self._fetcher.ready.clear()
        self._fetcher.add(partitions)

    def incremental_assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read these partitions as well."""
        self._fetcher.add(partitions)

    def incremental_unassign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read these partitions no more."""
        self._fetcher.remove(partitions)

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Deliver nothing of these partitions."""
        for each in partitions:
            self._fetcher.pause(each, is_paused=True)

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """Deliver these partitions again."""
        for each in partitions:
            self._fetcher.pause(each, is_paused=False)

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Wait for so many messages, or for the timeout; returns what there is then, events among it."""
        if self._is_closed:
            raise RuntimeError("Consumer closed")
        fetcher, cluster = self._fetcher, self._cluster
        cluster.turns.turn()
        if len(fetcher.ready) < num_messages and timeout:
            cluster.wait(lambda: len(fetcher.ready) >= num_messages, timeout)
        if fetcher.events:
            fetcher.serve()
        ready = fetcher.ready
        if len(ready) <= num_messages:
            fetcher.ready = []
            return ready
        taken = ready[:num_messages]
        del ready[:num_messages]
        return taken

    def poll(self, timeout: float = -1) -> Message | None:
        """Wait for one message."""
        taken = self.consume(1, timeout)
        return taken[0] if taken else None

    def close(self) -> None:
        """End it."""
        self._is_closed = True
        self._fetcher.end()
