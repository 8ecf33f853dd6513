"""Servers for all rings. Each starts when the first test asks for it and serves the whole session."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import structlog

from cdc.base import compiled
from cdc.lab.stack import AnyRegistry, Kafka, Postgres, PostgresMajor, Redis, open_redis, open_registry
from cdc.lab.stack.cache import Say
from tests.suite import FailureRecord
from tests.support import remedies, shared_broker
from tests.support.bridge_process import CdcProcess
from tests.support.deployment import Deploy, Deployment, deployed
from tests.support.forked import ForkedCdc
from tests.support.mariadb_server import MariadbServer
from tests.support.names import OURS
from tests.support.quick_java import make_default
from tests.support.scheduling import LANES_FROM, SparkLane, longest_first
from tests.support.servers import Database, OwnStack, Servers, fresh_database
from tests.support.topic_settings import delete_topics_with
from tests.support.versions import DEFAULT, parse_majors, versions_for

# A shell lets its background jobs ignore Ctrl-C, nohup a closed terminal, and what they start inherits that; commands
# under test must not.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

_ALLOCATIONS_PER_COLLECTION = 100_000

assert remedies.is_watching(), "an error without a remedy fails the test that makes it"

if os.environ.get("CDC_PURE_PYTHON"):
    compiled.avoid()


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--pg-majors``: the test matrix."""
    text = "run every test that needs a PostgreSQL on each of these versions, for instance 14,15,16,17,18"
    parser.addoption("--pg-majors", type=parse_majors, default=[], metavar="LIST", help=text)


def pytest_configure(config: pytest.Config) -> None:
    """The process that hands out the tests keeps what failed; if there are others, it starts a Kafka for them."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailureRecord(config))
    if config.getoption("numprocesses", None) and not config.getoption("collectonly"):
        shared_broker.start_for_workers(config)


def pytest_unconfigure(config: pytest.Config) -> None:
    """The shared Kafka ends with the run."""
    shared_broker.stop(config)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per PostgreSQL version: those of its ``pg`` mark, or of ``--pg-majors``."""
    markers = metafunc.definition.iter_markers("parametrize")
    if "pg_major" not in metafunc.fixturenames or any("pg_major" in marker.args[0] for marker in markers):
        return
    versions = versions_for(metafunc.definition.get_closest_marker("pg"), metafunc.config.getoption("--pg-majors"))
    if versions != [DEFAULT]:
        metafunc.parametrize("pg_major", versions, indirect=True, scope="session", ids=lambda major: f"pg{major}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of several test processes none is to begin a file of minutes when the others are done."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: longest_first(item.nodeid.partition("::")[0]))


def pytest_collection_finish() -> None:
    """Thousands of tests stay until the end: nobody need look for garbage among them, again and again.

    Nor among the rows that a test compares, by the ten thousand, after each 700 of them.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS_PER_COLLECTION)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> SparkLane | None:
    """Three processes or more have a lane for Spark's tests."""
    return SparkLane(config, log) if len(config.getoption("tx")) >= LANES_FROM else None


@pytest.fixture(scope="session", autouse=True)
def quick_java() -> None:
    """Each JVM of a Spark job starts in half the time."""
    make_default()


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """A command that runs within the test process sets up logging: its stream is closed by then, its level not ours."""
    loggers = logging.root, logging.getLogger("cdc")
    levels = [each.level for each in loggers]
    yield
    for handler in logging.root.handlers[:]:
        if type(handler) is logging.StreamHandler:  # pytest's own are of other classes
            logging.root.removeHandler(handler)
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def say(pytestconfig: pytest.Config) -> Say:
    """Shows a line at once: a first run downloads Kafka, and nobody likes a silent minute."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    terminal = pytestconfig.pluginmanager.getplugin("terminalreporter")
    is_worker = hasattr(pytestconfig, "workerinput")  # of several, whose standard output goes nowhere

    def show(line: str) -> None:
        if capture is not None and terminal is not None:
            with capture.global_and_fixture_disabled():
                if is_worker:
                    sys.stderr.write(f"\nstack: {line}\n")
                else:
                    terminal.ensure_newline()
                    terminal.write_line(f"stack: {line}")

    return show


@pytest.fixture(scope="session")
def servers(say: Say) -> Iterator[Servers]:
    """The session's PostgreSQL servers, one per version."""
    started = Servers(say)
    yield started
    started.close()


