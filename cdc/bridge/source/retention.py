"""Tells how much WAL the server keeps for the slot, who makes it keep that, and how near the limit is.

A slot keeps the WAL from the start of the oldest running transaction, in any database of the cluster. Only transactions
with an id count, because only they write. So the slot keeps WAL while somebody else's transaction stays open, even if
the bridge is up to date.

https://www.postgresql.org/docs/current/logicaldecoding-explanation.html#LOGICALDECODING-REPLICATION-SLOTS
https://www.postgresql.org/docs/current/runtime-config-replication.html#GUC-MAX-SLOT-WAL-KEEP-SIZE
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import psycopg

from cdc.bridge.source.connect import source_errors
from cdc.bridge.source.open_transactions import OpenTransaction, oldest_transaction
from cdc.bridge.source.slot import inspect_slot
from cdc.contract.slot_state import SlotState

LONG_S: Final = 60.0
"""A transaction that is open for this long is worth a warning. The server releases WAL only every fifteen seconds."""

HELD_BYTES: Final = 64 * 1024 * 1024
"""How much WAL may be kept for somebody else without a warning: four segments. A busy server needs less between two
looks."""

_MIB: Final = 1024 * 1024

_LIMIT: Final = (
    "SELECT setting::bigint FROM pg_catalog.pg_settings WHERE name = 'max_slot_wal_keep_size' AND setting <> '-1'"
)


@dataclass(frozen=True, slots=True)
class Retention:
    """What the server keeps for the slot, and why.

    Attributes:
        slot: the slot; None when there is none.
        limit_bytes: ``max_slot_wal_keep_size``; None without a limit.
        oldest: the oldest open transaction; None when there is none.
        role: the role that looked.
    """

    slot: SlotState | None
    limit_bytes: int | None
    oldest: OpenTransaction | None
    role: str = ""


@dataclass(frozen=True, slots=True)
class Danger:
    """What may end badly, and what to do now. ``key`` identifies it, because the text changes with the numbers."""

    key: str
    text: str
    remedy: str


def inspect_retention(conn: psycopg.Connection[Any], name: str) -> Retention:
    """Look at the slot, the limit and the oldest transaction. What our role may not see is None."""
    slot = inspect_slot(conn, name)
    with source_errors("looking for open transactions"):
        limit = conn.execute(_LIMIT).fetchone()
    return Retention(
        slot=slot,
        limit_bytes=None if limit is None else limit[0] * _MIB,
        oldest=oldest_transaction(conn),
        role=conn.info.user,
    )


def dangers(retention: Retention, *, long_s: float = LONG_S) -> list[Danger]:
    """Returns what to warn of before WAL is lost; nothing for a slot that is lost already."""
    slot = retention.slot
    if slot is None or slot.lost:
        return []
    holder = _holder(slot, retention.oldest, long_s)
    found = []
    if _is_short_of_room(slot, retention.limit_bytes):
        left = "no more WAL" if not slot.safe_wal_size or slot.safe_wal_size < 0 else f"only {_mib(slot.safe_wal_size)}"
        limit = f" of max_slot_wal_keep_size ({_mib(retention.limit_bytes)})" if retention.limit_bytes else ""
        found.append(
            Danger(
                "room",
                f"slot {slot.name} is about to be lost: {left} may still be written{limit}, "
                f"{_mib(slot.retained_bytes)} are kept, wal_status is {slot.wal_status}",
                _make_room(slot, retention, holder),
            )
        )
    if holder is not None:
        found.append(
            Danger(
                f"held by {holder.gid or holder.pid}",
                f"slot {slot.name} keeps {_mib(slot.retained_bytes)} of WAL, not for the bridge but for {holder.who}",
                holder.remedy(retention.role),
            )
        )
    return found


def _holder(slot: SlotState, oldest: OpenTransaction | None, long_s: float) -> OpenTransaction | None:
    """Returns the transaction that keeps WAL which the bridge confirmed long ago; None when there is none."""
    if oldest is None or slot.confirmed_flush_lsn is None or slot.restart_lsn is None:
        return None
    if slot.confirmed_flush_lsn - slot.restart_lsn < HELD_BYTES:
        return None
    return oldest if oldest.age_s is None or oldest.age_s >= long_s else None


def _is_short_of_room(slot: SlotState, limit_bytes: int | None) -> bool:
    if slot.wal_status == "unreserved":
        return True
    return slot.safe_wal_size is not None and limit_bytes is not None and slot.safe_wal_size < limit_bytes / 4


def _make_room(slot: SlotState, retention: Retention, holder: OpenTransaction | None) -> str:
    more = ""
    if retention.limit_bytes is not None:
        more = f"ALTER SYSTEM SET max_slot_wal_keep_size = '{4 * retention.limit_bytes // _MIB}MB'; "
        more += "SELECT pg_reload_conf();"
    first = holder.remedy(retention.role) if holder is not None else "" if slot.active else "start the bridge: cdc run"
    return "\n".join(filter(None, (first, f"for more time: {more}" if first and more else more)))


def _mib(count: int | None) -> str:
    return "an unknown amount" if count is None else f"{count / _MIB:,.1f} MiB"
