"""Opens PostgreSQL and Kafka together, and what else is wanted: given ones, in containers, or embedded."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self
from urllib.parse import quote, urlsplit

import psycopg
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from psycopg.conninfo import make_conninfo

from cdc.base.errors import StackError
from cdc.lab.stack.binaries import PostgresMajor
from cdc.lab.stack.cache import Say, silent
from cdc.lab.stack.choice import Backend, choose
from cdc.lab.stack.containers import KafkaContainer, PostgresContainer, RedisContainer, RegistryContainer
from cdc.lab.stack.kafka import KafkaBroker
from cdc.lab.stack.postgres import PostgresServer
from cdc.lab.stack.redis_server import RedisServer, answers
from cdc.lab.stack.registry import RegistryServer, registry_answers

CONNECT_TIMEOUT_S = 10
_REDIS_PORT = 6379


class Postgres(Protocol):
    """A PostgreSQL server, given or started here."""

    def dsn(self, dbname: str = "postgres") -> str:
        """Returns the connection string of one of its databases."""

    def close(self) -> None:
        """Stop and remove the server if it was started here."""


class Kafka(Protocol):
    """A Kafka cluster, given or started here."""

    @property
    def bootstrap(self) -> str:
        """The addresses, ``host:port``, separated by commas."""

    def close(self) -> None:
        """Stop and remove the cluster if it was started here."""


class Redis(Protocol):
    """A Redis server, given or started here."""

    @property
    def url(self) -> str:
        """The address, ``redis://host:port/database``."""

    def close(self) -> None:
        """Stop and remove the server if it was started here."""


class AnyRegistry(Protocol):
    """A schema registry, given or started here."""

    @property
    def url(self) -> str:
        """The URL for clients of Confluent's API."""

    def close(self) -> None:
        """Stop and remove the registry if it was started here."""


@dataclass(frozen=True)
class GivenPostgres:
    """The user's own server; it is used, and never stopped or removed."""

    url: str

    def dsn(self, dbname: str = "postgres") -> str:
        """Returns the given connection string with another database name, and the same parameters."""
        if self.url.startswith(("postgresql://", "postgres://")):
            return urlsplit(self.url)._replace(path=f"/{quote(dbname, safe='')}").geturl()
        return make_conninfo(self.url, dbname=dbname)

    def close(self) -> None:
        """Do nothing: the server is the user's."""


@dataclass(frozen=True)
class GivenKafka:
    """The user's own brokers."""

    bootstrap: str

    def close(self) -> None:
        """Do nothing: the brokers are the user's."""


@dataclass(frozen=True)
class GivenRedis:
    """The user's own Redis."""

    url: str

    def close(self) -> None:
        """Do nothing: the server is the user's."""


@dataclass(frozen=True)
class GivenRegistry:
    """The user's own schema registry."""

    url: str

    def close(self) -> None:
        """Do nothing: the registry is the user's."""


