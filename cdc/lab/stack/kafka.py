"""An embedded Apache Kafka: one KRaft node, both broker and controller, started from the jars of the lock."""

from __future__ import annotations

import base64
import os
import shutil
import signal
import socket
import subprocess
import uuid
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import ClassVar, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from cdc.base.errors import StackError
from cdc.lab.stack.account import CURRENT
from cdc.lab.stack.cache import Say, make_once, silent
from cdc.lab.stack.embedded import HOST, EmbeddedServer, free_port
from cdc.lab.stack.jars import fetch_jars
from cdc.lab.stack.java import ClassArchive, Java, find_java
from cdc.lab.stack.running import ServerRecord, sweep

SETTINGS: Mapping[str, str] = {
    "auto.create.topics.enable": "false",
    # There is only one node for all replicas.
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # The cleaner looks for work often, so that a topic can be compacted within seconds. Not more often: it looks at
    # every partition, and at 200 ms a thousand idle partitions took 3 % of a core.
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "100",
    "log.segment.delete.delay.ms": "1000",
    # By default a controller writes a record every 500 ms to show that it lives, which nobody needs with one node.
    "metadata.max.idle.interval.ms": "10000",
    # After a kill, the controller accepts the broker again only when its last session has expired.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
"""Broker settings other than node, listeners and directory; also for a broker in a container."""


class KafkaBroker(EmbeddedServer):
    """A single Kafka node on the loopback address, with PLAINTEXT and no authorization unless settings change that."""

    _stop_signals: ClassVar[tuple[signal.Signals, ...]] = (signal.SIGTERM,)
    _death_signal: ClassVar[signal.Signals] = signal.SIGKILL

    def __init__(self, record: ServerRecord, java: Java, libs: Path, *, say: Say, detached: bool) -> None:
        super().__init__(record, CURRENT, detached=detached)
        self.name = "Kafka"
        self._java = java
        self._libs = libs
        self._archive = ClassArchive(java, libs.parent, say)
        self._options: list[str] = []
        self._settings: Mapping[str, str] = {}
        self._listeners: Mapping[str, int] = {}

    @classmethod
    def open(
        cls,
        *,
        settings: Mapping[str, str] | None = None,
        listeners: Collection[str] = (),
        heap_mb: int = 768,
        quick_start: bool = False,
        detached: bool = False,
        say: Say = silent,
    ) -> Self:
        """Format a new node and start it; downloads Kafka if it is not in the cache.

        Args:
            settings: broker settings in addition to ``SETTINGS``.
            listeners: names of more listeners than PLAINTEXT, such as SASL_SSL; ``settings`` configure them.
            heap_mb: Java heap; the default is enough for the demo and the benchmarks, 512 for tests.
            quick_start: compile less, which starts half a second sooner but lowers the throughput; for tests.
            detached: let the broker outlive this process.
            say: called before anything that takes long.

        Raises:
            StackError: there is no Java, the jars are not available, or the broker did not start.
        """
        sweep()
        java, libs = find_java(), fetch_jars(say=say)
        broker = cls(ServerRecord("Kafka", detached=detached), java, libs, say=say, detached=detached)
        broker._options = [f"-Xmx{heap_mb}m", *(["-XX:TieredStopAtLevel=1"] if quick_start else [])]
        broker._settings = {**SETTINGS, **(settings or {})}
        broker._listeners = {name: free_port() for name in listeners}
        try:
            shutil.copytree(_formatted(java, libs, say), broker.directory / "data")
            return broker.start()
        except BaseException:
            broker.close()
            raise

    @property
    def url(self) -> str:
        """The same as ``bootstrap``."""
        return self.bootstrap

    @property
    def bootstrap(self) -> str:
        """The address for clients, ``host:port``."""
        return f"{HOST}:{self.port}"

    def listener(self, name: str) -> str:
        """Returns the address of one of ``listeners``, ``host:port``."""
        return f"{HOST}:{self._listeners[name]}"

    def stop(self) -> None:
        """Stop the broker, with SIGKILL after 15 seconds; does nothing if it is not running."""
        super().stop()
        self._archive.keep()

    def command(self) -> list[str | Path]:
        properties, ports = self.directory / "server.properties", {"PLAINTEXT": self.port, **self._listeners}
        properties.write_text(_properties(self.directory / "data", ports, free_port(), self._settings))
        archive = self._archive.flags(train=not self._detached)
        options = [*self._options, *archive, "-XX:+ExitOnOutOfMemoryError", "-Dlog4j2.level=INFO"]
        return [*java_command(self._java, self._libs), *options, "kafka.Kafka", properties]

    def _environment(self) -> Mapping[str, str]:
        return os.environ

    def _answers(self) -> bool:
        try:
            socket.create_connection((HOST, self.port), timeout=1).close()
        except OSError:
            return False
        try:
            # An open port is not enough: the broker works only once the controller has accepted and lists it.
            return bool(
                AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0}).list_topics(timeout=2).brokers
            )
        except KafkaException:
            return False


def java_command(java: Java, libs: Path) -> list[str | Path]:
    """Returns the beginning of a command line that runs a class of Kafka."""
    # Name the files one by one: a class archive fits exactly one class path, and a wildcard has no fixed order.
    class_path = ":".join(str(jar) for jar in sorted(libs.glob("*.jar")))
    return [java.executable, "-XX:+UseSerialGC", "-cp", class_path]


def _properties(data: Path, ports: Mapping[str, int], controller_port: int, settings: Mapping[str, str]) -> str:
    listeners = ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items())
    node = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"{listeners},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": listeners,
        "log.dirs": str(data),
    }
    return "".join(f"{name}={value}\n" for name, value in {**node, **settings}.items())


def cluster_id() -> str:
    """Returns a new id for a cluster, as Kafka wants it: 22 characters of base64 for URLs."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def format_tool(cluster: str, properties: Path) -> list[str]:
    """Returns the class that formats a node's directory, and its arguments."""
    # In one word, because one id in 64 begins with a dash, and would be taken for an option of its own
    return ["kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "-c", str(properties)]


def _formatted(java: Java, libs: Path, say: Say) -> Path:
    """Returns a formatted node directory, made once and copied for each broker, which saves a second per start."""

    def make(directory: Path) -> None:
        say("formatting a Kafka node (once)")
        properties = directory / "server.properties"
        properties.write_text(_properties(directory / "data", {"PLAINTEXT": 1}, 2, {}))
        tool = [*java_command(java, libs), *format_tool(cluster_id(), properties)]
        done = subprocess.run(tool, cwd=directory, capture_output=True, text=True)
        if done.returncode != 0:
            raise StackError(
                f"cannot format a Kafka node: {done.stdout}{done.stderr}".strip(),
                remedy="fix what it says above; the folder must be writable, with some GB free",
            )

    return make_once(libs.parent / "node", make) / "data"
