"""Commits that hang between WAL and visibility: a synchronous standby is asked for that does not exist.

Such a transaction is streamed to whoever decodes the WAL, and no snapshot sees it yet, for as long as the test wants.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg

from tests.support.waiting import eventually

_MOST_WRITERS = 32


class Held:
    """A server on which every commit that wrote WAL hangs."""

    def __init__(self, dsn: str, admin: psycopg.Connection[Any], threads: ThreadPoolExecutor) -> None:
        self._dsn = dsn
        self._admin = admin
        self._threads = threads
        self._releasing = threading.Event()
        self._writers: list[Future[None]] = []

    def hold(self) -> None:
        """Hold from now on; ``hold_commits`` calls it."""
        self._ask_for_standby("nobody")
        # The checkpointer takes the setting over some time after the reload; until then commits do not wait. So one
        # commit after another goes ahead of the test's own, and the first that hangs says that the time has come.
        self._start(psycopg.connect(self._dsn, autocommit=True), self._probe)

    def start(self, changes: Sequence[str]) -> None:
        """Run these statements in one transaction; returns when its commit hangs."""

        def commit(writer: psycopg.Connection[Any]) -> None:
            for change in changes:
                writer.execute(change.encode())
            writer.commit()

        self._start(psycopg.connect(self._dsn), commit)

    def release(self) -> None:
        """Let all commits through; returns when every one is visible. Later commits do not hang. Can be called twice.

        Raises:
            psycopg.Error: what one of the transactions ended with.
        """
        self._releasing.set()
        self._ask_for_standby("")
        while self._writers:
            self._writers.pop().result(timeout=30)

    def _start(self, connection: psycopg.Connection[Any], work: Callable[[psycopg.Connection[Any]], None]) -> None:
        def run() -> None:
            with contextlib.closing(connection):
                work(connection)

        pid = connection.info.backend_pid
        writer = self._threads.submit(run)
        self._writers.append(writer)
        eventually(lambda: writer.done() or self._hangs(pid), message="a commit that waits for the standby")
        assert not writer.done(), f"a commit that should hang ended: {writer.exception() or 'it went through'}"

    def _probe(self, connection: psycopg.Connection[Any]) -> None:
        while not self._releasing.is_set():
            # Transactional, so that the commit has WAL to wait for.
            connection.execute("SELECT pg_logical_emit_message(true, 'probe', '')")

    def _hangs(self, pid: int) -> bool:
        query = "SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = %s"
        return self._admin.execute(query, [pid]).fetchone() == (True,)

    def _ask_for_standby(self, name: str) -> None:
        self._admin.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'".encode())
        self._admin.execute("SELECT pg_reload_conf()")


@contextlib.contextmanager
def hold_commits(dsn: str) -> Iterator[Held]:
    """Hold every commit of a server of the test's own, from the first line of the block until ``release`` or its end.

    Args:
        dsn: the server, as superuser; also the database that the transactions of ``Held.start`` run in.
    """
    with psycopg.connect(dsn, autocommit=True) as admin, ThreadPoolExecutor(_MOST_WRITERS) as threads:
        held = Held(dsn, admin, threads)
        try:
            held.hold()
            yield held
        finally:
            held.release()
