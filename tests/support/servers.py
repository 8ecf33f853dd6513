"""Databases on the session's servers, and private servers that a test may kill."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql

from cdc.lab.stack import (
    KafkaBroker,
    Postgres,
    PostgresMajor,
    PostgresServer,
    RedisServer,
    RegistryServer,
    open_postgres,
)
from cdc.lab.stack.cache import Say
from tests.support.names import unique
from tests.support.versions import DEFAULT

BASIC_AUTH: Mapping[str, str] = {
    "quarkus.http.auth.basic": "true",
    "apicurio.auth.role-based-authorization": "true",
    "quarkus.security.users.embedded.plain-text": "true",
    "quarkus.security.users.embedded.users.cdc": "registry-password",
    "quarkus.security.users.embedded.roles.cdc": "sr-developer",
}
"""Settings of a schema registry that lets only the user ``cdc`` in, with this password."""


@dataclass(frozen=True)
class Database:
    """A fresh database of one test."""

    name: str
    dsn: str

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        """An autocommit connection as superuser."""
        return psycopg.connect(self.dsn, **{"autocommit": True, **options})

    def execute(self, query: str, parameters: Any = None) -> list[Any]:
        """Run one query on a connection of its own; its rows, if it has any."""
        with self.connect() as connection:
            cursor = connection.execute(query.encode(), parameters)
            return cursor.fetchall() if cursor.description else []


@contextlib.contextmanager
def fresh_database(server: Postgres, encoding: str = "UTF8") -> Iterator[Database]:
    """A new database; at the end it goes, with its slots and whoever still uses them."""
    name = unique("t_")
    identifier = sql.Identifier(name)
    create = sql.SQL("create database {}")
    if encoding != "UTF8":  # which the template may already have rows in
        create = sql.SQL("create database {} encoding {} locale 'C' template template0")
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        # Copied as files, a database takes half the CPU, and does not add 7 MB to the WAL that everybody here decodes
        strategy = sql.SQL(" strategy file_copy" if admin.info.server_version >= 150000 else "")
        admin.execute(create.format(identifier, sql.Literal(encoding)) + strategy)
    try:
        yield Database(name, server.dsn(name))
    finally:
        with psycopg.connect(server.dsn(), autocommit=True) as admin:
            roll_back_prepared(admin, name, server.dsn(name))
            drop_slots(admin, name)
            admin.execute(sql.SQL("drop database {} with (force)").format(identifier))


def roll_back_prepared(admin: psycopg.Connection[Any], database: str, dsn: str) -> None:
    """Roll back what a failed test left prepared in this database, which only a session there may do.

    It would keep the database from being dropped, and every later test on the server from making a slot: that waits
    for all transactions of the server, whatever their database.
    """
    prepared = admin.execute("select gid from pg_prepared_xacts where database = %s", [database])
    for (gid,) in prepared.fetchall():
        with psycopg.connect(dsn, autocommit=True) as own:
            own.execute(sql.SQL("rollback prepared {}").format(sql.Literal(gid)))


def drop_slots(admin: psycopg.Connection[Any], database: str) -> None:
    """Drop every replication slot of a database, ending the walsenders that hold them."""
    slots = admin.execute("select slot_name, active_pid from pg_replication_slots where database = %s", [database])
    for slot, active_pid in slots.fetchall():
        if active_pid is not None:
            # Returns when the backend is gone, so that the slot is free.
            admin.execute("select pg_terminate_backend(%s, 30000)", [active_pid])
        # A slot that was still being made went with its walsender
        admin.execute(
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = %s", [slot]
        )


@dataclass
class Servers:
    """PostgreSQL servers that many tests share, one per version; each starts when the first test asks for it."""

    _say: Say
    _started: dict[PostgresMajor, Postgres] = field(default_factory=dict)

    def of(self, major: PostgresMajor) -> Postgres:
        """The server of this version; embedded, but for 16, which CDC_PG_URL or Docker may provide."""
        if major not in self._started:
            self._started[major] = (
                open_postgres(major=major, for_tests=True, say=self._say)
                if major == DEFAULT
                else PostgresServer.open(major=major, fsync=False, say=self._say)
            )
        return self._started[major]

    def close(self) -> None:
        """Close all of them."""
        for server in self._started.values():
            server.close()


@dataclass
class OwnStack:
    """Starts embedded servers of one test, which may kill, stop and restart them; all are closed at its end.

    Attributes:
        major: the PostgreSQL to start when the test does not say.
    """

    major: PostgresMajor = DEFAULT
    _cleanup: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def postgres(
        self, major: PostgresMajor | None = None, settings: Mapping[str, str] | None = None, *, fsync: bool = False
    ) -> PostgresServer:
        """A PostgreSQL. Without fsync it still survives ``kill``: the operating system keeps what was written."""
        server = PostgresServer.open(major=major or self.major, settings=settings, fsync=fsync)
        return self._cleanup.enter_context(server)

    def kafka(self, settings: Mapping[str, str] | None = None, *, heap_mb: int = 512) -> KafkaBroker:
        """A Kafka node."""
        return self._cleanup.enter_context(KafkaBroker.open(settings=settings, heap_mb=heap_mb, quick_start=True))

    def redis(self, settings: Mapping[str, str] | None = None, *, persistent: bool = False) -> RedisServer:
        """A Redis; what is ``persistent`` survives ``kill``."""
        return self._cleanup.enter_context(RedisServer.open(persistent=persistent, settings=settings))

    def registry(self, settings: Mapping[str, str] | None = None) -> RegistryServer:
        """A schema registry; what it knows survives ``kill``."""
        return self._cleanup.enter_context(RegistryServer.open(settings=settings))

    def close(self) -> None:
        """Close all of them."""
        self._cleanup.close()
