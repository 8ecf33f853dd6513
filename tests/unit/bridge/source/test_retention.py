"""When to warn that WAL is about to be lost, and of whom."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.base.lsn import LSN
from cdc.bridge.source.open_transactions import OpenTransaction
from cdc.bridge.source.retention import Retention, dangers
from cdc.contract.slot_state import SlotState

MIB = 1024 * 1024
SLOT = SlotState(
    name="cdc_shop",
    plugin="pgoutput",
    database="shop",
    active=True,
    active_pid=77,
    confirmed_flush_lsn=LSN(200 * MIB),
    restart_lsn=LSN(199 * MIB),
    wal_status="reserved",
    safe_wal_size=None,
    retained_bytes=80 * MIB,
    lag_bytes=0,
    invalidation_reason=None,
)
OPEN = OpenTransaction(12, None, "app", "shop", "psql", "idle in transaction", "2026-01-01 00:00:00+00", 3_600.0)
HELD = replace(SLOT, restart_lsn=LSN(100 * MIB))


@pytest.mark.parametrize(
    "retention",
    [
        Retention(None, 100 * MIB, None),
        Retention(SLOT, None, OPEN),
        Retention(replace(SLOT, safe_wal_size=26 * MIB), 100 * MIB, None),
        Retention(HELD, None, None),
        Retention(HELD, None, replace(OPEN, age_s=59.0)),
        Retention(replace(SLOT, wal_status="lost", safe_wal_size=0), 100 * MIB, None),
    ],
)
def test_nothing_to_warn_of(retention: Retention) -> None:
    assert dangers(retention) == []


@pytest.mark.parametrize("slot", [replace(SLOT, safe_wal_size=24 * MIB), replace(SLOT, wal_status="unreserved")])
def test_little_room(slot: SlotState) -> None:
    (danger,) = dangers(Retention(slot, 100 * MIB, None))
    assert "slot cdc_shop is about to be lost" in danger.text
    assert "max_slot_wal_keep_size (100.0 MiB)" in danger.text
    assert danger.remedy == "ALTER SYSTEM SET max_slot_wal_keep_size = '400MB'; SELECT pg_reload_conf();"


def test_little_room_because_no_bridge_runs() -> None:
    (danger,) = dangers(Retention(replace(SLOT, active=False, safe_wal_size=MIB), 100 * MIB, OPEN))
    assert danger.remedy.startswith("start the bridge: cdc run\nfor more time: ALTER SYSTEM")


def test_transaction_that_holds_wal_is_named() -> None:
    (danger,) = dangers(Retention(HELD, None, OPEN))
    assert danger.text == (
        "slot cdc_shop keeps 80.0 MiB of WAL, not for the bridge but for a transaction of pid 12 "
        "(user app, database shop, application 'psql', idle in transaction), open since 2026-01-01 00:00:00+00"
    )
    assert danger.remedy == "let it finish, or: SELECT pg_terminate_backend(12);"


def test_transaction_of_which_the_role_sees_only_the_pid() -> None:
    hidden = OpenTransaction(12, None, "app", "shop", "", "", None, None)
    (danger,) = dangers(Retention(HELD, None, hidden, "cdc"))
    assert "a transaction of pid 12 (user app, database shop), open for longer than this role may see" in danger.text
    assert danger.remedy.endswith('GRANT pg_read_all_stats TO "cdc";')


def test_prepared_transaction_is_named() -> None:
    prepared = replace(OPEN, pid=None, gid="it's", application="", state="prepared")
    room, held = dangers(Retention(replace(HELD, safe_wal_size=MIB), 100 * MIB, prepared))
    assert "for prepared transaction 'it's' (user app, database shop), open since" in held.text
    assert held.remedy == "in database shop: COMMIT PREPARED 'it''s'; or ROLLBACK PREPARED 'it''s';"
    assert room.remedy.startswith(held.remedy), "room is made by ending it first"
