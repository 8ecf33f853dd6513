"""A Kafka cluster in memory: what brokers keep and promise, one step at a time.

What a broker does by itself is a step (``KafkaCluster.steps``), and whoever schedules the programs decides when it
happens. The clients (``kafka_clients``) add theirs: a batch leaves, it is stored, its acknowledgement arrives.

What is promised, where it is said, and where it is kept:

- A partition's offsets only grow, and one producer's records keep their order: documentation, "Guarantees";
  ``PartitionLog.append``, ``Sender``.
- An idempotent producer's batch is stored once, however often it is sent: KIP-98, KIP-360; ``Sender.lose_connection``.
- A partition that has no sequence number of a producer takes any as its first one: KIP-360, KAFKA-15591;
  ``Sender._skip``. This is no promise, but a trap.
- A transaction is readable whole or not at all once it has ended, and per partition from its marker on, which takes an
  offset. Readers of committed records stop at the last stable offset: KIP-98; ``PartitionLog.mark`` and ``read``.
- ``init_transactions`` aborts what the former producer left open, and fences it. A transaction that is open for too
  long is aborted, and its producer fenced, too: KIP-98; ``TransactionSession``, ``KafkaCluster.steps``.
- Nothing of a transaction is stored after it has ended: KIP-890, part 1; ``TransactionSession.may_write``.
- Compaction keeps the last record of each key at its offset, and touches nothing at the last stable offset or after it:
  documentation, "Log Compaction"; KIP-534; ``PartitionLog.clean``.
- Deleted records move the low watermark: KIP-107; ``PartitionLog.delete``.
- A topic made anew has another id: KIP-516; ``KafkaCluster.create``.
- What a program is told of all that, and with which error: librdkafka's "Introduction", sections "Idempotent Producer"
  and "Transactional Producer"; the clients. Where these say little, ``tests/integration/world`` holds what was seen.

Left out, because no promise depends on it: replicas (a stored record is a replicated one), segments, and compression.
Control records take offsets, and are not kept: no reader sees them. The address is that of the documentation:
https://kafka.apache.org/documentation/ and https://github.com/confluentinc/librdkafka/blob/master/INTRODUCTION.md
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Uuid

from tests.world.kafka_log import DeliveryReport, PartitionLog, QueuedRecord, batch_bytes
from tests.world.kafka_transactions import Refused, TransactionalId, TransactionSession
from tests.world.turns import Turns

DEFAULTS: Final[Mapping[str, str]] = {
    "cleanup.policy": "delete",
    "delete.retention.ms": "86400000",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.ms": "604800000",
}
"""Settings of a topic, as a broker has them by default: https://kafka.apache.org/documentation/#topicconfigs."""


class BrokerTopic:
    """A topic.

    Attributes:
        topic_id: another one each time a topic of this name is made (KIP-516).
        settings: those that were given.
        partitions: the logs.
    """

    __slots__ = ("name", "partitions", "settings", "topic_id")

    def __init__(self, name: str, topic_id: Uuid, count: int, settings: Mapping[str, str]) -> None:
        self.name = name
        self.topic_id = topic_id
        self.settings = dict(settings)
        self.partitions = [PartitionLog(name, number) for number in range(count)]

    def setting(self, name: str) -> str:
        """Returns a setting, which may be the broker's default."""
        return self.settings.get(name, DEFAULTS[name])


class Session:
    """One client's connections: ends when the client is freed, or its program dies.

    Attributes:
        process: the program.
        events: errors and delivery reports that wait for the client's next call, in order.
    """

    def __init__(self, cluster: KafkaCluster, error_cb: Callable[[KafkaError], object] | None) -> None:
        self.cluster = cluster
        self.process = cluster.turns.process
        self.events: deque[KafkaError | DeliveryReport] = deque()
        self._error_cb = error_cb
        cluster.sessions.append(self)
        if cluster.is_away:
            self.lose_brokers()

    def add_steps(self, found: list[Callable[[], object]]) -> None:
        """Add what may happen now, with the brokers if they answer, or in the client alone."""

    def due_at(self) -> float | None:
        """Returns when something happens that only takes time; None when nothing does."""
        return None

    def serve(self) -> int:
        """Run the callbacks of all that waits, in order; returns how many events there were.

        Raises:
            KafkaException: a fatal error. What came after it waits for the next call.
        """
        served = 0
        while self.events:
            event = self.events.popleft()
            served += 1
            if isinstance(event, DeliveryReport):
                if event.callback is not None:
                    event.callback(event.error, event.message)
            elif event.fatal():
                raise KafkaException(event)
            elif self._error_cb is not None:
                self._error_cb(event)
        return served

    def lose_brokers(self) -> None:
        """Note that no broker can be reached; librdkafka tells ``error_cb`` both of these."""
        self.events.append(KafkaError(KafkaError._TRANSPORT, "Connect to the broker failed: Connection refused"))
        self.events.append(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))

    def lose_connection(self) -> None:
        """Lose what is on its way."""

    def end(self) -> None:
        """End it; what has left may arrive yet."""
        if self in self.cluster.sessions:
            self.cluster.sessions.remove(self)


