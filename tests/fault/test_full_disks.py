"""A disk that is full ends its server: the broker, or the source, whose WAL has no room. No row is lost or torn."""

from __future__ import annotations

import random
from pathlib import Path

import psycopg
import pytest

from cdc.lab.stack import Kafka, PostgresServer
from tests.support.deployment import deployed
from tests.support.sampling import sampled
from tests.support.servers import Database, OwnStack
from tests.support.small_disk import filled, small_folder
from tests.support.under_load import see_that_they_run, under_load, wait_for_cuts
from tests.support.waiting import eventually


def has_panicked(server: PostgresServer) -> bool:
    """Whether a server has ended for lack of room; until then it gets more to write."""
    try:
        with psycopg.connect(server.dsn(), connect_timeout=5) as connection:
            connection.execute("SELECT pg_logical_emit_message(false, 'filler', repeat('x', 1000000))")
    except psycopg.OperationalError:
        return "PANIC" in server.log_path.read_text(errors="replace")
    return False


@pytest.mark.long
@pytest.mark.parametrize("delivery", ["transactional", "idempotent"])
def test_a_broker_whose_disk_is_full(
    own_stack: OwnStack, database: Database, replica: Database, tmp_path: Path, delivery: str
) -> None:
    """Kafka halts when its only log directory cannot be written."""
    broker = own_stack.kafka()
    folder = broker.directory / "data"
    with (
        small_folder(broker, folder, 64),
        deployed(database, broker.bootstrap, replica, tmp_path) as live,
        under_load(live, random.Random(1), delivery) as watcher,
    ):
        wait_for_cuts(live, watcher)
        with filled(folder):
            eventually(lambda: not broker.pid, 60, broker.log_path.read_text)
        see_that_they_run(live)
        broker.restart()
        wait_for_cuts(live, watcher)


@pytest.mark.parametrize("delivery", sampled(["transactional", "idempotent"], ["transactional"]))
def test_a_source_whose_wal_has_no_room(
    own_stack: OwnStack, kafka: Kafka, replica: Database, tmp_path: Path, delivery: str
) -> None:
    """PostgreSQL panics when it cannot make the next segment, and again when it recovers."""
    server = own_stack.postgres()
    folder = server.directory / "data" / "pg_wal"
    with small_folder(server, folder, 80):
        source = Database("postgres", server.dsn())
        with (
            deployed(source, kafka.bootstrap, replica, tmp_path) as live,
            under_load(live, random.Random(1), delivery) as watcher,
        ):
            wait_for_cuts(live, watcher)
            with filled(folder):
                eventually(lambda: has_panicked(server), 60, server.log_path.read_text)
            see_that_they_run(live)
            server.restart()
            wait_for_cuts(live, watcher)
