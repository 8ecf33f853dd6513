"""A server that refuses is told at once, and one that does not answer is named while we wait for it."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ClusterMetadata
from typer.testing import CliRunner

from cdc.base.errors import CdcError, SourceUnavailable, TopicUnavailable
from cdc.bridge.source.connect import connect
from cdc.cli.cli import app
from cdc.kafka.brokers import BrokerAdmin
from cdc.lab.stack import Kafka
from cdc.sink.postgres.session import replica_engine
from cdc.views.store import redis_link
from tests.support.commands import cdc
from tests.support.servers import Database

AT_ONCE_S = 8.0
"""Of a busy machine; it took 16 to 18 seconds."""


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield int(listening.getsockname()[1])


@pytest.fixture
def refused() -> Iterator[int]:
    """A port of which nobody takes connections, and that nobody else is given meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield int(bound.getsockname()[1])


def file(folder: Path, source: str, kafka: str, replica: str) -> Path:
    path = folder / "shop.yaml"
    path.write_text(
        f"name: shop\nsource:\n  dsn: {source}\n  tables: [public.*]\nkafka:\n  bootstrap: {kafka}\n"
        f"sink:\n  dsn: {replica}\n"
    )
    return path


@pytest.mark.parametrize("command", ["init", "check", "status", "topics lint", "get public.orders 1"])
def test_a_refused_port_is_told_at_once(
    command: str, refused: int, database: Database, tmp_path: Path, kafka: Kafka
) -> None:
    database.execute("CREATE TABLE items (id integer PRIMARY KEY)")
    nobody = f"host=127.0.0.1 port={refused} user=cdc dbname=shop"
    words = [*command.split(), "-c", str(tmp_path / "shop.yaml")]
    if command == "init":
        words += ["--source", database.dsn, "--kafka", f"127.0.0.1:{refused}", "--yes"]
    else:
        file(tmp_path, nobody, f"127.0.0.1:{refused}", nobody)
    began = time.monotonic()
    done = CliRunner().invoke(app, words)
    assert time.monotonic() - began < AT_ONCE_S
    said = done.output + str(done.exception)
    assert f"cannot reach Kafka at 127.0.0.1:{refused}" in said
    assert done.exit_code != 0


def test_localhost_is_asked_at_both_its_addresses(kafka: Kafka) -> None:
    """A client calls all brokers down when ::1 refuses, although 127.0.0.1 answers a moment later."""
    port = kafka.bootstrap.rpartition(":")[2]
    for _ in range(5):
        assert BrokerAdmin({"bootstrap.servers": f"localhost:{port}"}).metadata(timeout_s=10).brokers


def test_brokers_that_answered_may_come_back(refused: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restart takes a while: only a client that never had an answer gives up early."""
    admin = BrokerAdmin({"bootstrap.servers": f"127.0.0.1:{refused}"})
    with monkeypatch.context() as answering:
        answering.setattr(AdminClient, "list_topics", lambda *_, **__: ClusterMetadata())
        admin.metadata(timeout_s=1)
    began = time.monotonic()
    with pytest.raises(TopicUnavailable):
        admin.metadata(timeout_s=2.5)
    assert time.monotonic() - began >= 2.4


def test_who_does_not_answer_is_named_meanwhile(silent: int, caplog: pytest.LogCaptureFixture) -> None:
    dsn = {"conninfo": f"host=127.0.0.1 port={silent} user=cdc dbname=shop connect_timeout=3"}
    place = redis_link.parse(f"redis://127.0.0.1:{silent}/0")
    ways: dict[str, Callable[[], object]] = {
        f"PostgreSQL at cdc@127.0.0.1:{silent}/shop to let us connect, up to 3 s": lambda: connect(
            dsn, application_name="test"
        ),
        f"the replica at cdc@127.0.0.1:{silent}/shop to let us connect, up to 3 s": lambda: replica_engine(
            dsn, application_name="test"
        ).connect(),
        f"Kafka at 127.0.0.1:{silent} to answer, up to 3 s": lambda: BrokerAdmin(
            {"bootstrap.servers": f"127.0.0.1:{silent}"}
        ).metadata(timeout_s=3),
        f"Redis at {place.name} to answer, up to 5 s": lambda: redis_link.connect(place, read_only=True),
    }
    with caplog.at_level(logging.WARNING, "cdc.waiting"), ThreadPoolExecutor() as side_by_side:
        for ended in [side_by_side.submit(way) for way in ways.values()]:
            assert isinstance(ended.exception(), CdcError)
    lines = sorted(each.getMessage() for each in caplog.records if each.name == "cdc.waiting")
    assert len(lines) == len(ways)
    assert [
        line for line, told in zip(lines, sorted(ways), strict=True) if not line.startswith(f"waiting for {told}")
    ] == []


def test_who_answers_is_not_named(database: Database, kafka: Kafka, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "cdc.waiting"):
        connect({"conninfo": database.dsn}, application_name="test").close()
        BrokerAdmin({"bootstrap.servers": kafka.bootstrap}).metadata(timeout_s=5)
    assert [each for each in caplog.records if each.name == "cdc.waiting"] == []


def test_a_command_shows_it_once_on_standard_error(silent: int, tmp_path: Path) -> None:
    """And nothing of what librdkafka says beside the error: that it goes on trying is not true of a command."""
    nobody = f"host=127.0.0.1 port={silent} user=cdc dbname=shop connect_timeout=3"
    done = cdc("tables", "list", "-c", str(file(tmp_path, nobody, f"127.0.0.1:{silent}", nobody)), own_jvm=True)
    assert done.stderr.count("waiting for PostgreSQL at") == 1
    assert done.returncode == SourceUnavailable.exit_code
