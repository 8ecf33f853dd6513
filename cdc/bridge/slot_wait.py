"""Going for the slot: one of several bridges gets it, and the others stand by without fencing that one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

import psycopg
import structlog

from cdc.base.errors import SourceRefused
from cdc.bridge.capture.copy_both import CopyBoth
from cdc.bridge.source.connect import source_errors
from cdc.bridge.source.slot import create_slot, inspect_slot, refuse_low_wal_level
from cdc.bridge.source.slot_lock import Holder, lock_holder
from cdc.contract.slot_state import SlotState

_POLL_S: Final = 0.2
"""What waiting adds at most to the time in which nothing is published. A look costs the source 0.04 ms of CPU."""

log = structlog.get_logger("cdc.bridge")


def waiting_application(name: str) -> str:
    """What ``pg_stat_activity`` shows of a bridge that stands by; ``name`` is the configuration's."""
    return f"cdc {name} waiting"


def take_slot(
    sql: psycopg.Connection[Any],
    name: str,
    stop: threading.Event,
    *,
    application_name: str,
    open_session: Callable[[], CopyBoth],
    is_first_start: Callable[[], bool],
    waiting: Callable[[int | None], None],
) -> tuple[CopyBoth, Holder] | None:
    """A walsender that holds the slot's lock, if nobody reads from the slot; else wait for the end of that.

    A missing slot is made, with the lock: of two bridges that start together, one makes it.

    Args:
        sql: a connection to the source.
        name: of the slot.
        stop: ends the waiting.
        application_name: the connection's while it waits, so that others see it.
        open_session: a walsender. None is opened while somebody has the slot, for servers have few of them.
        is_first_start: whether a missing slot is as it should be; if not, it is left missing. Called before it is made.
        waiting: told the process id of the server's session that has the slot, and None when it is free.

    Returns:
        None when it had to wait, or was told to stop: what the caller knows of the source may be hours old.

    Raises:
        SourceRefused: the slot is another database's, or cannot be made.
        SourceUnavailable: the server went away.
    """
    told: int | None = None
    while not stop.is_set():
        if (pid := _in_use_by(sql, name)) is None:
            waiting(None)
            if told is not None:
                return None
            if (taken := _take(sql, name, open_session, is_first_start)) is not None:
                return taken
            continue  # another bridge was faster: the next look finds it
        if pid != told:
            if told is None:
                with source_errors("naming the connection"):
                    sql.execute("SELECT pg_catalog.set_config('application_name', %s, false)", (application_name,))
            told = pid
            log.info("waiting for the slot: another session has it", slot=name, pid=pid)
            waiting(pid)
        stop.wait(_POLL_S)
    return None


def _in_use_by(sql: psycopg.Connection[Any], name: str) -> int | None:
    """The session that reads from the slot, or is about to."""
    state = _inspect(sql, name)
    if state is not None and state.active_pid is not None:
        return state.active_pid
    holder = lock_holder(sql, name)
    return None if holder is None else holder.pid


def _take(
    sql: psycopg.Connection[Any], name: str, open_session: Callable[[], CopyBoth], is_first_start: Callable[[], bool]
) -> tuple[CopyBoth, Holder] | None:
    """With the lock, only what is no bridge of ours can take the slot. Without it, the session ends."""
    refuse_low_wal_level(sql, name)
    session = open_session()
    try:
        holder = session.hold(name)
        if holder is not None and _inspect(sql, name) is None and is_first_start():
            create_slot(sql, name)
            session.hold(name)  # still: it may have waited for open transactions
        if holder is not None and ((state := _inspect(sql, name)) is None or not state.active):
            return session, holder
    except BaseException:
        session.close()
        raise
    session.close()
    return None


def _inspect(sql: psycopg.Connection[Any], name: str) -> SlotState | None:
    state = inspect_slot(sql, name)
    if state is not None and state.database != sql.info.dbname:
        raise SourceRefused(
            f"slot {name!r} belongs to database {state.database!r}, not {sql.info.dbname!r}",
            remedy="set source.slot to another name",
        )
    return state
