"""The state of a replication slot, as PostgreSQL reports it.

https://www.postgresql.org/docs/current/view-pg-replication-slots.html
"""

from __future__ import annotations

from dataclasses import dataclass

from cdc.base.lsn import LSN


@dataclass(frozen=True, slots=True)
class SlotState:
    """A row of ``pg_replication_slots``.

    Attributes:
        confirmed_flush_lsn: everything before this position was confirmed; None while the slot is being created.
        restart_lsn: the oldest WAL kept for the slot; None when that WAL is gone.
        wal_status: ``reserved``, ``extended``, ``unreserved`` or ``lost``; None when ``restart_lsn`` is None.
        safe_wal_size: bytes of WAL that may still be written before the slot is in danger; None without a limit.
        retained_bytes: size of the WAL that is kept for the slot.
        lag_bytes: size of the WAL that is written but not confirmed.
        invalidation_reason: why the slot is invalid; None if it is valid, and before PostgreSQL 17.
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
        """Whether the slot can never be read again: the WAL it needs is gone, or the server invalidated it."""
        return self.wal_status == "lost" or self.invalidation_reason is not None
