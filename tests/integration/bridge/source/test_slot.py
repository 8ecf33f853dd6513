"""The slot is made, looked at and dropped; what keeps it from being made is named with what mends it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from cdc.base.errors import SourceRefused, SourceUnavailable
from cdc.base.lsn import LSN
from cdc.base.waits import WAITS
from cdc.bridge.capture.copy_both import CopyBoth
from cdc.bridge.source.connect import LOOK_S, connect
from cdc.bridge.source.giving_up import unless_stopped
from cdc.bridge.source.slot import create_slot, drop_slot, identify, inspect_slot
from cdc.contract.slot_state import SlotState
from tests.integration.ops.status.preflighting import findings, mend, troubles
from tests.support.servers import Database, OwnStack
from tests.support.waiting import eventually


@pytest.fixture
def conn(database: Database) -> Iterator[psycopg.Connection[Any]]:
    with connect({"conninfo": database.dsn}, application_name="test") as connection:
        yield connection


def state_of(conn: psycopg.Connection[Any], name: str) -> SlotState:
    state = inspect_slot(conn, name)
    assert state is not None
    return state


@pytest.mark.pg(16, 18)
def test_slot_from_its_making_to_its_end(database, conn):
    name = f"s_{database.name}"
    assert inspect_slot(conn, name) is None

    start = create_slot(conn, name)
    state = state_of(conn, name)

    assert (state.plugin, state.database, state.active, state.active_pid) == ("pgoutput", database.name, False, None)
    assert state.confirmed_flush_lsn == start
    assert state.restart_lsn is not None
    assert state.restart_lsn <= start
    assert (state.wal_status, state.lost, state.invalidation_reason) == ("reserved", False, None)
    conn.execute("select pg_logical_emit_message(true, 'filler', repeat('x', 100000))")
    later = state_of(conn, name)
    assert (later.lag_bytes or 0) >= 100_000
    assert (later.retained_bytes or 0) >= (later.lag_bytes or 0)

    drop_slot(conn, name)
    assert inspect_slot(conn, name) is None
    drop_slot(conn, name)


def test_slot_that_is_there_is_reported_as_a_race(database, conn):
    name = f"s_{database.name}"
    create_slot(conn, name)
    with pytest.raises(SourceUnavailable, match="another session"):
        create_slot(conn, name)


def test_slot_in_use_is_not_dropped(database, conn):
    name = f"s_{database.name}"
    create_slot(conn, name)
    walsender = CopyBoth({"conninfo": database.dsn}, application_name="test")
    with contextlib.closing(walsender):
        walsender.start(name, "none", LSN(0))
        state = state_of(conn, name)
        assert state.active
        with pytest.raises(SourceUnavailable, match=f"active for PID {state.active_pid}"):
            drop_slot(conn, name)


def test_open_transaction_that_delays_the_slot_is_named(database, conn):
    name = f"s_{database.name}"
    busy = database.connect(autocommit=False)
    with contextlib.closing(busy):
        busy.execute("create table t ()")
        with pytest.raises(SourceUnavailable, match=f"pid {busy.info.backend_pid}") as waiting:
            create_slot(conn, name, timeout_s=0.3)
        assert inspect_slot(conn, name) is None
        conn.execute(waiting.value.remedy.partition("or: ")[2].encode())
        create_slot(conn, name)


def test_prepared_transaction_that_delays_the_slot_is_named(database, conn):
    name = f"s_{database.name}"
    with contextlib.closing(database.connect(autocommit=False)) as busy:
        busy.execute("create table t ()")
        busy.execute("prepare transaction 'forgotten'")
    with pytest.raises(SourceUnavailable, match="prepared transaction 'forgotten'") as waiting:
        create_slot(conn, name, timeout_s=0.3)
    conn.execute(waiting.value.remedy.partition("or ")[2].encode())
    create_slot(conn, name)


def test_slot_waits_longer_than_for_a_lock_says_for_whom_and_can_be_given_up(database):
    """With the connection of a bridge, whose look-ups wait for a lock briefly."""
    name = f"s_{database.name}"
    stop = threading.Event()
    with (
        connect({"conninfo": database.dsn}, application_name="test", lock_timeout_s=LOOK_S) as conn,
        contextlib.closing(database.connect(autocommit=False)) as busy,
        ThreadPoolExecutor() as pool,
    ):
        busy.execute("create table t ()")

        def make() -> LSN:
            with unless_stopped(stop, conn, "making the slot"):
                return create_slot(conn, name)

        given_up = pool.submit(make)
        (said,) = eventually(lambda: [each for each in WAITS.document() if each["whom"] == "source"])
        assert f"the oldest is a transaction of pid {busy.info.backend_pid}" in str(said["for"])
        assert f"SELECT pg_terminate_backend({busy.info.backend_pid});" in str(said["remedy"])
        assert not given_up.done()
        stop.set()
        with pytest.raises(SourceUnavailable, match="given up"):
            given_up.result(20)
        assert inspect_slot(conn, name) is None
        stop.clear()
        made = pool.submit(make)
        eventually(lambda: inspect_slot(busy, name))
        busy.commit()
        assert made.result(20)
    assert WAITS.document() == []


def test_name_that_the_server_does_not_take(conn):
    with pytest.raises(SourceRefused, match="invalid character") as refused:
        create_slot(conn, "Shop")
    assert "source.slot" in refused.value.remedy


def test_identity_is_the_same_for_every_role_and_differs_by_database(database, conn, postgres):
    role = f"plain_{database.name}"
    conn.execute(f"create role {role} login")
    try:
        with connect({"conninfo": database.dsn, "user": role}, application_name="test") as plain:
            assert identify(plain) == identify(conn)
    finally:
        conn.execute(f"drop role {role}")
    with connect({"conninfo": postgres.dsn()}, application_name="test") as other:
        here, there = identify(conn), identify(other)
    assert here.system_identifier == there.system_identifier
    assert here.timeline == 1
    assert here.database_oid != there.database_oid


def test_server_without_room_fails_until_the_remedies_are_carried_out(own_stack: OwnStack):
    """wal_level, slots and walsenders at once: all three remedies, then one restart, as the check asks."""
    server = own_stack.postgres(settings={"wal_level": "replica", "max_replication_slots": "1", "max_wal_senders": "0"})
    dsn = server.dsn()
    with psycopg.connect(dsn, autocommit=True) as superuser:
        superuser.execute("create table t (id int primary key)")
        superuser.execute("select pg_create_physical_replication_slot('taken')")

        found = troubles(findings(dsn))

        assert set(found) == {"wal_level", "slot cdc_shop", "walsenders"}
        assert "is replica" in found["wal_level"].text
        assert "all 1 replication slots are in use (idle now: taken)" in found["slot cdc_shop"].text
        assert "pg_drop_replication_slot('taken')" in found["slot cdc_shop"].remedy
        assert "0 of 0 in use" in found["walsenders"].text
        for finding in found.values():
            mend(superuser, finding)
    server.restart()
    assert troubles(findings(dsn)) == {}


def test_making_a_slot_without_room_says_the_same_as_the_check(own_stack: OwnStack):
    server = own_stack.postgres(settings={"max_replication_slots": "1"})
    with connect({"conninfo": server.dsn()}, application_name="test") as conn:
        create_slot(conn, "taken")
        with pytest.raises(SourceRefused) as refused:
            create_slot(conn, "cdc_shop")
        conn.execute("create table public.t (id int primary key)")
        found = troubles(findings(server.dsn()))["slot cdc_shop"]
        assert (found.text, found.remedy) == (refused.value.message, refused.value.remedy)

        conn.execute("alter system set wal_level = replica")
        drop_slot(conn, "taken")
    server.restart()
    with (
        connect({"conninfo": server.dsn()}, application_name="test") as conn,
        pytest.raises(SourceRefused, match="wal_level") as refused,
    ):
        create_slot(conn, "cdc_shop")
    assert "ALTER SYSTEM SET wal_level = logical;" in refused.value.remedy


def test_slot_that_may_be_lost_at_the_next_checkpoint_is_kept_by_the_remedy(own_stack: OwnStack):
    server = own_stack.postgres(
        settings={"max_slot_wal_keep_size": "1MB", "min_wal_size": "1GB", "max_wal_size": "1GB"}
    )
    with psycopg.connect(server.dsn(), autocommit=True) as conn:
        conn.execute("create table public.t (id int primary key)")
        create_slot(conn, "cdc_shop")
        for _ in range(3):
            conn.execute("select pg_logical_emit_message(false, 'filler', repeat('x', 1000000)), pg_switch_wal()")
        warned = troubles(findings(server.dsn()), "WARN")["slot cdc_shop"]
        assert "may be lost at the next checkpoint" in warned.text
        mend(conn, warned)
        conn.execute("checkpoint")
        conn.execute("checkpoint")
        assert not state_of(conn, "cdc_shop").lost
        assert troubles(findings(server.dsn()), "WARN") == {}


def test_slot_that_lost_its_wal_fails_with_the_command(own_stack: OwnStack):
    server = own_stack.postgres(
        settings={"max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB", "max_wal_size": "32MB"}
    )
    with connect({"conninfo": server.dsn()}, application_name="test") as conn:
        conn.execute("create table public.t (id int primary key)")
        create_slot(conn, "cdc_shop")
        for _ in range(3):
            conn.execute("select pg_logical_emit_message(false, 'filler', repeat('x', 1000000)), pg_switch_wal()")
        conn.execute("checkpoint")

        state = state_of(conn, "cdc_shop")
        found = troubles(findings(server.dsn()))["slot cdc_shop"]

        assert state.lost
        assert "is lost" in found.text
        assert found.remedy.startswith("CDC_SOURCE__ON_GAP=rebackfill cdc run")
        drop_slot(conn, "cdc_shop")
        assert troubles(findings(server.dsn())) == {}
