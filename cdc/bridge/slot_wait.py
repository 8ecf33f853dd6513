"""Takes the slot. One of several bridges gets it; the others stand by, and do not fence that one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

import psycopg
import structlog

from cdc.base.errors import SourceRefused
from cdc.bridge.capture.copy_both import CopyBoth
from cdc.bridge.source.connect import source_errors
from cdc.bridge.source.giving_up import unless_stopped
from cdc.bridge.source.slot import create_slot, inspect_slot, refuse_low_wal_level
from cdc.bridge.source.slot_lock import Holder, lock_holder
from cdc.contract.slot_state import SlotState

_POLL_S: Final = 0.2
"""The most that waiting adds to the time in which nothing is published. A look costs the source 0.04 ms of CPU."""

log = structlog.get_logger("cdc.bridge")


def waiting_application(name: str) -> str:
    """Returns what ``pg_stat_activity`` shows of a bridge that stands by; ``name`` is the configuration's."""
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
    """Returns a walsender that holds the slot's lock, if nobody reads from the slot; else waits until that ends.

    With the lock, a missing slot is made: of two bridges that start together, one makes it.

    Args:
        sql: a connection to the source.
        name: the slot's name.
        stop: ends the waiting.
        application_name: the connection's name while it waits, for others to see.
        open_session: opens a walsender. It is not called while somebody has the slot, because servers have few.
        is_first_start: says whether a missing slot is to be made, and is called before that; if not, it stays missing.
        waiting: told which server process has the slot; None when it is free.

    Returns:
        None when it had to wait, or was told to stop: what the caller knows about the source may be hours old.

    Raises:
        SourceRefused: the slot belongs to another database, or cannot be made.
        SourceUnavailable: the server went away.
    """
    told: int | None = None
    while not stop.is_set():
        if (pid := _in_use_by(sql, name)) is None:
            waiting(None)
            if told is not None:
                return None
            if (taken := _take(sql, name, stop, open_session, is_first_start)) is not None:
                return taken
            continue  # another bridge was faster; the next look finds it
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
    """Returns the process of the session that reads from the slot, or is about to; None when there is none."""
    state = _inspect(sql, name)
    if state is not None and state.active_pid is not None:
        return state.active_pid
    holder = lock_holder(sql, name)
    return None if holder is None else holder.pid


def _take(
    sql: psycopg.Connection[Any],
    name: str,
    stop: threading.Event,
    open_session: Callable[[], CopyBoth],
    is_first_start: Callable[[], bool],
) -> tuple[CopyBoth, Holder] | None:
    """Take the lock and look again. With the lock, only something other than a bridge can have taken the slot."""
    refuse_low_wal_level(sql, name)
    session = open_session()
    try:
        holder = session.hold(name)
        if holder is not None and _inspect(sql, name) is None and is_first_start():
            with unless_stopped(stop, sql, f"making slot {name}"):
                create_slot(sql, name)
            session.hold(name)  # making the slot may have waited for open transactions: restart the lock's idle time
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
