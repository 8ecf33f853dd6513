"""``cdc demo`` as a user runs it: a process of its own, that proves, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
from confluent_kafka.admin import AdminClient

from cdc.app.demo.daemon import Daemon, wait_for
from cdc.errors import StackError
from cdc.stack import Kafka, Postgres


@pytest.fixture
def environment(postgres: Postgres, kafka: Kafka) -> Iterator[dict[str, str]]:
    """The session's servers, given by URL; afterwards nothing of the demo may be left on them."""
    yield {**os.environ, "CDC_PG_URL": postgres.dsn(), "CDC_KAFKA": kafka.bootstrap}
    with psycopg.connect(postgres.dsn()) as connection:
        databases = connection.execute("SELECT datname FROM pg_database WHERE datname LIKE 'shop%'").fetchall()
        slots = connection.execute(
            "SELECT slot_name FROM pg_replication_slots WHERE slot_name LIKE 'cdc_shop%'"
        ).fetchall()
    topics = AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=10).topics
    assert (databases, slots, [topic for topic in topics if topic.startswith("shop")]) == ([], [], [])


def start(environment: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "cdc", "demo", *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.timeout(240)
def test_it_kills_both_and_proves_that_nothing_is_lost(environment: dict[str, str]) -> None:
    process = start(environment, "--changes", "4000", "--seed", "3")
    output, _ = process.communicate()
    assert process.returncode == 0, output
    assert output.count("SIGKILL") == 2, output
    assert "source = topic = replica" in output
    assert "0 missing, 0 duplicates" in output
    changes = re.search(r"row changes made\W+([\d,]+)", output)
    assert changes is not None, output
    assert int(changes[1].replace(",", "")) >= 4000


@pytest.mark.timeout(240)
def test_ctrl_c_in_the_middle_leaves_nothing_behind(environment: dict[str, str]) -> None:
    process = start(environment, "--changes", "20000")
    assert process.stdout is not None
    for line in process.stdout:
        if "SIGKILL" in line:
            break
    children = psutil.Process(process.pid).children(recursive=True)
    assert children
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate()
    assert process.returncode == 130, output
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive


def test_a_daemon_that_ends_by_itself_is_named_with_the_end_of_its_log(tmp_path: Path) -> None:
    with (
        Daemon("run", tmp_path / "missing.yaml", tmp_path / "bridge.log") as daemon,
        pytest.raises(StackError, match=r"`cdc run` ended by itself with exit code 2[\s\S]*missing\.yaml"),
    ):
        wait_for("slot", lambda: False, [daemon], timeout_s=30)
