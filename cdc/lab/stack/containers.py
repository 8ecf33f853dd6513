"""PostgreSQL, Kafka, Redis and a schema registry in Docker containers, through testcontainers.

They are used only if an engine really answers.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import psycopg
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from cdc.base.errors import StackError
from cdc.lab.stack.embedded import free_port, wait_until
from cdc.lab.stack.kafka import SETTINGS
from cdc.lab.stack.redis_server import answers
from cdc.lab.stack.registry import CONFLUENT_PATH, registry_answers
from cdc.lab.stack.running import ServerRecord, sweep

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

KAFKA_IMAGE = "apache/kafka:4.2.2"
REDIS_IMAGE = "redis:7.2"
REGISTRY_IMAGE = "apicurio/apicurio-registry:3.3.3"

_START_TIMEOUT_S = 120.0


def postgres_image(major: int) -> str:
    """Returns the image for a server version."""
    return f"postgres:{major}"


class _Container:
    """A container that was started, with its record."""

    def __init__(self, server: str, container: DockerContainer, *, detached: bool) -> None:
        self._record = ServerRecord(server, detached=detached)
        self._container = container

    def _start(self, url: Callable[[], str], answers: Callable[[], bool]) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._container.start()
            self._record.update(container=self._container.get_wrapped_container().id, url=url())
            answered = wait_until(lambda: self._ended() or answers(), _START_TIMEOUT_S)
            if not answered or self._ended():
                log = b"".join(self._container.get_logs()).decode(errors="replace")
                verb = "ended at once" if answered else f"did not answer within {_START_TIMEOUT_S:.0f} s"
                last_lines = "\n".join(log.splitlines()[-12:])
                raise StackError(
                    f"the container of {self._container.image} {verb}; the end of its log:\n{last_lines}",
                    remedy="fix what its log says, and start again",
                )
        except BaseException as error:
            self.close()
            if isinstance(error, Exception) and not isinstance(error, StackError):
                raise StackError(
                    f"the container of {self._container.image} cannot be started: {error}",
                    remedy=f"docker pull {self._container.image}, or use the embedded servers",
                ) from error
            raise

    def _ended(self) -> bool:
        container = self._container.get_wrapped_container()
        container.reload()
        return bool(container.status == "exited")

    def close(self) -> None:
        """Stop and remove the container."""
        with contextlib.suppress(Exception):
            self._container.stop()
        self._record.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class PostgresContainer(_Container):
    """PostgreSQL with logical WAL; user ``postgres``, no password."""

    def __init__(self, *, major: int, settings: Mapping[str, str], detached: bool) -> None:
        sweep()
        wanted = {"wal_level": "logical", "max_replication_slots": "20", "max_wal_senders": "20", **settings}
        container = _new(postgres_image(major)).with_env("POSTGRES_HOST_AUTH_METHOD", "trust")
        publish(container, 5432)
        container.with_command(["postgres", *(part for pair in wanted.items() for part in ("-c", "=".join(pair)))])
        super().__init__(f"PostgreSQL {major}", container, detached=detached)
        self._start(self.dsn, self._answers)

    def dsn(self, dbname: str = "postgres") -> str:
        """Returns the URL of a database for the superuser."""
        address = f"{self._container.get_container_host_ip()}:{self._container.get_exposed_port(5432)}"
        return f"postgresql://postgres@{address}/{dbname}"

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.dsn(), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True


class KafkaContainer(_Container):
    """A single Kafka node."""

    def __init__(self, *, settings: Mapping[str, str], detached: bool) -> None:
        sweep()
        container = _new(KAFKA_IMAGE)
        port = free_port()
        # Ask the engine for the host: before it starts, the container does not know it.
        self.bootstrap = f"{container.get_docker_client().host()}:{port}"
        # The broker needs a listener of its own to talk to itself, which it does when a Kafka transaction begins: the
        # address that clients use does not work inside the container.
        node = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": "1@localhost:9093",
            "controller.listener.names": "CONTROLLER",
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093,BROKER://:9094",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap},BROKER://localhost:9094",
            "inter.broker.listener.name": "BROKER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,BROKER:PLAINTEXT",
        }
        for name, value in {**node, **SETTINGS, **settings}.items():
            container.with_env("KAFKA_" + name.upper().replace(".", "_"), value)
        publish(container, 9092, port)
        super().__init__("Kafka", container, detached=detached)
        self._start(lambda: self.bootstrap, self._answers)

    def _answers(self) -> bool:
        try:
            return bool(
                AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0}).list_topics(timeout=2).brokers
            )
        except KafkaException:
            return False


class RedisContainer(_Container):
    """Redis without a password, which keeps its data in memory only."""

    def __init__(self, *, detached: bool) -> None:
        sweep()
        container = _new(REDIS_IMAGE).with_command(["redis-server", "--save", "", "--appendonly", "no"])
        publish(container, 6379)
        super().__init__("Redis", container, detached=detached)
        self._start(lambda: self.url, self._answers)

    @property
    def url(self) -> str:
        """The URL of its first database."""
        host, port = self._address()
        return f"redis://{host}:{port}/0"

    def _address(self) -> tuple[str, int]:
        return self._container.get_container_host_ip(), int(self._container.get_exposed_port(6379))

    def _answers(self) -> bool:
        return answers(*self._address())


class RegistryContainer(_Container):
    """Apicurio Registry without authentication, which keeps its schemas in memory only."""

    def __init__(self, *, detached: bool) -> None:
        sweep()
        container = _new(REGISTRY_IMAGE)
        publish(container, 8080)
        super().__init__("Registry", container, detached=detached)
        self._start(lambda: self.url, lambda: registry_answers(self.url))

    @property
    def url(self) -> str:
        """The URL for clients of Confluent's API."""
        host, port = self._container.get_container_host_ip(), self._container.get_exposed_port(8080)
        return f"http://{host}:{port}{CONFLUENT_PATH}"


def publish(container: Any, port: int, host_port: int | None = None) -> None:
    """Publish a port on the loopback address only: these servers let anybody in, as superuser."""
    container.ports[str(port)] = ("127.0.0.1",) if host_port is None else ("127.0.0.1", host_port)


def _new(image: str) -> Any:
    from testcontainers.core.config import testcontainers_config
    from testcontainers.core.container import DockerContainer

    # Without the reaper, whose image cannot be pulled everywhere: the records of running.py do the clean-up.
    testcontainers_config.ryuk_disabled = True
    return DockerContainer(image)
