"""``cdc status``: positions and lags of all parts, and any part may be down."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from confluent_kafka import Producer
from typer.testing import CliRunner, Result

from cdc.base.lsn import LSN
from cdc.bridge.capture.copy_both import CopyBoth
from cdc.bridge.source.connect import connect
from cdc.bridge.source.slot import create_slot, identify
from cdc.cli.status_command import status
from cdc.contract.naming import progress_topic
from cdc.contract.progress import progress_value, stream_key
from cdc.contract.record import Progress
from cdc.lab.stack import Kafka
from cdc.lab.stack.embedded import free_port
from cdc.sink.postgres.schema_version import upgrade
from cdc.sink.postgres.session import replica_engine, try_lock
from tests.support.servers import Database
from tests.support.topic_settings import make_topic

_COMMAND = "import typer; from cdc.cli.status_command import status; typer.run(status)"


class Deployment:
    """A source, its progress topic and its replica, all in one database, as bridge and sink leave them."""

    def __init__(self, database: Database, kafka: Kafka, path: Path) -> None:
        self.database = database
        self.slot = f"cdc_{database.name}"
        self.file = path / "cdc.yaml"
        self.kafka = kafka
        self.document: dict[str, Any] = {
            "name": database.name,
            "source": {"dsn": database.dsn},
            "kafka": {"bootstrap": kafka.bootstrap},
            "sink": {"dsn": database.dsn, "schema": "mirror"},
        }

    def publish(self, lsn: LSN, commit_ts: int) -> None:
        """Write progress, as a bridge would."""
        options = {"bootstrap.servers": self.kafka.bootstrap}
        topic = progress_topic(self.database.name)
        make_topic(options, topic, 1, "compact")
        with connect({"conninfo": self.database.dsn}, application_name="test") as conn:
            value = progress_value(Progress(lsn, None, commit_ts, identify(conn)))
        producer = Producer(options)
        producer.produce(topic, value, stream_key(self.slot))
        assert producer.flush(30) == 0

    def mirror(self, lsn: LSN, commit_ts: int, state: str = "exact") -> None:
        """Write a cut, as a sink would."""
        upgrade(replica_engine({"conninfo": self.database.dsn}, application_name="test"))
        self.database.execute(
            "insert into cdc.cut (name, lsn, applied_lsn, commit_ts, system_identifier, timeline, database_oid,"
            " applied_at, caught_up_at) values (%s, %s::pg_lsn, %s::pg_lsn, %s, '1', 1, 1, now(), now())",
            [self.database.name, str(lsn), str(lsn), commit_ts],
        )
        self.database.execute(
            "insert into cdc.mirrored_table (name, topic, replica_table, fingerprint, state, reason, rows_applied)"
            " values (%s, 'shop.public.t', 'mirror.t', 'f', %s, 'value out of range', 1234)",
            [self.database.name, state],
        )

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Hold slot and lock, as bridge and sink do while they run."""
        walsender = CopyBoth({"conninfo": self.database.dsn}, application_name="test")
        engine = replica_engine({"conninfo": self.database.dsn}, application_name="test")
        with contextlib.closing(walsender), engine.connect() as connection:
            walsender.start(self.slot, self.slot, LSN(0))
            assert try_lock(connection, self.database.name)
            connection.commit()
            yield

    def status(self, *options: str, **changes: Any) -> Result:
        self.file.write_text(yaml.safe_dump({**self.document, **changes}))
        app = typer.Typer()
        app.command()(status)
        return CliRunner().invoke(app, ["-c", str(self.file), *options])


@pytest.fixture
def deployment(database: Database, kafka: Kafka, tmp_path: Path) -> Deployment:
    return Deployment(database, kafka, tmp_path)


@pytest.fixture
def busy(deployment: Deployment) -> Deployment:
    """A deployment that has published and mirrored: the replica is 96 bytes and 1.5 s behind the topics."""
    with connect({"conninfo": deployment.database.dsn}, application_name="test") as conn:
        conn.execute("create table public.t (id int primary key)")
        conn.execute(f"create publication {deployment.slot} for table public.t")
        published = create_slot(conn, deployment.slot)
    deployment.publish(published, 1_700_000_001_500_000)
    deployment.mirror(LSN(published - 96), 1_700_000_000_000_000)
    return deployment


