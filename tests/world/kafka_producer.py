"""The double of confluent_kafka's Producer: what librdkafka promises between a program and the log.

A batch goes through three steps: it leaves, a broker stores it, the acknowledgement arrives. What a client loses or
gives up between two of them is what a program has to live with. An idempotent producer's batches are stored once, and
in order within a partition, however often a connection is lost (KIP-98).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, Final

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, Message

from cdc.contract.partition import murmur2
from tests.world.kafka import KafkaCluster, Session
from tests.world.kafka_lanes import Batch, Ending, Lane
from tests.world.kafka_log import (
    DeliveryCallback,
    DeliveryReport,
    Headers,
    PartitionLog,
    QueuedRecord,
    record_bytes,
)
from tests.world.kafka_metadata import asked_metadata, cluster_at
from tests.world.kafka_transactions import Refused, TransactionSession

_LATE: Final = 0.05
"""The pace of a request that arrives after its connection broke: later than much of what the client asks meanwhile."""
_IN_FLIGHT: Final = 5
"""How many requests of an idempotent producer a partition has on their way, at most."""
_DEFAULTS: Final[Mapping[str, Any]] = {
    "transactional.id": "",
    "enable.idempotence": False,
    "enable.gapless.guarantee": False,
    "delivery.report.only.error": False,
    "message.max.bytes": 1_000_000,
    "queue.buffering.max.messages": 100_000,
    "queue.buffering.max.kbytes": 1_048_576,
    "transaction.timeout.ms": 60_000,
    "topic.metadata.propagation.max.ms": 30_000,
    "partitioner": "murmur2_random",
}
_FENCED: Final = {KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}


@lru_cache(maxsize=65_536)
def _hash(key: bytes) -> int:
    return murmur2(key) & 0x7FFFFFFF


class Sender(Session):
    """The threads of one producer: queues, requests on their way, and the state of its transaction."""

    def __init__(self, cluster: KafkaCluster, conf: Mapping[str, Any]) -> None:
        super().__init__(cluster, conf.get("error_cb"))
        known = {**_DEFAULTS, **conf}
        assert known["partitioner"] == "murmur2_random", "the model has no other partitioner"
        name = known["transactional.id"]
        self.is_idempotent = bool(name) or known["enable.idempotence"] in {True, "true"}
        self.is_gapless = known["enable.gapless.guarantee"] in {True, "true"}
        self.reports_all = known["delivery.report.only.error"] not in {True, "true"}
        self.max_message_bytes = int(known["message.max.bytes"])
        self.max_messages = int(known["queue.buffering.max.messages"])
        self.max_bytes = 1024 * int(known["queue.buffering.max.kbytes"])
        self.timeout_s = int(known["transaction.timeout.ms"]) / 1_000
        self.propagation_s = int(known["topic.metadata.propagation.max.ms"]) / 1_000
        self.patience_s = int(known.get("message.timeout.ms", self.timeout_s * 1_000 if name else 300_000)) / 1_000
        self.on_delivery = known.get("on_delivery")
        self.transaction = TransactionSession(cluster.coordinate(name)) if name else None
        self.state = "new" if name else "none"
        self.is_initialising = False
        self.ending: Ending | None = None
        self.fatal: KafkaError | None = None
        self.abortable: KafkaError | None = None
        self.has_lost_messages = False
        self.lanes: dict[tuple[str, int], Lane] = {}
        self.counts: dict[str, int] = {}
        self.under_way = 0
        self.bytes = 0
        self._busy: dict[Lane, None] = {}
        self._missing: set[str] = set()

    def add_steps(self, found: list[Callable[[], object]]) -> None:
        """Add: batches that may leave, be stored, or be acknowledged, and the coordinator's answers."""
        now = self.cluster.turns.now
        for lane in self._busy:
            if self.patience_s and now >= lane.since + self.patience_s:
                found.append(partial(self._time_out, lane))
        if self.cluster.answers:
            found += [partial(self._learn, name) for name in sorted(self._missing) if name in self.cluster.topics]
            self._add_requests(found)
            for lane in self._busy:
                self._add_steps_of(lane, found)

    def _add_requests(self, found: list[Callable[[], object]]) -> None:
        transaction = self.transaction
        if transaction is not None:
            if self.is_initialising and transaction.coordinated.state in {"empty", "ongoing"}:
                found.append(self._init)
            ending = self.ending
            if ending is not None and not ending.is_decided and transaction.is_ready:
                found.append(partial(self._decide, ending))
            elif ending is not None and ending.is_decided and not ending.is_answered:
                found.append(partial(setattr, ending, "is_answered", True))

    def _add_steps_of(self, lane: Lane, found: list[Callable[[], object]]) -> None:
        name, number = lane.place
        topic = self.cluster.topics.get(name)
        if topic is None or number < 0 or number >= len(topic.partitions):
            if topic is not None:
                found.append(partial(self._learn, name))
            elif self.cluster.turns.now >= lane.since + self.propagation_s:
                found.append(partial(self._forget, lane))
            return
        if len(topic.partitions) != self.counts.get(name):
            found.append(partial(self._learn, name))
        if (
            lane.queue
            and not self.fatal
            and len(lane.wire) < _IN_FLIGHT
            and (self.transaction is None or self.transaction.is_ready)
        ):
            found.append(partial(self._send, lane))
        if lane.wire:
            if lane.wire[0].is_decided:
                found.append(partial(self._acknowledge, lane))
            if not lane.wire[-1].is_decided:
                found.append(partial(self._store, lane))
                if self.cluster.faults.late_leaders and self._may_skip(lane, topic.partitions[number]):
                    found.append(partial(self._skip, lane))

    def due_at(self) -> float | None:
        """Returns when messages time out, or when a topic that no broker knows is given up."""
        times = [lane.since + self.patience_s for lane in self._busy if self.patience_s]
        times += [lane.since + self.propagation_s for lane in self._busy if self.cluster.log(*lane.place) is None]
        return min(times, default=None)

    def add(self, lane: Lane, record: QueuedRecord) -> None:
        """Put a record into the queue."""
        if not lane.queue and not lane.wire:
            self._busy[lane] = None
            lane.since = self.cluster.turns.now
        lane.queue.append(record)
        self.under_way += 1
        self.bytes += record.size

    def lane_of(self, topic: str, key: bytes | None, number: int) -> Lane:
        """Returns where a record goes, as far as this client knows: it may not know new partitions yet.

        Raises:
            KafkaException: there is no such partition, or the topic was given up.
        """
        count = self.counts.get(topic)
        if count is None:
            if topic in self._missing:
                raise KafkaException(KafkaError(KafkaError._UNKNOWN_TOPIC))
            found = self.cluster.topic(topic)
            if found is None:
                return self._lane((topic, -1))
            count = self.counts[topic] = len(found.partitions)
        if number >= count:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        if number < 0:
            # murmur2_random: as Java's clients do; a record without a key goes anywhere
            number = self.cluster.turns.rng.randrange(count) if key is None else _hash(key) % count
        return self._lane((topic, number))

    def _lane(self, place: tuple[str, int]) -> Lane:
        lane = self.lanes.get(place)
        if lane is None:
            lane = self.lanes[place] = Lane(place)
        return lane

    def lose_connection(self) -> None:
        """Take what is not acknowledged back into the queue. It is sent again, and an idempotent one stored once.

        Brokers know a batch again by its sequence number (KIP-98); one that is stored already is acknowledged only.
        """
        for lane in self._busy:
            for batch in lane.wire:
                batch.is_back = True
                if not self.is_idempotent:
                    batch.at = None

    def purge(self, *, in_queue: bool = True, in_flight: bool = True) -> None:
        """Give up messages. Those that have left may arrive yet, which no report says."""
        for lane in list(self._busy):
            left: list[Callable[[], object]] = []
            kept = []
            for batch in lane.wire:
                if not (in_queue if batch.is_back else in_flight):
                    kept.append(batch)
                    continue
                code = KafkaError._PURGE_QUEUE if batch.is_back else KafkaError._PURGE_INFLIGHT
                self._report(lane, batch.records, KafkaError(code))
                if not batch.is_decided:
                    left.append(partial(self._arrive, lane, batch))
            lane.wire = kept
            self.cluster.set_adrift(left)
            if in_queue:
                queue, lane.queue = lane.queue, []
                self._report(lane, queue, KafkaError(KafkaError._PURGE_QUEUE))
            self._rest(lane)

    def end(self) -> None:
        """End it; nobody hears what became of the messages."""
        if self not in self.cluster.sessions:
            return
        super().end()
        for lane in self._busy:
            self.cluster.set_adrift([partial(self._arrive, lane, batch) for batch in lane.wire if not batch.is_decided])
        self._busy.clear()
        if self.ending is not None and not self.ending.is_decided:
            self.cluster.set_adrift([partial(self._decide, self.ending)])
        self.events.clear()

    def ask_to_end(self, *, is_commit: bool) -> Ending:
        """Send the request that ends the transaction, unless it is under way."""
        if self.ending is None:
            self.ending = Ending(is_commit=is_commit)
        return self.ending

    def _init(self) -> None:
        """Let the coordinator fence the former producers; it answers when their transaction has ended everywhere."""
        assert self.transaction is not None
        if self.transaction.init(self.timeout_s):
            self.is_initialising, self.state = False, "ready"

    def _decide(self, ending: Ending) -> None:
        assert self.transaction is not None
        try:
            self.transaction.end(is_commit=ending.is_commit)
        except Refused as refused:
            ending.refusal = refused.code
        ending.is_decided = True

    def _send(self, lane: Lane) -> None:
        """Let a batch leave. In a transaction, the coordinator has to know the partition before."""
        if self.transaction is not None:
            try:
                self.transaction.add(lane.place, self.cluster.turns.now)
            except Refused:
                self.fail_for_good(KafkaError._FENCED, "Failed to add partitions to transaction: fenced")
                return
        rng, queue = self.cluster.turns.rng, lane.queue
        count = len(queue) if len(queue) == 1 or rng.random() < 0.5 else rng.randint(1, len(queue))
        size, taken = 0, 0
        while taken < count and (taken == 0 or size + queue[taken].size <= self.max_message_bytes):
            size += queue[taken].size
            taken += 1
        lane.wire.append(Batch(queue[:taken]))
        del queue[:taken]

    def _store(self, lane: Lane) -> None:
        batch = next(each for each in lane.wire if not each.is_decided)
        batch.is_back = False
        self._arrive(lane, batch)

    def _may_skip(self, lane: Lane, log: PartitionLog) -> bool:
        is_known = self._identity is None or self._identity in log.producers
        return not is_known and len([each for each in lane.wire if not each.is_decided]) > 1

    def _skip(self, lane: Lane) -> None:
        """Let the leader refuse the first batch for a moment, and take the second, as it knows no sequence number yet.

        The client takes the first for stored, too: brokers would have refused the second otherwise.
        """
        batch = next(each for each in lane.wire if not each.is_decided)
        batch.at = OFFSET_INVALID
        self._store(lane)

    @property
    def _identity(self) -> Hashable:
        """Whose sequence numbers brokers keep; None for a producer without."""
        if self.transaction is not None:
            return self.transaction.coordinated.producer_id
        return self if self.is_idempotent else None

    def _arrive(self, lane: Lane, batch: Batch) -> None:
        try:
            batch.at = self.cluster.store(lane.place, batch.records, self.transaction, self._identity)
        except Refused as refused:
            batch.refusal = refused.code

    def _acknowledge(self, lane: Lane) -> None:
        """Let the answer about the oldest batch arrive."""
        batch = lane.wire.pop(0)
        lane.since = self.cluster.turns.now
        if batch.refusal is None:
            self._report(lane, batch.records, None, batch.at)
        else:
            self._refused(lane, batch.records, batch.refusal)
        self._rest(lane)

    def _refused(self, lane: Lane, records: list[QueuedRecord], code: int) -> None:
        if self.transaction is not None and code in _FENCED:
            self.fail_for_good(KafkaError._FENCED, "ProduceRequest failed: fenced")
        elif self.transaction is not None:
            self.abortable = self.abortable or KafkaError(code, "ProduceRequest failed", False, False, True)
        elif self.is_gapless:
            self.fail_for_good(KafkaError._GAPLESS_GUARANTEE, "unable to satisfy gap-less guarantee")
        self._report(lane, records, KafkaError(code))

    def fail_for_good(self, code: int, reason: str) -> None:
        """Set the fatal error. What is on its way still gets its answer; what is queued stays, until it is purged."""
        if self.fatal is None:
            self.fatal = KafkaError(code, reason, True)
            self.events.append(self.fatal)

    def _time_out(self, lane: Lane) -> None:
        """Give up the messages of a partition that waited for longer than ``message.timeout.ms``."""
        records = [each for batch in lane.wire for each in batch.records] + lane.queue
        self.cluster.set_adrift([partial(self._arrive, lane, batch) for batch in lane.wire if not batch.is_decided])
        lane.wire, lane.queue = [], []
        self._lost(lane, records, KafkaError._MSG_TIMED_OUT)

    def _forget(self, lane: Lane) -> None:
        """Give up the messages for a topic that is not there, and refuse more until it is."""
        self.counts.pop(lane.place[0], None)
        self._missing.add(lane.place[0])
        records = [each for batch in lane.wire for each in batch.records] + lane.queue
        lane.wire, lane.queue = [], []
        self._lost(lane, records, KafkaError.UNKNOWN_TOPIC_OR_PART)

    def _lost(self, lane: Lane, records: list[QueuedRecord], code: int) -> None:
        self._report(lane, records, KafkaError(code))
        self._rest(lane)

    def _learn(self, topic: str) -> None:
        """Hear of a topic's partitions, and take what waits for them."""
        found = self.cluster.topic(topic)
        assert found is not None
        self._missing.discard(topic)
        self.counts[topic] = len(found.partitions)
        waiting = self._lane((topic, -1))
        records, waiting.queue = waiting.queue, []
        self._rest(waiting)
        for record in records:
            lane = self.lane_of(topic, record.key, -1)
            self.under_way -= 1
            self.bytes -= record.size
            self.add(lane, record)

    def _report(self, lane: Lane, records: list[QueuedRecord], error: KafkaError | None, at: int | None = None) -> None:
        """Queue a delivery report for each message that asked for one."""
        self.under_way -= len(records)
        self.bytes -= sum(each.size for each in records)
        if error is None and not self.reports_all:
            return
        self.has_lost_messages |= error is not None
        topic, number = lane.place
        for place, (value, key, headers, at_ms, callback, _) in enumerate(records):
            offset = OFFSET_INVALID if at is None or at < 0 else at + place
            message = Message(topic, number, offset, key, value, headers, error, (1, at_ms))
            self.events.append(DeliveryReport(callback or self.on_delivery, error, message))

    def _rest(self, lane: Lane) -> None:
        if not lane.queue and not lane.wire:
            self._busy.pop(lane, None)


