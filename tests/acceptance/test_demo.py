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

from cdc.base.errors import StackError
from cdc.lab.demo.processes import Daemon, wait_for
from cdc.lab.demo.shop_tables import TABLES
from cdc.lab.stack import Kafka, Postgres
from cdc.spark.report.document import from_json


@pytest.fixture
def environment(postgres: Postgres, kafka: Kafka, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The session's servers, given by URL; afterwards nothing of the demo may be left on them, nor on the disk."""
    yield {**os.environ, "CDC_PG_URL": postgres.dsn(), "CDC_KAFKA": kafka.bootstrap, "TMPDIR": str(tmp_path)}
    assert not list(tmp_path.glob("cdc-demo-*"))
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


@pytest.mark.timeout(900)
@pytest.mark.parametrize("envelope", ["plain", pytest.param("debezium", marks=pytest.mark.long)])
def test_it_loads_what_was_there_kills_both_and_proves_that_nothing_is_lost(
    environment: dict[str, str], tmp_path: Path, envelope: str
) -> None:
    report = tmp_path / "report"
    options = ("--rows", "20000", "--changes", "2000", "--seed", "3", "--envelope", envelope)
    process = start(environment, *options, "--report", str(report))
    output, _ = process.communicate()
    assert process.returncode == 0, output
    before = figure(r"a shop with ([\d,]+) rows", output)
    assert before >= 20_000
    for table in TABLES:
        assert re.search(rf"{table}: done, [\d,]+ rows published", output), output
    # Not all: rows that the traffic changed meanwhile come by the stream.
    assert figure(r"backfill\W+([\d,]+) rows in", output) > before / 4, output
    assert f"the replica says: {len(TABLES)} tables exact" in output
    assert output.index("tables exact") < output.index("SIGKILL")
    assert "Spark agrees" in output, output
    found = from_json((report / "report.json").read_text(encoding="utf-8"))
    assert {each.table for each in found.tables} == set(TABLES)
    assert output.count("SIGKILL") == 2, output
    assert "source = topic = replica" in output
    assert "0 missing, 0 duplicates" in output
    assert figure(r"row changes during it\W+([\d,]+)", output) > 0
    assert figure(r"row changes after it\W+([\d,]+)", output) >= 2000


def figure(pattern: str, output: str) -> int:
    found = re.search(pattern, output)
    assert found is not None, output
    return int(found[1].replace(",", ""))


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("when", "number"),
    [("tables over", signal.SIGINT), pytest.param("SIGKILL", signal.SIGTERM, marks=pytest.mark.long)],
)
def test_ended_in_the_middle_it_leaves_nothing_behind(
    environment: dict[str, str], when: str, number: signal.Signals
) -> None:
    process = start(environment, "--rows", "20000", "--changes", "5000")
    assert process.stdout is not None
    for line in process.stdout:
        if when in line:
            break
    children = psutil.Process(process.pid).children(recursive=True)
    assert children
    process.send_signal(number)
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
