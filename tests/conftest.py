"""Servers for all rings. Each starts when the first test asks for it and serves the whole session."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from cdc.stack import Kafka, Postgres, PostgresMajor, PostgresServer, open_kafka, open_postgres
from cdc.stack.cache import Say
from tests.support.deployment import Deploy, Deployment, deployed
from tests.support.servers import Database, OwnStack, fresh_database

# A shell lets its background jobs ignore Ctrl-C, and what they start inherits that; commands under test must not.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def say(pytestconfig: pytest.Config) -> Say:
    """Shows a line at once: a first run downloads Kafka, and nobody likes a silent minute."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    terminal = pytestconfig.pluginmanager.getplugin("terminalreporter")

    def show(line: str) -> None:
        if capture is not None and terminal is not None:
            with capture.global_and_fixture_disabled():
                terminal.ensure_newline()
                terminal.write_line(f"stack: {line}")

    return show


@pytest.fixture(scope="session")
def postgres(say: Say) -> Iterator[Postgres]:
    """The session's PostgreSQL 16, or the server in CDC_PG_URL."""
    server = open_postgres(major=16, for_tests=True, say=say)
    yield server
    server.close()


@pytest.fixture(scope="session")
def postgres18() -> Iterator[PostgresServer]:
    """The session's PostgreSQL 18, always embedded."""
    with PostgresServer.open(major=18, fsync=False) as server:
        yield server


@pytest.fixture(scope="session")
def kafka(say: Say) -> Iterator[Kafka]:
    """The session's Kafka, or the brokers in CDC_KAFKA. Topics are shared by all tests: take unique names."""
    broker = open_kafka(for_tests=True, say=say)
    yield broker
    broker.close()


@pytest.fixture
def pg_major() -> PostgresMajor:
    """The PostgreSQL under ``database``; for both: ``@pytest.mark.parametrize("pg_major", [16, 18])``."""
    return 16


@pytest.fixture
def database(request: pytest.FixtureRequest, pg_major: PostgresMajor) -> Iterator[Database]:
    """A fresh database on the session's server, dropped with its slots at the end."""
    server: Postgres = request.getfixturevalue("postgres18" if pg_major == 18 else "postgres")
    with fresh_database(server) as fresh:
        yield fresh


@pytest.fixture
def replica(request: pytest.FixtureRequest, pg_major: PostgresMajor) -> Iterator[Database]:
    """A fresh, empty database for a mirror, on another server than ``database``: their WAL positions stay apart."""
    server: Postgres = request.getfixturevalue("postgres" if pg_major == 18 else "postgres18")
    with fresh_database(server) as fresh:
        yield fresh


@pytest.fixture
def deploy(database: Database, replica: Database, kafka: Kafka, tmp_path: Path) -> Iterator[Deploy]:
    """Configures a bridge and a sink for ``database``: ``deploy(source={"tables": […]}, topics={…})``."""
    with ExitStack() as stack:

        def make(**sections: Mapping[str, Any]) -> Deployment:
            return stack.enter_context(deployed(database, kafka.bootstrap, replica, tmp_path, sections))

        yield make


@pytest.fixture
def own_stack() -> Iterator[OwnStack]:
    """Private servers: ``own_stack.postgres()``, ``own_stack.kafka()``; the test may kill them."""
    servers = OwnStack()
    yield servers
    servers.close()
