"""Findings that no server in reach can be brought to: old versions, standbys, other people's slots."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.base.errors import SourceRefused
from cdc.base.lsn import LSN
from cdc.bridge.source.preflight import Finding, check_server, check_slot
from cdc.bridge.source.server import ServerFacts
from cdc.contract.slot_state import SlotState

FACTS = ServerFacts(
    version_number=160014,
    version="16.14",
    in_recovery=False,
    wal_level="logical",
    slots_max=10,
    slots_used=1,
    slots_idle=(),
    senders_max=10,
    senders_used=1,
    role="cdc",
    can_replicate=True,
    is_superuser=False,
    database="shop",
    can_create_in_database=True,
    encoding="UTF8",
    keep_size="-1",
    idle_slot_timeout="0",
)
SLOT = SlotState(
    name="cdc_shop",
    plugin="pgoutput",
    database="shop",
    active=True,
    active_pid=77,
    confirmed_flush_lsn=LSN(9_000),
    restart_lsn=LSN(5_000),
    wal_status="reserved",
    safe_wal_size=None,
    retained_bytes=5_000,
    lag_bytes=1_000,
    invalidation_reason=None,
)


def not_ok(found: list[Finding]) -> list[tuple[str, str]]:
    return [(each.level, each.subject) for each in found if each.level != "OK"]


def test_all_is_well():
    assert not_ok(check_server(FACTS)) == []
    assert not_ok(check_slot(FACTS, "cdc_shop", SLOT)) == []
    assert not_ok(check_slot(FACTS, "cdc_shop", None)) == []


@pytest.mark.parametrize(
    ("facts", "level", "subject"),
    [
        (replace(FACTS, version_number=130020), "FAIL", "PostgreSQL version"),
        (replace(FACTS, version_number=160009), "WARN", "PostgreSQL version"),
        (replace(FACTS, version_number=150014, in_recovery=True), "FAIL", "primary"),
        (replace(FACTS, wal_level="replica"), "FAIL", "wal_level"),
        (replace(FACTS, can_replicate=False), "FAIL", "role cdc"),
        (replace(FACTS, encoding="SQL_ASCII"), "WARN", "encoding"),
        (replace(FACTS, idle_slot_timeout="2h"), "WARN", "idle_replication_slot_timeout"),
    ],
)
def test_server(facts, level, subject):
    found = check_server(facts)
    assert not_ok(found) == [(level, subject)]
    assert all(each.remedy for each in found if each.level != "OK")


def test_a_standby_does_not_tell_who_is_running():
    found = check_server(replace(FACTS, in_recovery=True))
    assert not_ok(found) == [("FAIL", "primary")]
    assert "target_session_attrs=read-write" in found[-1].remedy


def test_a_standby_of_which_no_table_is_read_can_be_streamed_from():
    """It failed, and the bridge ran all the same."""
    found = check_server(replace(FACTS, in_recovery=True), reads_tables=False)
    assert not_ok(found) == [("WARN", "primary")]
    old = replace(FACTS, in_recovery=True, version_number=150014)
    assert not_ok(check_server(old, reads_tables=False)) == [("FAIL", "primary")]


@pytest.mark.parametrize(
    ("slot", "level", "words"),
    [
        (replace(SLOT, plugin="wal2json"), "FAIL", "wal2json"),
        (replace(SLOT, database="other"), "FAIL", "database other"),
        (replace(SLOT, plugin="", database=""), "FAIL", "a physical slot"),
        (replace(SLOT, wal_status="lost"), "FAIL", "is lost (lost)"),
        (replace(SLOT, invalidation_reason="idle_timeout"), "FAIL", "is lost (idle_timeout)"),
        (replace(SLOT, wal_status="unreserved"), "WARN", "next checkpoint"),
    ],
)
def test_slot(slot, level, words):
    found = check_slot(FACTS, "cdc_shop", slot)
    assert not_ok(found) == [(level, "slot cdc_shop")]
    assert words in found[0].text
    assert found[0].remedy


def test_walsender_of_our_own_running_bridge_counts_as_free():
    full = replace(FACTS, senders_used=10)
    assert not_ok(check_slot(full, "cdc_shop", SLOT)) == []
    assert not_ok(check_slot(full, "cdc_shop", replace(SLOT, active=False))) == [("FAIL", "walsenders")]


def test_error_becomes_a_finding():
    assert Finding.failure("x", SourceRefused("no", remedy="DO")) == Finding("FAIL", "x", "no", "DO")
