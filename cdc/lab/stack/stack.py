"""PostgreSQL and Kafka together, and Redis where one is wanted, whichever way they were had."""

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
from cdc.lab.stack.containers import KafkaContainer, PostgresContainer, RedisContainer
from cdc.lab.stack.kafka import KafkaBroker
from cdc.lab.stack.postgres import PostgresServer
from cdc.lab.stack.redis_server import RedisServer, answers

_CONNECT_TIMEOUT_S = 10
_REDIS_PORT = 6379


class Postgres(Protocol):
    """A PostgreSQL server that can be used."""

    def dsn(self, dbname: str = "postgres") -> str:
        """Connection string of one of its databases."""

    def close(self) -> None:
        """Remove it, if it is ours."""


class Kafka(Protocol):
    """A Kafka that can be used."""

    @property
    def bootstrap(self) -> str:
        """``host:port``, several with commas."""

    def close(self) -> None:
        """Remove it, if it is ours."""


class Redis(Protocol):
    """A Redis that can be used."""

    @property
    def url(self) -> str:
        """``redis://host:port/database``."""

    def close(self) -> None:
        """Remove it, if it is ours."""


@dataclass(frozen=True)
class GivenPostgres:
    """A server of the user's; never touched beyond connecting."""

    url: str

    def dsn(self, dbname: str = "postgres") -> str:
        """The given connection string with another database name; parameters stay."""
        if self.url.startswith(("postgresql://", "postgres://")):
            return urlsplit(self.url)._replace(path=f"/{quote(dbname, safe='')}").geturl()
        return make_conninfo(self.url, dbname=dbname)

    def close(self) -> None:
        """Nothing: it is not ours."""


@dataclass(frozen=True)
class GivenKafka:
    """Brokers of the user's."""

    bootstrap: str

    def close(self) -> None:
        """Nothing: it is not ours."""


@dataclass(frozen=True)
class GivenRedis:
    """A Redis of the user's."""

    url: str

    def close(self) -> None:
        """Nothing: it is not ours."""


@dataclass(frozen=True)
class Stack:
    """The servers; ``close`` or leaving the context removes what was started. ``redis`` is there when asked for."""

    postgres: Postgres
    kafka: Kafka
    redis: Redis | None = None

    def close(self) -> None:
        """Stop and remove what is ours."""
        with ExitStack() as cleanup:
            for server in (self.postgres, self.kafka, self.redis):
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
    """A PostgreSQL by the order of ``choose``.

    Args:
        url: a server to use as it is; ``major`` and ``settings`` are then the caller's business.
        backend: what to insist on.
        major: version of a server that is started.
        settings: ``postgresql.conf`` settings of a server that is started.
        for_tests: ``fsync`` off.
        detached: leave it running when this process ends, until ``cdc stack down``.
        say: told what was chosen and why, and about downloads.

    Raises:
        StackError: it cannot be had.
    """
    choice = choose("PostgreSQL", url=url, backend=backend, pg_major=major)
    say(str(choice))
    if choice.backend == "url":
        given = GivenPostgres(choice.url)
        try:
            psycopg.connect(choice.url, connect_timeout=_CONNECT_TIMEOUT_S).close()
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
    """A Kafka by the order of ``choose``; arguments as for ``open_postgres`` and ``KafkaBroker.open``.

    Raises:
        StackError: it cannot be had.
    """
    choice = choose("Kafka", url=bootstrap, backend=backend)
    say(str(choice))
    if choice.backend == "url":
        try:
            AdminClient({"bootstrap.servers": choice.url, "log_level": 0}).list_topics(timeout=_CONNECT_TIMEOUT_S)
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
    """A Redis by the order of ``choose``, empty and without files unless it is the user's own.

    Raises:
        StackError: it cannot be had.
    """
    choice = choose("Redis", url=url, backend=backend)
    say(str(choice))
    if choice.backend == "url":
        address = urlsplit(choice.url)
        if not address.hostname or not answers(address.hostname, address.port or _REDIS_PORT, _CONNECT_TIMEOUT_S):
            raise StackError(
                f"the given Redis at {address.hostname}:{address.port or _REDIS_PORT} does not answer",
                remedy="correct CDC_REDIS_URL",
            )
        return GivenRedis(choice.url)
    if choice.backend == "docker":
        return RedisContainer(detached=detached)
    return RedisServer.open(detached=detached, say=say)


def open_stack(
    *,
    postgres_url: str | None = None,
    kafka_bootstrap: str | None = None,
    backend: Backend = "auto",
    major: PostgresMajor = 16,
    with_redis: bool = False,
    for_tests: bool = False,
    detached: bool = False,
    say: Say = silent,
) -> Stack:
    """The servers, each by the order of ``choose``; arguments as for ``open_postgres`` and ``open_kafka``.

    Raises:
        StackError: one of them cannot be had; the others are not left behind.
    """
    with ExitStack() as started:
        kafka = open_kafka(bootstrap=kafka_bootstrap, backend=backend, for_tests=for_tests, detached=detached, say=say)
        started.callback(kafka.close)
        postgres = open_postgres(
            url=postgres_url, backend=backend, major=major, for_tests=for_tests, detached=detached, say=say
        )
        started.callback(postgres.close)
        redis = open_redis(backend=backend, detached=detached, say=say) if with_redis else None
        started.pop_all()
    return Stack(postgres, kafka, redis)
