"""Waiting until nobody reads from the slot: how the second of two bridges stands by without fencing the first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

import psycopg
import structlog

from cdc.errors import SourceRefused
from cdc.source.connect import source_errors
from cdc.source.slot import create_slot, inspect_slot

_POLL_S: Final = 0.2
"""What waiting adds at most to the time in which nothing is published. A look costs the source 0.04 ms of CPU."""

log = structlog.get_logger("cdc.bridge")


def waiting_application(name: str) -> str:
    """What ``pg_stat_activity`` shows of a bridge that stands by; ``name`` is the configuration's."""
    return f"cdc {name} waiting"


def wait_for_slot(
    sql: psycopg.Connection[Any],
    name: str,
    stop: threading.Event,
    *,
    application_name: str,
    is_first_start: Callable[[], bool],
    waiting: Callable[[int | None], None],
) -> bool:
    """Whether nobody reads from the slot; if somebody does, wait for the end of that. A missing one is made.

    Args:
        sql: a connection to the source.
        name: of the slot.
        stop: ends the waiting.
        application_name: the connection's while it waits, so that others see it.
        is_first_start: whether a missing slot is as it should be; if not, it is left missing. Called before it is made.
        waiting: told the process id of the server's session that reads from it, and None when it is free.

    Returns:
        False when it had to wait, or was told to stop: what the caller knows of the source may be hours old.

    Raises:
        SourceRefused: the slot is another database's, or cannot be made.
    """
    told: int | None = None
    while not stop.is_set():
        state = inspect_slot(sql, name)
        if state is None and is_first_start():
            create_slot(sql, name)
            continue
        if state is not None and state.database != sql.info.dbname:
            raise SourceRefused(
                f"slot {name!r} belongs to database {state.database!r}, not {sql.info.dbname!r}",
                remedy="set source.slot to another name",
            )
        if state is None or not state.active:
            waiting(None)
            return told is None
        if state.active_pid != told:
            told = state.active_pid
            with source_errors("naming the connection"):
                sql.execute("SELECT pg_catalog.set_config('application_name', %s, false)", (application_name,))
            log.warning("waiting for the slot: another session reads from it", slot=name, pid=told)
            waiting(told)
        stop.wait(_POLL_S)
    return False