@dataclass(frozen=True)
class Stack:
    """The servers; a context manager that stops and removes those that were started here. The last two are optional."""

    postgres: Postgres
    kafka: Kafka
    redis: Redis | None = None
    registry: AnyRegistry | None = None

    def close(self) -> None:
        """Stop and remove the servers that were started here."""
        with ExitStack() as cleanup:
            for server in (self.postgres, self.kafka, self.redis, self.registry):
                if server is not None:
                    cleanup.callback(server.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_postgres(
    *,
    url: str | None = None,
    backend: Backend = "auto",
    major: PostgresMajor = 16,
    settings: Mapping[str, str] | None = None,
    for_tests: bool = False,
    detached: bool = False,
    say: Say = silent,
) -> Postgres:
    """Open the PostgreSQL that ``choose`` selects.

    Args:
        url: a server to use as it is; ``major`` and ``settings`` do not apply to it.
        backend: the backend to insist on.
        major: the version, if a server is started.
        settings: settings for ``postgresql.conf``, if a server is started.
        for_tests: turn ``fsync`` off.
        detached: leave the server running after this process, until ``cdc stack down``.
        say: called with what was chosen and why, and with the progress of downloads.

    Raises:
        StackError: the server does not answer, or cannot be started.
    """
    choice = choose("PostgreSQL", url=url, backend=backend, pg_major=major)
    say(str(choice))
    if choice.backend == "url":
        given = GivenPostgres(choice.url)
        try:
            psycopg.connect(choice.url, connect_timeout=CONNECT_TIMEOUT_S).close()
        except psycopg.Error as error:
            raise StackError(f"the given PostgreSQL does not answer: {error}", remedy="correct CDC_PG_URL") from None
        return given
    if choice.backend == "docker":
        fsync = {"fsync": "off" if for_tests else "on"}
        return PostgresContainer(major=major, settings={**fsync, **(settings or {})}, detached=detached)
    return PostgresServer.open(major=major, settings=settings, fsync=not for_tests, detached=detached, say=say)


def open_kafka(
    *,
    bootstrap: str | None = None,
    backend: Backend = "auto",
    settings: Mapping[str, str] | None = None,
    heap_mb: int = 768,
    for_tests: bool = False,
    detached: bool = False,
    say: Say = silent,
) -> Kafka:
    """Open the Kafka that ``choose`` selects; the arguments are those of ``open_postgres`` and ``KafkaBroker.open``.

    Raises:
        StackError: the brokers do not answer, or cannot be started.
    """
    choice = choose("Kafka", url=bootstrap, backend=backend)
    say(str(choice))
    if choice.backend == "url":
        try:
            AdminClient({"bootstrap.servers": choice.url, "log_level": 0}).list_topics(timeout=CONNECT_TIMEOUT_S)
        except KafkaException as error:
            raise StackError(
                f"the given Kafka {choice.url} does not answer: {error}", remedy="correct CDC_KAFKA"
            ) from error
        return GivenKafka(choice.url)
    if choice.backend == "docker":
        return KafkaContainer(settings=settings or {}, detached=detached)
    return KafkaBroker.open(settings=settings, heap_mb=heap_mb, quick_start=for_tests, detached=detached, say=say)


def open_redis(
    *, url: str | None = None, backend: Backend = "auto", detached: bool = False, say: Say = silent
) -> Redis:
    """Open the Redis that ``choose`` selects. If it is started here, it is empty and keeps no files.

    Raises:
        StackError: the server does not answer, or cannot be started.
    """
    choice = choose("Redis", url=url, backend=backend)
    say(str(choice))
    if choice.backend == "url":
        address = urlsplit(choice.url)
        if not address.hostname or not answers(address.hostname, address.port or _REDIS_PORT, CONNECT_TIMEOUT_S):
            raise StackError(
                f"the given Redis at {address.hostname}:{address.port or _REDIS_PORT} does not answer",
                remedy="correct CDC_REDIS_URL",
            )
        return GivenRedis(choice.url)
    if choice.backend == "docker":
        return RedisContainer(detached=detached)
    return RedisServer.open(detached=detached, say=say)


def open_registry(
    *, url: str | None = None, backend: Backend = "auto", detached: bool = False, say: Say = silent
) -> AnyRegistry:
    """Open the schema registry that ``choose`` selects. If it is started here, it is empty and lets anybody in.

    Raises:
        StackError: the registry does not answer, or cannot be started.
    """
    choice = choose("Registry", url=url, backend=backend)
    say(str(choice))
    if choice.backend == "url":
        if not registry_answers(choice.url, CONNECT_TIMEOUT_S):
            raise StackError(
                "no schema registry answers at the given URL",
                remedy="correct CDC_REGISTRY_URL: it is where Confluent's API begins, such as http://host:8081, or "
                "http://host:8080/apis/ccompat/v7 for Apicurio",
            )
        return GivenRegistry(choice.url)
    if choice.backend == "docker":
        return RegistryContainer(detached=detached)
    return RegistryServer.open(detached=detached, say=say)


def open_stack(
    *,
    postgres_url: str | None = None,
    kafka_bootstrap: str | None = None,
    backend: Backend = "auto",
    major: PostgresMajor = 16,
    with_redis: bool = False,
    with_registry: bool = False,
    for_tests: bool = False,
    detached: bool = False,
    say: Say = silent,
) -> Stack:
    """Open all servers that ``choose`` selects; the arguments are those of ``open_postgres`` and ``open_kafka``.

    Raises:
        StackError: a server does not answer or cannot be started; the others are closed again.
    """
    with ExitStack() as started:
        kafka = open_kafka(bootstrap=kafka_bootstrap, backend=backend, for_tests=for_tests, detached=detached, say=say)
        started.callback(kafka.close)
        postgres = open_postgres(
            url=postgres_url, backend=backend, major=major, for_tests=for_tests, detached=detached, say=say
        )
        started.callback(postgres.close)
        redis = open_redis(backend=backend, detached=detached, say=say) if with_redis else None
        if redis is not None:
            started.callback(redis.close)
        registry = open_registry(backend=backend, detached=detached, say=say) if with_registry else None
        started.pop_all()
    return Stack(postgres, kafka, redis, registry)
