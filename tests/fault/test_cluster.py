"""Three brokers with three copies of everything, of which one may be killed, lost, hang or be cut off: no row is lost
or torn.

``SEED=n make test-fault`` replays the choices of a run; what they meet is up to the machine.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from tests.support.bank import Watcher
from tests.support.deployment import Deployment, deployed
from tests.support.kafka_cluster import Cluster, Node
from tests.support.sampling import sampled
from tests.support.servers import Database
from tests.support.soak import times
from tests.support.under_load import under_load, wait_for_cuts
from tests.support.waiting import eventually

COPIED: Final = {"topics": {"replication_factor": 3, "min_insync_replicas": 2}}
ROUNDS: Final = times(1, soak=5)
LONGEST_S: Final = times(10, soak=90)
"""Kafka aborts a transaction that is open for 60 s."""


class Trouble:
    """What happens to a node, and how it comes back."""

    def begin(self, cluster: Cluster, node: Node) -> None:
        node.kill()

    def last(self, live: Deployment, watcher: Watcher, rng: random.Random) -> None:
        """Take its time: until the others have taken over."""
        wait_for_cuts(live, watcher)

    def end(self, cluster: Cluster, node: Node) -> None:
        node.restart()


class Lost(Trouble):
    """The machine is gone for good; another one with an empty disk takes its number."""

    def end(self, cluster: Cluster, node: Node) -> None:
        node.wipe()
        node.restart()


class Unclean(Trouble):
    """The machine loses power: what its disk had not written yet is gone, although it was acknowledged."""

    def end(self, cluster: Cluster, node: Node) -> None:
        assert node.forget_the_end()
        node.restart()


class Hangs(Trouble):
    """It stands still, and goes on later where it was: it still takes itself for what it has been."""

    def begin(self, cluster: Cluster, node: Node) -> None:
        os.kill(node.pid, signal.SIGSTOP)

    def end(self, cluster: Cluster, node: Node) -> None:
        os.kill(node.pid, signal.SIGCONT)


class CutOff(Trouble):
    """The network parts. The node reaches neither brokers nor controllers, and still takes what clients send to it."""

    def begin(self, cluster: Cluster, node: Node) -> None:
        cluster.cut_off(node)

    def end(self, cluster: Cluster, node: Node) -> None:
        cluster.heal()


class Unreached(Trouble):
    """No client reaches the node, and the other nodes do: nobody takes over what it does."""

    def begin(self, cluster: Cluster, node: Node) -> None:
        cluster.cut_clients_off(node)

    def last(self, live: Deployment, watcher: Watcher, rng: random.Random) -> None:
        threading.Event().wait(rng.uniform(1, LONGEST_S))

    def end(self, cluster: Cluster, node: Node) -> None:
        cluster.heal()


def leader(cluster: Cluster, live: Deployment, rng: random.Random) -> Node:
    """The node that leads a partition of a table."""
    return cluster.leader(live.topic("public.account"), rng.randrange(3))


def coordinator(cluster: Cluster, live: Deployment, rng: random.Random) -> Node:
    """A node that leads a part of the transactions' log: with a single part, the one that commits."""
    return cluster.leader("__transaction_state", 0)


def controller(cluster: Cluster, live: Deployment, rng: random.Random) -> Node:
    """The node that says who leads."""
    return cluster.controller()


# A controller that forgets its disk forgets whom it voted for, and a quorum is not safe from that (KIP-853)
CASES: Final = [
    (who, trouble)
    for trouble in (Trouble, Lost, Unclean, Hangs, CutOff, Unreached)
    for who in (leader, coordinator, controller)
    if (who, trouble) not in ((controller, Lost), (controller, Unreached))
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


def wait_in_sync(cluster: Cluster) -> None:
    """Until every partition has all its copies again."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})

    def is_in_sync() -> bool:
        with suppress(KafkaException):
            topics = TopicCollection([*admin.list_topics(timeout=10).topics])
            found = [future.result() for future in admin.describe_topics(topics, request_timeout=10).values()]
            return all(len(each.isr) == len(each.replicas) for topic in found for each in topic.partitions)
        return False

    eventually(is_in_sync, 60)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("delivery", ["transactional", pytest.param("idempotent", marks=pytest.mark.long)])
@pytest.mark.parametrize(("who", "trouble"), sampled(CASES, [(leader, Unclean), (leader, CutOff)]))
def test_a_node_in_trouble_costs_time_only(
    cluster: Cluster,
    database: Database,
    replica: Database,
    tmp_path: Path,
    rng: random.Random,
    who: Callable[[Cluster, Deployment, random.Random], Node],
    trouble: type[Trouble],
    delivery: str,
) -> None:
    with (
        deployed(database, cluster.bootstrap, replica, tmp_path, COPIED) as live,
        under_load(live, rng, delivery) as watcher,
    ):
        wait_for_cuts(live, watcher)
        for _ in range(ROUNDS):
            node = who(cluster, live, rng)
            sys.stdout.write(f"{node.name}\n")
            trouble().begin(cluster, node)
            try:
                trouble().last(live, watcher, rng)
            finally:
                trouble().end(cluster, node)
            wait_in_sync(cluster)
            wait_for_cuts(live, watcher)