class Faults:
    """How often the world does by itself what no program asks for: a chance at each look for steps, 0 for never.

    Attributes:
        cleaning: a partition is compacted up to a random offset.
        lost_connections: a client loses its connections.
        late_ends: a client asks twice for a commit, because its connection breaks; the first request is on its way.
        late_leaders: a broker refuses a producer's first batch for a moment, and takes the next one.
        unknown_outcomes: a commit reports a timeout while its request is on its way.
    """

    __slots__ = ("cleaning", "late_ends", "late_leaders", "lost_connections", "unknown_outcomes")

    def __init__(self) -> None:
        self.cleaning = self.late_ends = self.late_leaders = self.lost_connections = self.unknown_outcomes = 0.0


class Adrift:
    """Requests of a client that has gone, in order: each may arrive, or from some point on none of them.

    Attributes:
        left: those that may still arrive.
        pace: from 0 to 1: how often one of them is asked whether it does.
    """

    __slots__ = ("left", "pace")

    def __init__(self, left: list[Callable[[], object]], pace: float) -> None:
        self.left = left
        self.pace = pace

    def arrive(self) -> None:
        """Let the next one arrive."""
        self.left.pop(0)()

    def sink(self) -> None:
        """Lose the rest."""
        self.left.clear()


class KafkaCluster:
    """The brokers. One node stands for all of them.

    Args:
        turns: the scheduler.
        address: what clients have as ``bootstrap.servers``.

    Attributes:
        topics: by name.
        coordinator: by transactional id.
        sessions: of the clients that live, in the order in which they came.
        faults: what else may happen.
        is_silent: the brokers hang: connections stay, requests wait, and nobody is told.
        torn: how many transactions a late request has committed in the middle.
    """

    def __init__(self, turns: Turns, address: str = "kafka.world:9092") -> None:
        self.turns = turns
        self.address = address
        self.topics: dict[str, BrokerTopic] = {}
        self.coordinator: dict[str, TransactionalId] = {}
        self.sessions: list[Session] = []
        self.faults = Faults()
        self._adrift: list[Adrift] = []
        self.torn = 0
        self._ids = 0
        self.is_silent = False
        self._is_away = False

    @property
    def is_away(self) -> bool:
        """Whether no broker can be reached: connections are refused. Clients hear of it, and keep what they have."""
        return self._is_away

    @is_away.setter
    def is_away(self, value: bool) -> None:
        if value and not self._is_away:
            for each in list(self.sessions):
                each.lose_connection()
                each.lose_brokers()
        self._is_away = value

    @property
    def answers(self) -> bool:
        """Whether requests are answered."""
        return not (self._is_away or self.is_silent)

    def topic(self, name: str) -> BrokerTopic | None:
        """Returns a topic; None when there is none of this name."""
        return self.topics.get(name)

    def log(self, topic: str, number: int) -> PartitionLog | None:
        """Returns a partition's log; None when there is no such partition."""
        found = self.topics.get(topic)
        return found.partitions[number] if found is not None and 0 <= number < len(found.partitions) else None

    def create(self, name: str, count: int, settings: Mapping[str, str] | None = None) -> KafkaError | None:
        """Create a topic; returns why not, if brokers refuse it."""
        if name in self.topics:
            return KafkaError(KafkaError.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if any(name.replace(".", "_") == each.replace(".", "_") for each in self.topics):
            return KafkaError(KafkaError.TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topics")
        if unknown := sorted((settings or {}).keys() - DEFAULTS.keys()):
            return KafkaError(KafkaError.INVALID_CONFIG, f"Unknown topic config name: {unknown[0]}")
        if count < 1:
            return KafkaError(KafkaError.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
        self.topics[name] = BrokerTopic(name, self._next_uuid(), count, settings or {})
        return None

    def delete(self, name: str) -> None:
        """Delete a topic. One that is made anew has another id, and offsets from 0 on (KIP-516)."""
        del self.topics[name]

    def add_partitions(self, name: str, count: int) -> None:
        """Add empty partitions, so that there are ``count``; clients hear of them when they ask."""
        topic = self.topics[name]
        topic.partitions += [PartitionLog(name, number) for number in range(len(topic.partitions), count)]

    def clean(self, topic: str, number: int, until: int | None = None) -> None:
        """Compact a partition up to an offset, or as far as the cleaner may."""
        found = self.topics[topic]
        log = found.partitions[number]
        log.clean(
            self.turns.now,
            until=log.end if until is None else until,
            lag_ms=int(found.setting("min.compaction.lag.ms")),
            retention_ms=int(found.setting("delete.retention.ms")),
        )

    def store(
        self,
        place: tuple[str, int],
        records: Sequence[QueuedRecord],
        session: TransactionSession | None,
        producer: Hashable = None,
    ) -> int:
        """Store a batch, whole or not at all; returns the offset of its first record.

        Args:
            place: topic and number of the partition.
            records: the batch.
            session: whose transaction the records belong to; None outside of one.
            producer: whose sequence numbers the partition keeps from now on; None for one that has none.

        Raises:
            Refused: why the broker does not take it.
        """
        topic, log = self.topics.get(place[0]), self.log(*place)
        if topic is None or log is None:
            raise Refused(KafkaError.UNKNOWN_TOPIC_OR_PART)
        if session is not None and not session.may_write(place):
            # KIP-890, part 1: a broker asks the coordinator before it takes the first record of a transaction
            raise Refused(KafkaError.INVALID_PRODUCER_EPOCH if session.is_fenced else KafkaError.INVALID_TXN_STATE)
        if batch_bytes(records) > int(topic.setting("max.message.bytes")):
            raise Refused(KafkaError.MSG_SIZE_TOO_LARGE)
        if "compact" in topic.setting("cleanup.policy") and any(each.key is None for each in records):
            raise Refused(KafkaError.INVALID_RECORD)
        if producer is not None:
            log.producers.add(producer)
        return log.append(records, None if session is None else session.coordinated.producer_id)

    def coordinate(self, name: str) -> TransactionalId:
        """Returns what the coordinator knows of a transactional id, which may be new."""
        if name not in self.coordinator:
            self._ids += 1
            self.coordinator[name] = TransactionalId(self._ids)
        return self.coordinator[name]

    def steps(self) -> list[Callable[[], object]]:
        """Returns what may happen now, each as a callable. One of them may be called, before anything else happens."""
        found: list[Callable[[], object]] = []
        for each in self.sessions:
            each.add_steps(found)
        if not self.answers:
            return found
        for known in self.coordinator.values():
            if known.state == "ongoing":
                if self.turns.now >= known.began_at + known.timeout_s:
                    found.append(partial(self._time_out, known))
            elif known.state != "empty":
                found += [partial(self._mark, known, place) for place in known.places]
        self._adrift = [each for each in self._adrift if each.left]
        for lost in self._adrift:
            if self.turns.rng.random() < lost.pace:
                found += (lost.arrive, lost.sink)
        self._add_faults(found)
        return found

    def next_at(self) -> float | None:
        """Returns when a step becomes possible that only needs time; None when none does."""
        times = [known.began_at + known.timeout_s for known in self.coordinator.values() if known.state == "ongoing"]
        times += [at for each in self.sessions if (at := each.due_at()) is not None]
        return min((at for at in times if at > self.turns.now), default=None)

    def lose(self, process: Hashable) -> None:
        """Let a program's clients vanish. What they had sent may arrive or not; their open transactions stay open."""
        for each in [each for each in self.sessions if each.process == process]:
            each.end()

    def set_adrift(self, requests: list[Callable[[], object]], pace: float = 1.0) -> None:
        """Take requests whose client no longer waits for them, in their order."""
        if requests:
            self._adrift.append(Adrift(requests, pace))

    def wait(self, is_done: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait as a client's call does, without a limit if the timeout is negative."""
        return self.turns.wait(is_done, None if timeout_s is None or timeout_s < 0 else timeout_s)

    def _time_out(self, known: TransactionalId) -> None:
        """Abort a transaction that is open for too long, and fence its producer (KIP-98)."""
        known.epoch += 1
        known.decide(is_commit=False)

    def _mark(self, known: TransactionalId, place: tuple[str, int]) -> None:
        """Write a marker. Readers see the transaction end in one partition after the other."""
        log = self.log(*place)
        if log is not None:
            log.mark(known.producer_id, is_commit=known.state == "commit")
        del known.places[place]
        if not known.places:
            known.state = "empty"

    def _add_faults(self, found: list[Callable[[], object]]) -> None:
        rng, faults = self.turns.rng, self.faults
        if faults.lost_connections and self.sessions and rng.random() < faults.lost_connections:
            found.append(rng.choice(self.sessions).lose_connection)
        if faults.cleaning and self.topics and rng.random() < faults.cleaning:
            topic = rng.choice([*self.topics.values()])
            log = rng.choice(topic.partitions)
            if "compact" in topic.setting("cleanup.policy"):
                found.append(partial(self.clean, topic.name, log.number, rng.randint(log.low, log.end)))

    def _next_uuid(self) -> Uuid:
        return Uuid(self.turns.rng.getrandbits(62), self.turns.rng.getrandbits(62))
