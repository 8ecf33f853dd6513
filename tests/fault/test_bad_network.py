"""A network that loses, delays, repeats and reorders what bridge and sink say to Kafka: every row stays, once.

``SEED=n make test-fault`` replays the choices of a run; which request they meet is up to the machine.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from cdc.base.errors import TopicUnavailable
from cdc.kafka.publish.application import ApplicationProducer
from cdc.lab.proof.topic_side import EndSeen, open_consumer, poll
from cdc.lab.stack import KafkaBroker
from cdc.lab.stack.embedded import HOST
from tests.support.deployment import deployed
from tests.support.kafka_wire import END_TXN, TXN_OFFSET_COMMIT, Fate, KafkaWire, Request
from tests.support.names import unique
from tests.support.sampling import sampled
from tests.support.servers import Database
from tests.support.soak import times
from tests.support.under_load import see_that_they_run, under_load
from tests.support.waiting import eventually

Fault = Callable[[KafkaWire, random.Random], None]

CUTS: Final = times(6, soak=40)
"""So many cuts the replica makes while the network is bad."""


def some_requests(fate: Fate, share: float = 0.004, kinds: Collection[int] = ()) -> Fault:
    """A fault that meets this share of the requests, of these kinds or of all."""

    def spoil(wire: KafkaWire, rng: random.Random) -> None:
        lock = threading.Lock()

        def fate_of(request: Request) -> Fate:
            if kinds and request.kind not in kinds:
                return Fate.PASS
            with lock:
                return fate if rng.random() < share else Fate.PASS

        wire.fate = fate_of

    return spoil


def slow(wire: KafkaWire, rng: random.Random) -> None:
    """Far away, over a thin line."""
    wire.slow(pause_s=rng.uniform(0.005, 0.03), bytes_per_s=rng.uniform(5e5, 2e6))


def one_way(wire: KafkaWire, rng: random.Random) -> None:
    """What one side sends does not arrive for some seconds, again and again, and then connections are reset."""
    up = rng.random() < 0.5
    wire.stop(up=up, down=not up)
    threading.Event().wait(rng.uniform(0.5, 4))
    if rng.random() < 0.5:
        wire.reset()
    wire.heal()
    threading.Event().wait(rng.uniform(2, 6))


def late_ends(wire: KafkaWire, rng: random.Random) -> None:
    """Some requests to end a transaction arrive when the client has asked again on another connection."""
    some_requests(Fate.LATE, 0.2, {END_TXN})(wire, rng)
    threading.Event().wait(rng.uniform(0, 0.5))
    wire.deliver()


FAULTS: Final[dict[str, Fault]] = {
    "requests lost": some_requests(Fate.LOSE),
    "answers lost": some_requests(Fate.LOSE_ANSWER),
    "requests repeated": some_requests(Fate.REPEAT),
    "slow": slow,
    "one way": one_way,
    "ends late": late_ends,
}


CASES: Final = [*itertools.product(FAULTS, ("transactional", "idempotent"))]
SAMPLE: Final = [("ends late", "transactional"), ("answers lost", "transactional"), ("requests lost", "idempotent")]


@pytest.fixture(scope="module")
def wire() -> Iterator[KafkaWire]:
    """To a broker that can be reached no other way."""
    with KafkaWire() as wire:
        advertised = {"advertised.listeners": f"PLAINTEXT://{HOST}:{wire.port}"}
        with KafkaBroker.open(settings=advertised, heap_mb=512, quick_start=True) as broker:
            wire.target = broker.port
            yield wire


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("fault", "delivery"), sampled(CASES, SAMPLE))
def test_a_bad_network_costs_time_only(
    wire: KafkaWire,
    database: Database,
    replica: Database,
    tmp_path: Path,
    rng: random.Random,
    fault: str,
    delivery: str,
) -> None:
    with (
        deployed(database, f"{HOST}:{wire.port}", replica, tmp_path) as live,
        under_load(live, rng, delivery) as watcher,
    ):

        def is_enough() -> bool:
            FAULTS[fault](wire, rng)
            see_that_they_run(live)
            return watcher.seen.cuts > CUTS

        try:
            eventually(is_enough, 60, lambda: f"{watcher.seen}\n{live.bridge.tail()}\n{live.sink.tail()}")
        finally:
            wire.heal()


def test_the_end_of_a_transaction_that_arrives_late_ends_no_other_one(wire: KafkaWire) -> None:
    """KIP-890: a broker cannot tell the two apart, as librdkafka does not raise the epoch with each transaction."""
    topic = unique("t")
    options: dict[str, Any] = {"bootstrap.servers": f"{HOST}:{wire.port}"}
    admin = AdminClient(options)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    versions = set[int]()
    fates = [Fate.LATE]

    def fate_of(request: Request) -> Fate:
        if request.kind != END_TXN:
            return Fate.PASS
        versions.add(request.version)
        return fates.pop() if fates else Fate.PASS

    def readable() -> list[bytes | None]:
        """Up to the last stable offset: what an open transaction hides is not waited for."""
        found: list[bytes | None] = []
        with closing(open_consumer(options["bootstrap.servers"])) as consumer:
            consumer.assign([TopicPartition(topic, 0, 0)])
            while True:
                for read in poll(consumer):
                    if isinstance(read, EndSeen):
                        return found
                    found.append(read.value)

    def producer() -> ApplicationProducer:
        return ApplicationProducer(options, transactional_id=topic, max_message_bytes=1 << 20)

    wire.fate = fate_of
    with closing(producer()) as former:
        former.start()
        former.produce(topic, b"k", b"1")
        former.commit()
        assert len(wire.late) == 1
        with pytest.raises(TopicUnavailable, match="asked for that twice"):
            former.produce(topic, b"k", b"2")
    with closing(producer()) as newer:
        newer.start()
        newer.produce(topic, b"k", b"2")
        newer.flush()
        wire.deliver()
        newer.produce(topic, b"k", b"3")
        newer.flush()
        assert readable() == [b"1"], "the late request ended a transaction of which it knows nothing"
        newer.commit()
    assert readable() == [b"1", b"2", b"3"]
    assert versions == {1}, "librdkafka speaks a newer protocol: does it raise the epoch with each transaction now?"


def test_offsets_that_arrive_late_set_no_group_back(wire: KafkaWire) -> None:
    """The same for TxnOffsetCommit: the offsets of the transaction before would be committed with the next one."""
    topic, group = unique("t"), unique("g")
    options: dict[str, Any] = {"bootstrap.servers": f"{HOST}:{wire.port}"}
    admin = AdminClient(options)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    fates = [Fate.LATE]
    reader = Consumer({**options, "group.id": group})
    reader.subscribe([topic])
    eventually(lambda: reader.poll(0.1) is None and reader.assignment())

    def fate_of(request: Request) -> Fate:
        return fates.pop() if fates and request.kind == TXN_OFFSET_COMMIT else Fate.PASS

    def committed() -> int:
        return int(reader.committed([TopicPartition(topic, 0)], 30)[0].offset)

    def producer() -> ApplicationProducer:
        return ApplicationProducer(options, transactional_id=topic, max_message_bytes=1 << 20, stores_offsets=True)

    with closing(producer()) as former:
        former.start()
        former.add_offsets({(topic, 0): 1}, reader.consumer_group_metadata())
        former.commit()
        wire.fate = fate_of
        former.add_offsets({(topic, 0): 5}, reader.consumer_group_metadata())
        former.commit()
        assert (len(wire.late), committed()) == (1, 5)
        with pytest.raises(TopicUnavailable, match="asked for that twice"):
            former.add_offsets({(topic, 0): 9}, reader.consumer_group_metadata())
    with closing(producer()) as newer:
        newer.start()
        newer.add_offsets({(topic, 0): 9}, reader.consumer_group_metadata())
        wire.deliver()
        newer.commit()
    assert committed() == 9
    reader.close()