def test_all_parts_healthy(busy):
    with busy.running():
        result = busy.status("--json")
        plain = busy.status()
    assert result.exit_code == 0, result.output
    seen = json.loads(result.stdout)
    assert (seen["healthy"], seen["problems"]) == (True, [])
    slot = seen["source"]["slot"]
    assert slot["active"]
    assert slot["wal_status"] == "reserved"
    assert slot["retained_bytes"] > 0
    assert slot["lag_bytes"] == LSN.parse(seen["source"]["wal_lsn"]) - LSN.parse(slot["confirmed_flush_lsn"])
    topics, sink = seen["topics"], seen["sink"]
    assert topics["published_lsn"] == slot["confirmed_flush_lsn"]
    assert topics["commit_time"] == "2023-11-14T22:13:21.500000+00:00"
    assert topics["age_seconds"] > 0
    assert (sink["running"], sink["state"], sink["lag_bytes"]) == (True, "running", 96)
    assert 0 < sink["lag_seconds"] < 60, "the topics held nothing more a moment ago, however old the commits are"
    assert sink["tables"] == [
        {
            "topic": "shop.public.t",
            "replica_table": "mirror.t",
            "state": "exact",
            "rows_applied": 1234,
            "refused": 0,
            "under_way": None,
            "reason": "value out of range",
        }
    ]
    assert plain.exit_code == 0
    assert re.search(r"running, cut .*, lag 96 B and \d+\.\d s", plain.output)
    assert "mirror.t: exact, 1,234 rows applied" in plain.output
    assert plain.output.endswith("is healthy\n")


def test_nothing_has_run_yet(deployment):
    result = deployment.status()
    assert result.exit_code == 4
    for words in ("there is no slot", "does not exist", "no sink runs", "cdc run", "cdc sink", "no cut yet"):
        assert words in result.output


def test_bridge_and_sink_stopped(busy):
    result = busy.status("--json")
    assert result.exit_code == 4
    seen = json.loads(result.stdout)
    assert [each["text"] for each in seen["problems"]] == [f"no bridge reads slot {busy.slot}", "no sink runs"]
    assert seen["source"]["slot"]["lag_seconds"] is None, "there may be no commit in what is not read"
    assert seen["sink"]["cut_lsn"]


@pytest.mark.parametrize(
    ("part", "section"),
    [
        ("source", "postgresql://u@127.0.0.1:{}/d"),
        ("topics", "127.0.0.1:{}"),
        ("sink", "postgresql://u@127.0.0.1:{}/d"),
    ],
)
def test_part_that_is_down_is_named_and_the_others_are_told(busy, part, section):
    nowhere = section.format(free_port())
    changes: dict[str, Any] = {
        "source": {"source": {"dsn": nowhere}},
        "topics": {"kafka": {"bootstrap": nowhere}},
        "sink": {"sink": {"dsn": nowhere}},
    }[part]
    with busy.running():
        result = busy.status("--json", **changes)
    assert result.exit_code == 4, result.output
    seen = json.loads(result.stdout)
    assert [each["part"] for each in seen["problems"]] == [part]
    assert seen["problems"][0]["remedy"]
    assert {name for name in ("source", "topics", "sink") if not seen[name]["reachable"]} == {part}
    assert part == "source" or seen["source"]["slot"]["active"]
    assert part == "topics" or seen["topics"]["published_lsn"]
    assert part == "sink" or seen["sink"]["cut_lsn"]


def test_stopped_table_needs_the_operator(busy):
    busy.database.execute("update cdc.mirrored_table set state = 'stopped'")
    with busy.running():
        result = busy.status()
    assert result.exit_code == 3
    assert "table mirror.t is stopped: value out of range" in result.output


def test_no_sink_configured(busy):
    with busy.running():
        result = busy.status("--json", sink=None)
    assert result.exit_code == 0
    assert json.loads(result.stdout)["sink"] is None


def test_watch_looks_again_until_interrupted(busy):
    busy.database.execute("update cdc.cut set lsn = lsn + 96, applied_lsn = applied_lsn + 96")  # nothing is to be done
    busy.file.write_text(yaml.safe_dump(busy.document))
    command = [sys.executable, "-c", _COMMAND, "-c", str(busy.file), "--watch", "--json"]
    with busy.running(), subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        busy.publish(LSN.parse(first["topics"]["published_lsn"]), 1_700_000_002_000_000)
        while json.loads(process.stdout.readline())["topics"] == first["topics"]:
            pass
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait(30) == 0
