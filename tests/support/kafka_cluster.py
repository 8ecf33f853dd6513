"""Three Kafka nodes with replicated topics, each both broker and controller, whose every connection is a wire.

A node advertises the wires in front of it, to clients and to the other nodes. What they count tells who the controller
is, which clients are not told.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import ClassVar, Final, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from cdc.lab.stack.account import CURRENT
from cdc.lab.stack.cache import silent
from cdc.lab.stack.embedded import HOST, EmbeddedServer, free_port
from cdc.lab.stack.jars import fetch_jars
from cdc.lab.stack.java import ClassArchive, find_java
from cdc.lab.stack.kafka import SETTINGS, cluster_id, format_tool, java_command
from cdc.lab.stack.running import ServerRecord
from tests.support.kafka_wire import FETCH, KafkaWire
from tests.support.waiting import eventually

COPIES: Final = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    # Sooner than the 30 s of a real cluster, so that a test need not wait as long
    "replica.lag.time.max.ms": "5000",
    "controller.quorum.election.timeout.ms": "1000",
    "controller.quorum.fetch.timeout.ms": "2000",
}

_OF_A_NODE: Final = re.compile(r"(?:broker-|raft-client-|AddPartitionsManager-client-)?(\d+)(?:-.*)?")
"""What a node calls itself: to controllers ``2`` and ``raft-client-2``, to brokers ``broker-2-fetcher-0``,
``broker-2-txn-marker-sender`` and ``AddPartitionsManager-client-2``."""


def number_of(client: str) -> int:
    """The id of the node that calls itself by this name; 0 of a client that is no node."""
    found = _OF_A_NODE.fullmatch(client)
    return int(found[1]) if found else 0


class Node(EmbeddedServer):
    """One node of a cluster.

    Attributes:
        number: its id.
        wires: to its broker, and to its controller.
    """

    _stop_signals: ClassVar[tuple[signal.Signals, ...]] = (signal.SIGTERM,)
    _death_signal: ClassVar[signal.Signals] = signal.SIGKILL

    def __init__(self, number: int, wires: tuple[KafkaWire, KafkaWire]) -> None:
        super().__init__(ServerRecord("Kafka", in_memory=True), CURRENT, detached=False)
        self.name = f"Kafka node {number}"
        self.number = number
        self.wires = wires
        self._cluster, self._settings = "", dict[str, str]()
        self._java, self._libs = find_java(), fetch_jars(say=silent)
        self._archive = ClassArchive(self._java, self._libs.parent, silent)
        self._data = self.directory / "data"
        wires[1].target = free_port()

    @property
    def url(self) -> str:
        """Where a client finds it, behind the wire."""
        return f"{HOST}:{self.wires[0].port}"

    def format(self, cluster: str, settings: dict[str, str]) -> None:
        """Make its directory.

        Args:
            cluster: the id that all nodes of a cluster have in common.
            settings: of the broker, for all its starts.
        """
        self._cluster, self._settings = cluster, settings
        tool = self._run_java(*format_tool(cluster, self._properties()))
        subprocess.run(tool, cwd=self.directory, capture_output=True, check=True)

    def wipe(self) -> None:
        """Give it an empty disk, while it is down."""
        shutil.rmtree(self._data)
        self.format(self._cluster, self._settings)

    def forget_the_end(self) -> int:
        """Cut off half of what each newest segment holds, as a disk does that had not written it; returns the bytes."""
        forgotten = 0
        for partition in self._data.iterdir():
            segments = sorted(partition.glob("*.log"))
            # Kafka flushes the metadata log before it acknowledges, so a disk cannot lose its end
            if segments and not partition.name.startswith("__cluster_metadata"):
                size = segments[-1].stat().st_size
                os.truncate(segments[-1], size // 2)
                forgotten += size - size // 2
        return forgotten

    def command(self) -> list[str | Path]:
        self.wires[0].target = self.port
        options = ["-Xmx384m", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=INFO", *self._archive.flags(train=False)]
        return self._run_java(*options, "kafka.Kafka", self._properties())

    def _properties(self) -> Path:
        path = self.directory / "server.properties"
        broker, controller = self.wires
        listening = f"PLAINTEXT://{HOST}:{self.port},CONTROLLER://{HOST}:{controller.target}"
        own = {
            "process.roles": "broker,controller",
            "node.id": str(self.number),
            "controller.listener.names": "CONTROLLER",
            "listeners": listening,
            # A controller that wins an election tells the others where it is, and they believe that from then on
            "advertised.listeners": f"PLAINTEXT://{HOST}:{broker.port},CONTROLLER://{HOST}:{controller.port}",
            "log.dirs": str(self._data),
        }
        path.write_text("".join(f"{name}={value}\n" for name, value in {**self._settings, **own}.items()))
        return path

    def _run_java(self, *arguments: str | Path) -> list[str | Path]:
        return [*java_command(self._java, self._libs), *arguments]

    def _environment(self) -> Mapping[str, str]:
        return os.environ

    def _answers(self) -> bool:
        try:
            seen = AdminClient({"bootstrap.servers": f"{HOST}:{self.port}", "log_level": 0}).list_topics(timeout=2)
        except KafkaException:
            return False
        return self.number in seen.brokers


def _is_one_of(nodes: Collection[int], client: str) -> bool:
    return number_of(client) in nodes


class Cluster:
    """Three nodes, running while the ``with`` block lasts."""

    def __init__(self) -> None:
        self._cleanup = ExitStack()
        self.nodes: list[Node] = []

    def __enter__(self) -> Self:
        with ExitStack() as cleanup:
            for number in (1, 2, 3):
                wires = cleanup.enter_context(KafkaWire()), cleanup.enter_context(KafkaWire())
                self.nodes.append(cleanup.enter_context(Node(number, wires)))
            voters = ",".join(f"{node.number}@{HOST}:{node.wires[1].port}" for node in self.nodes)
            settings = {**SETTINGS, **COPIES, "controller.quorum.voters": voters}
            name = cluster_id()
            self._at_once([partial(each.format, name, settings) for each in self.nodes])
            self._at_once([each.start for each in self.nodes])
            self._cleanup = cleanup.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        for node in self.nodes:
            node.kill()  # a clean stop hands leaders on, for which nobody waits here
        self._cleanup.close()

    @property
    def bootstrap(self) -> str:
        """Where clients begin: at any node."""
        return ",".join(node.url for node in self.nodes)

    def node(self, number: int) -> Node:
        """The one with this id."""
        return self.nodes[number - 1]

    def leader(self, topic: str, partition: int) -> Node:
        """The node that leads a partition."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

        def found() -> int:  # -1 while there is none
            return max(int(admin.list_topics(topic, timeout=10).topics[topic].partitions[partition].leader), 0)

        return self.node(eventually(found))

    def controller(self) -> Node:
        """The node that is the active controller: the one that the other controllers fetch from."""
        before = [node.wires[1].seen[FETCH] for node in self.nodes]

        def found() -> Node | None:
            now = [node.wires[1].seen[FETCH] for node in self.nodes]
            return next((node for node, new, old in zip(self.nodes, now, before, strict=True) if new > old + 3), None)

        return eventually(found)

    def cut_off(self, node: Node) -> None:
        """Let nothing pass between a node and the other two, neither broker nor controller; clients reach all three."""
        for each in self.nodes:
            others = {other.number for other in self.nodes if (other is node) != (each is node)}
            for wire in each.wires:
                wire.cut_off(partial(_is_one_of, others))

    def cut_clients_off(self, node: Node) -> None:
        """Let nothing pass between a node and its clients; the other nodes reach it."""
        node.wires[0].cut_off(lambda client: not number_of(client))

    def heal(self) -> None:
        """Let everything pass again; what was held goes on its way."""
        for node in self.nodes:
            for wire in node.wires:
                wire.heal()

    @staticmethod
    def _at_once(tasks: Sequence[Callable[[], object]]) -> None:
        with ThreadPoolExecutor(len(tasks)) as pool:
            for done in [pool.submit(task) for task in tasks]:
                done.result()
