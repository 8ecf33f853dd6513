"""What PostgreSQL says of a replication slot.

https://www.postgresql.org/docs/current/view-pg-replication-slots.html
"""

from __future__ import annotations

from dataclasses import dataclass

from cdc.base.lsn import LSN


@dataclass(frozen=True, slots=True)
class SlotState:
    """A row of ``pg_replication_slots``.

    Attributes:
        confirmed_flush_lsn: everything before it was confirmed; None while the slot is being made.
        restart_lsn: the oldest WAL kept for it; None when that WAL is gone.
        wal_status: ``reserved``, ``extended``, ``unreserved`` or ``lost``; None with ``restart_lsn``.
        safe_wal_size: bytes that may still be written before the slot is in danger; None without a limit.
        retained_bytes: WAL kept for the slot.
        lag_bytes: WAL written and not confirmed.
        invalidation_reason: PostgreSQL 17 and newer; None otherwise and while the slot is sound.
    """

    name: str
    plugin: str
    database: str
    active: bool
    active_pid: int | None
    confirmed_flush_lsn: LSN | None
    restart_lsn: LSN | None
    wal_status: str | None
    safe_wal_size: int | None
    retained_bytes: int | None
    lag_bytes: int | None
    invalidation_reason: str | None

    @property
    def lost(self) -> bool:
        """The WAL it needs is gone or the server gave it up: it can never be read again."""
        return self.wal_status == "lost" or self.invalidation_reason is not None
