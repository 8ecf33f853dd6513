"""A broker that was the leader of a partition, and answers as if it still were: its answer is not taken for the end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any, Final

import pytest
from confluent_kafka import KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from cdc.kafka.brokers import BrokerAdmin
from cdc.kafka.leaders import LeaderEpochs
from tests.support.kafka_cluster import Cluster, Node
from tests.support.waiting import eventually

TOPIC: Final = "orders"
PLACE: Final = (TOPIC, 0)
LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client gives it no types


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result()
        write(cluster.bootstrap, 10)
        yield cluster


def write(bootstrap: str, count: int) -> None:
    """Write so many records, each of which is confirmed by two replicas at least."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for _ in range(count):
        producer.produce(TOPIC, b"x", partition=0)
    assert producer.flush(60) == 0


def plain_end(admin: AdminClient) -> int:
    """What the client library says where the partition ends."""
    future: Future[Any] = admin.list_offsets({TopicPartition(*PLACE): LATEST})[TopicPartition(*PLACE)]
    return int(future.result().offset)


def others(cluster: Cluster, node: Node) -> str:
    return ",".join(each.url for each in cluster.nodes if each is not node)


def test_a_leader_that_is_cut_off(cluster: Cluster) -> None:
    node = cluster.leader(*PLACE)
    # Both begin at this broker, and so hear of leaders from nobody else
    plain, ours = AdminClient({"bootstrap.servers": node.url}), BrokerAdmin({"bootstrap.servers": node.url})
    assert plain_end(plain) == 10
    assert ours.offsets([PLACE], LATEST, timeout_s=10) == {PLACE: 10}
    cluster.cut_off(node)
    eventually(lambda: leads_elsewhere(cluster, node))
    write(others(cluster, node), 10)
    assert plain_end(plain) == 10, "an old answer"
    found = ours.offsets([PLACE], LATEST, timeout_s=10)[PLACE]
    assert isinstance(found, KafkaError)
    assert found.code() == KafkaError.NOT_LEADER_FOR_PARTITION
    fresh = BrokerAdmin({"bootstrap.servers": others(cluster, node)})
    assert fresh.offsets([PLACE], LATEST, timeout_s=10) == {PLACE: 20}
    cluster.heal()
    eventually(lambda: ours.offsets([PLACE], LATEST, timeout_s=10) == {PLACE: 20})


def leads_elsewhere(cluster: Cluster, node: Node) -> bool:
    admin = AdminClient({"bootstrap.servers": others(cluster, node)})
    return admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions[0].leader not in {-1, node.number}


def test_brokers_that_do_not_answer(cluster: Cluster) -> None:
    """One that hangs costs a moment, once; without two of three, nobody knows who leads."""
    leader = cluster.leader(*PLACE)
    follower, other = (node for node in cluster.nodes if node is not leader)
    addresses = {node.number: ("127.0.0.1", node.wires[0].port) for node in cluster.nodes}
    epochs = LeaderEpochs(addresses, {})
    newest = epochs.newest([PLACE])
    assert newest is not None
    epoch = newest[PLACE]
    assert epoch is not None
    os.kill(follower.pid, signal.SIGSTOP)
    try:
        # Not at once, because on a busy machine another one may be too slow, too, and is then left alone for a while
        eventually(lambda: epochs.newest([PLACE]) == {PLACE: epoch})
        eventually(lambda: epochs.newest([PLACE]) == {PLACE: epoch}, message="without the one that hangs")
        other.kill()
        assert epochs.newest([PLACE]) == {PLACE: None}
    finally:
        os.kill(follower.pid, signal.SIGCONT)


def test_brokers_that_only_the_client_library_can_ask(caplog: pytest.LogCaptureFixture) -> None:
    epochs = LeaderEpochs({1: ("127.0.0.1", 1)}, {})
    assert epochs.newest([PLACE]) is None
    assert epochs.newest([PLACE]) is None
    assert [record.message.partition(":")[0] for record in caplog.records if record.levelname == "WARNING"] == [
        "cannot ask each broker which one leads a partition"
    ]