class Producer:
    """confluent_kafka's Producer. It ends when it is freed."""

    def __init__(self, conf: Mapping[str, Any], *, logger: Any = None, **_others: object) -> None:
        self._sender = Sender(cluster_at(conf), conf)
        self._logger = logger if "eos" in conf.get("debug", "") else None
        self._turns = self._sender.cluster.turns

    def __del__(self) -> None:
        self._sender.end()

    def __len__(self) -> int:
        return self._sender.under_way + len(self._sender.events)

    def __bool__(self) -> bool:
        return True

    def produce(
        self,
        topic: str,
        value: bytes | str | None = None,
        key: bytes | str | None = None,
        partition: int = -1,
        callback: DeliveryCallback | None = None,
        on_delivery: DeliveryCallback | None = None,
        timestamp: int = 0,
        headers: Headers | None = None,
    ) -> None:
        """Put a message into the queue; nothing of it leaves in this call.

        Raises:
            BufferError: the queue is full.
            KafkaException: it is too large, or may not be sent now.
        """
        sender = self._sender
        if sender.fatal is not None:
            raise KafkaException(KafkaError(KafkaError._FATAL))
        if sender.state not in {"none", "open"} or sender.abortable is not None:
            raise KafkaException(KafkaError(KafkaError._STATE))
        if isinstance(value, str):
            value = value.encode()
        if isinstance(key, str):
            key = key.encode()
        size = record_bytes(key, value, headers)
        if size > sender.max_message_bytes:
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
        if sender.under_way + len(sender.events) >= sender.max_messages or sender.bytes + size > sender.max_bytes:
            raise BufferError("Local: Queue full")
        lane = sender.lane_of(topic, key, partition)
        at_ms = timestamp or int(self._turns.now * 1_000)
        sender.add(lane, QueuedRecord(value, key, headers or None, at_ms, on_delivery or callback, size))

    def poll(self, timeout: float = -1) -> int:
        """Take the waiting reports, and wait for the first one if there is none.

        Raises:
            KafkaException: a fatal error is told.
        """
        sender = self._sender
        self._turns.turn()
        if not sender.events and timeout:
            sender.cluster.wait(lambda: bool(sender.events), timeout)
        return self._serve()

    def flush(self, timeout: float = -1) -> int:
        """Wait until no message is left; returns how many are."""
        sender = self._sender
        self._turns.turn()
        sender.cluster.wait(lambda: not sender.under_way, timeout)
        self._serve()
        return len(self)

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Give up messages."""
        self._sender.purge(in_queue=in_queue, in_flight=in_flight)

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Ask a broker for metadata."""
        return asked_metadata(self._sender, topic, timeout)

    def init_transactions(self, timeout: float = -1) -> None:
        """Fence the former producers with this transactional id, and wait until what they left open is aborted."""
        sender = self._sender
        if sender.state != "new":
            raise _erroneous_state()
        self._turns.turn()
        sender.is_initialising = True
        if not sender.cluster.wait(lambda: not sender.is_initialising, timeout):
            raise _timed_out("Failed to initialize Producer ID")
        self._turns.turn()

    def begin_transaction(self) -> None:
        """Begin a transaction; no broker hears of it before its first record."""
        sender = self._sender
        self._raise_failure()
        if sender.state in {"committing", "aborting"}:
            raise _conflict()
        if sender.state != "ready":
            raise _erroneous_state()
        sender.state = "open"

    def commit_transaction(self, timeout: float = -1) -> None:
        """Wait until brokers have all records, and commit. A call after a timeout goes on where that one was.

        Raises:
            KafkaException: retriable, and the outcome is not known; or fatal; or the transaction has to be aborted.
        """
        sender = self._sender
        self._raise_failure()
        if sender.state not in {"open", "committing"}:
            raise _erroneous_state()
        sender.state = "committing"
        self._turns.turn()
        is_flushed = sender.cluster.wait(lambda: not sender.under_way or self._has_failed, timeout)
        self._serve_reports()
        self._raise_failure()
        if not is_flushed:
            raise _timed_out("Failed to flush all outstanding messages within the API timeout")
        if sender.has_lost_messages:
            text = "Messages failed delivery (see individual delivery reports)"
            sender.abortable = KafkaError(KafkaError._INCONSISTENT, text, False, False, True)
            raise KafkaException(sender.abortable)
        self._end(timeout, is_commit=True)

    def abort_transaction(self, timeout: float = -1) -> None:
        """Drop what is queued, wait for what is on its way, and abort."""
        sender = self._sender
        if sender.fatal is not None:
            raise KafkaException(sender.fatal)
        if sender.state == "committing" and sender.abortable is None:
            raise _conflict()
        if sender.state not in {"open", "committing", "aborting"}:
            raise _erroneous_state()
        sender.state = "aborting"
        self._turns.turn()
        sender.purge(in_flight=False)
        is_flushed = sender.cluster.wait(lambda: not sender.under_way or sender.fatal is not None, timeout)
        self._serve_reports()
        if sender.fatal is not None:
            raise KafkaException(sender.fatal)
        if not is_flushed:
            raise _timed_out("Failed to flush all outstanding messages within the API timeout")
        self._end(timeout, is_commit=False)

    def _end(self, timeout: float, *, is_commit: bool) -> None:
        sender = self._sender
        assert sender.transaction is not None
        if sender.transaction.added:
            ending = sender.ask_to_end(is_commit=is_commit)
            if is_commit and sender.cluster.turns.rng.random() < sender.cluster.faults.late_ends:
                self._ask_again(sender.transaction)
            is_unknown = is_commit and sender.cluster.turns.rng.random() < sender.cluster.faults.unknown_outcomes
            if is_unknown or not sender.cluster.wait(lambda: ending.is_answered, timeout):
                raise _timed_out("Transactional operation timed out")
            self._turns.turn()
            sender.ending = None
            if ending.refusal is not None:
                sender.fail_for_good(KafkaError._FENCED, "Failed to end transaction: fenced")
                assert sender.fatal is not None
                raise KafkaException(sender.fatal)
        sender.transaction.added.clear()
        sender.abortable, sender.has_lost_messages = None, False
        sender.state = "ready"

    def _ask_again(self, transaction: TransactionSession) -> None:
        """The connection breaks after the request; a log line is all that tells of it, and the client asks again."""
        sender, epoch = self._sender, transaction.epoch

        def arrive() -> None:
            if transaction.commit_late(epoch) and sender.state != "committing":
                sender.cluster.torn += 1

        sender.cluster.set_adrift([arrive], _LATE)
        if self._logger is not None:
            text = "[thrd:main]: EndTxn returned _TRANSPORT in state CommittingTransaction (may_retry=true)"
            self._logger.log(logging.DEBUG, "%s [%s] %s", "ENDTXN", "rdkafka#producer-1", text)

    @property
    def _has_failed(self) -> bool:
        return self._sender.fatal is not None or self._sender.abortable is not None

    def _raise_failure(self) -> None:
        failure = self._sender.fatal or self._sender.abortable
        if failure is not None:
            raise KafkaException(failure)

    def _serve(self) -> int:
        sender = self._sender
        if not sender.events:
            return 0
        return sender.serve()

    def _serve_reports(self) -> None:
        with suppress(KafkaException):
            self._serve()


def _erroneous_state() -> KafkaException:
    return KafkaException(KafkaError(KafkaError._STATE, "Operation not valid in state"))


def _conflict() -> KafkaException:
    """The error of a call while an earlier one, which timed out, is to be called again."""
    return KafkaException(KafkaError(KafkaError._CONFLICT, "Conflicting API call in progress", False, True))


def _timed_out(what: str) -> KafkaException:
    return KafkaException(KafkaError(KafkaError._TIMED_OUT, what, False, True))