@pytest.fixture(scope="session")
def pg_major(request: pytest.FixtureRequest) -> PostgresMajor:
    """The PostgreSQL under ``postgres``, ``database`` and ``own_stack``; ``@pytest.mark.pg(16, 18)`` for several."""
    major: PostgresMajor = getattr(request, "param", DEFAULT)
    return major


@pytest.fixture(scope="session")
def postgres(servers: Servers, pg_major: PostgresMajor) -> Postgres:
    """The session's PostgreSQL of the version under test; as version 16, the server in CDC_PG_URL if there is one."""
    return servers.of(pg_major)


@pytest.fixture(scope="session")
def other_postgres(servers: Servers, pg_major: PostgresMajor) -> Postgres:
    """A server of another version than ``postgres``: 18, or 16 beside that."""
    return servers.of(16 if pg_major == 18 else 18)


@pytest.fixture(scope="session")
def kafka(say: Say, pytestconfig: pytest.Config) -> Iterator[Kafka]:
    """The session's Kafka, or the brokers in CDC_KAFKA. Topics are shared by all tests: take unique names."""
    yield shared_broker.join(pytestconfig, say)
    shared_broker.stop(pytestconfig)


@pytest.fixture(scope="module", autouse=True)
def no_topic_stays(pytestconfig: pytest.Config) -> Iterator[None]:
    """The topics of a file go with it: a thousand partitions that nobody uses keep a fiftieth of a core busy."""
    yield
    if broker := shared_broker.joined(pytestconfig):
        delete_topics_with(broker.bootstrap, OURS)


@pytest.fixture(scope="session")
def redis(say: Say) -> Iterator[Redis]:
    """The session's Redis, or the one in CDC_REDIS_URL. Its keys are shared by all tests: take a prefix of your own."""
    server = open_redis(say=say)
    yield server
    server.close()


@pytest.fixture(scope="session")
def registry(say: Say) -> Iterator[AnyRegistry]:
    """The session's schema registry, or the one in CDC_REGISTRY_URL. Its subjects are shared: take unique names."""
    server = open_registry(say=say)
    yield server
    server.close()


@pytest.fixture(scope="session")
def mariadb(say: Say) -> Iterator[MariadbServer]:
    """The session's MariaDB, shared by all tests: take a database of your own (``fresh_mariadb``)."""
    with MariadbServer.open(say=say) as server:
        yield server


@pytest.fixture
def database(servers: Servers, pg_major: PostgresMajor) -> Iterator[Database]:
    """A fresh database on the session's server, dropped with its slots at the end."""
    with fresh_database(servers.of(pg_major)) as fresh:
        yield fresh


@pytest.fixture
def replica(servers: Servers, pg_major: PostgresMajor) -> Iterator[Database]:
    """A fresh, empty database for a mirror, on another server than ``database``: their WAL positions stay apart."""
    with fresh_database(servers.of(16 if pg_major == 18 else 18)) as fresh:
        yield fresh


@pytest.fixture
def process_kind() -> type[CdcProcess]:
    """How bridge and sink start: forked from a process that has imported everything. The rings that are about processes
    start them as a user does.
    """
    return ForkedCdc


@pytest.fixture
def deploy(
    database: Database, replica: Database, kafka: Kafka, tmp_path: Path, process_kind: type[CdcProcess]
) -> Iterator[Deploy]:
    """Configures a bridge and a sink for ``database``: ``deploy(source={"tables": […]}, topics={…})``."""
    with ExitStack() as stack:

        def make(**sections: Mapping[str, Any]) -> Deployment:
            return stack.enter_context(deployed(database, kafka.bootstrap, replica, tmp_path, sections, process_kind))

        yield make


@pytest.fixture
def own_stack(pg_major: PostgresMajor) -> Iterator[OwnStack]:
    """Private servers: ``own_stack.postgres()``, ``own_stack.kafka()``; the test may kill them."""
    started = OwnStack(pg_major)
    yield started
    started.close()
