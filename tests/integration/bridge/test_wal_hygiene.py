"""WAL is kept for nobody longer than needed; who makes the server keep it is named before anything is lost."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import typer
import yaml
from structlog.testing import capture_logs
from typer.testing import CliRunner

from cdc.base.config import Config
from cdc.base.lsn import LSN
from cdc.bridge.source import slot_watch
from cdc.bridge.source.connect import connect
from cdc.bridge.source.retention import Retention, dangers, inspect_retention
from cdc.bridge.source.slot import create_slot, inspect_slot
from cdc.bridge.source.slot_watch import SlotWatch
from cdc.cli.status_command import status
from cdc.lab.stack import Kafka, Postgres
from tests.support.deployment import Deploy
from tests.support.servers import Database, OwnStack, fresh_database
from tests.support.waiting import eventually

SEGMENT = 16 * 1024 * 1024


def fill_segments(database: Database, count: int) -> None:
    """Use up WAL as a busy database does, without writing most of it: each switch skips to the next segment."""
    with database.connect() as conn:
        for _ in range(count):
            conn.execute("select pg_logical_emit_message(false, 'busy', 'x')")
            conn.execute("select pg_switch_wal()")


def settings_of(database: Database, dsn: str = "") -> dict[str, Any]:
    return {
        "name": database.name,
        "source": {"dsn": dsn or database.dsn, "slot": f"cdc_{database.name}"},
        "kafka": {"bootstrap": "127.0.0.1:1"},
    }


@contextmanager
def slot_beside_an_open_transaction(database: Database) -> Iterator[tuple[psycopg.Connection[Any], str]]:
    """A slot that is confirmed up to now, and a transaction that has been open since before five segments."""
    slot = f"cdc_{database.name}"
    database.execute("create table t (id int)")
    with connect({"conninfo": database.dsn}, application_name="test") as conn:
        create_slot(conn, slot)
    holder = database.connect(autocommit=False, application_name="nightly report")
    holder.execute("insert into t values (1)")
    fill_segments(database, 5)
    database.execute("select pg_replication_slot_advance(%s, pg_current_wal_lsn())", [slot])
    yield holder, slot
    holder.close()


def test_idle_database_beside_a_busy_one_keeps_no_wal(deploy: Deploy, postgres: Postgres) -> None:
    deployment = deploy(source={"tables": ["public.*"]})
    deployment.source.execute("create table quiet (id int primary key)")
    deployment.start_bridge()
    slot = deployment.slot()
    with fresh_database(postgres) as busy, connect({"conninfo": busy.dsn}, application_name="test") as conn:
        for _ in range(3):
            fill_segments(busy, 3)
            written = LSN.parse(busy.execute("select pg_current_wal_lsn()::text")[0][0])

            def is_let_go(written: LSN = written) -> bool:
                # The server says which transactions run, and so what a slot may let go, only every 15 s, or now
                conn.execute("checkpoint")
                state = inspect_slot(conn, slot)
                assert state is not None
                assert state.confirmed_flush_lsn is not None
                assert state.retained_bytes is not None
                return state.confirmed_flush_lsn >= written and state.retained_bytes < SEGMENT

            eventually(is_let_go, 30, lambda: f"{inspect_slot(conn, slot)}")
    deployment.stop()


def test_long_transaction_is_named(database: Database) -> None:
    with (
        slot_beside_an_open_transaction(database) as (holder, slot),
        connect({"conninfo": database.dsn}, application_name="test") as conn,
    ):
        seen = inspect_retention(conn, slot)
        assert dangers(seen) == [], "it is not open for long yet"
        (danger,) = dangers(seen, long_s=0)
        assert f"a transaction of pid {holder.info.backend_pid} (user " in danger.text
        assert f"database {database.name}, application 'nightly report', idle in transaction" in danger.text
        assert ", open since 20" in danger.text
        conn.execute(danger.remedy.partition("or: ")[2].encode())
        eventually(lambda: inspect_retention(conn, slot).oldest is None, message="the remedy helps")


def test_watch_warns_once_and_says_when_it_is_over(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a role that may not see since when: then it is named at once, for waiting would not tell more."""
    role = f"watch_{database.name}"
    database.execute(f"create role {role} login replication")
    monkeypatch.setattr(slot_watch, "INTERVAL_S", 0.05)
    config = Config.model_validate(settings_of(database, psycopg.conninfo.make_conninfo(database.dsn, user=role)))
    seen: list[Retention | None] = []
    with slot_beside_an_open_transaction(database) as (holder, _), capture_logs() as logs:
        pid = holder.info.backend_pid
        with SlotWatch(config, seen.append, threading.Event()):
            eventually(lambda: len(seen) > 3)
            holder.rollback()
            eventually(lambda: any(each["log_level"] == "info" for each in logs), message="the end is told")
    database.execute(f"drop role {role}")
    warning, end = logs
    assert f"not for the bridge but for a transaction of pid {pid}" in warning["event"]
    assert f'GRANT pg_read_all_stats TO "{role}"' in warning["remedy"]
    assert end["was"] == warning["event"]


def test_watch_goes_on_after_the_server_was_away(own_stack: OwnStack, monkeypatch: pytest.MonkeyPatch) -> None:
    server = own_stack.postgres()
    monkeypatch.setattr(slot_watch, "INTERVAL_S", 0.05)
    seen: list[Retention | None] = []
    with SlotWatch(
        Config.model_validate(settings_of(Database("postgres", server.dsn()))), seen.append, threading.Event()
    ):
        eventually(lambda: seen)
        server.kill()
        server.restart()
        before = len(seen)
        eventually(lambda: any(seen[before:]))


def test_status_warns_before_the_slot_is_lost_and_says_when_it_is(
    own_stack: OwnStack, kafka: Kafka, tmp_path: Path
) -> None:
    server = own_stack.postgres(settings={"max_slot_wal_keep_size": "64MB", "max_wal_size": "64MB"})
    source = Database("postgres", server.dsn())
    settings = {**settings_of(source), "kafka": {"bootstrap": kafka.bootstrap}}
    slot, file = settings["source"]["slot"], tmp_path / "cdc.yaml"
    file.write_text(yaml.safe_dump(settings))
    with connect({"conninfo": source.dsn}, application_name="test") as conn:
        create_slot(conn, slot)
    app = typer.Typer()
    app.command()(status)

    def problem(words: str) -> dict[str, str] | None:
        result = CliRunner().invoke(app, ["-c", str(file), "--json"])
        said = [each for each in json.loads(result.output)["problems"] if each["part"] == "source"]
        return next((each for each in said if words in each["text"]), None)

    assert problem("about to be lost") is None
    warned = None
    for _ in range(5):  # which one is the first behind three quarters depends on where the slot was made
        fill_segments(source, 1)
        warned = warned or problem("about to be lost")
    assert warned is not None
    assert "of max_slot_wal_keep_size (64.0 MiB)" in warned["text"]
    assert warned["remedy"].startswith(f"start the bridge: cdc run -c {file}\nfor more time: ALTER SYSTEM SET")
    fill_segments(source, 3)
    source.execute("checkpoint")
    assert problem(f"slot {slot} is lost") is not None
