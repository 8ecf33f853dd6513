"""Section starts: for how long nothing is published when a bridge is started again, or when another one takes over."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack

import psycopg

from cdc.bridge.slot_wait import waiting_application
from cdc.lab.stack.embedded import free_port
from tests.benchmarks import workload
from tests.benchmarks.measure import usage
from tests.benchmarks.processes import POLL_INTERVAL_S, Program, program, wait_until
from tests.benchmarks.report import Column, Figures, Section
from tests.benchmarks.servers import Servers
from tests.benchmarks.tables import command, create_tables, wait_until_ready, wait_until_whole, write_configuration

NAME = "bench_starts"
TABLES = 10
_STARTS_PER_RUN = 5
COLUMNS = (
    Column("wall_s", "wall s", 2),
    Column("cpu_s", "own CPU s", 2),
)
NOTES = (
    f"{TABLES} tables of one row each, all of them published; nothing is written meanwhile",
    "a start: from the process's own until /ready answers 200, which is when the process before was ended",
    "another takes over: it waits for the slot; from the first one's death until that answer",
)


def measure(servers: Servers, runs: int) -> Section:
    """Start a bridge again and again, behind good ends and bad ones, and let another one take over."""
    section = Section("Starts of a bridge", COLUMNS, notes=list(NOTES))
    with ExitStack() as stack:
        dsn = stack.enter_context(servers.database(NAME))
        conn = stack.enter_context(workload.connect(dsn))
        create_tables(conn, TABLES)
        stack.callback(workload.drop_slot, conn, NAME)
        places = _Place(servers, dsn), _Place(servers, dsn)
        with places[0].bridge() as bridge:
            wait_until_whole(servers, NAME, bridge, TABLES)
            bridge.drain()
        for _ in range(_STARTS_PER_RUN * runs):
            section.add("a start after SIGTERM", _start(places[0], Program.drain))
        _start(places[0], Program.kill)
        for _ in range(_STARTS_PER_RUN * runs):
            section.add("a start after SIGKILL", _start(places[0], Program.kill))
        for _ in range(_STARTS_PER_RUN * runs):
            section.add("another takes over", _take_over(*places, conn))
    return section


class _Place:
    """A configuration of the one bridge, with a port of its own."""

    def __init__(self, servers: Servers, dsn: str) -> None:
        self._directory, self._port = servers.directory, free_port()
        self._config = write_configuration(servers, NAME, dsn, self._port, partitions=1)

    def bridge(self) -> AbstractContextManager[Program]:
        """A process for the length of the block."""
        return program("cdc run", command("run", self._config), self._directory)

    def wait_until_ready(self, bridge: Program) -> None:
        """Wait until it streams."""
        wait_until_ready(bridge, self._port, POLL_INTERVAL_S)


def _start(place: _Place, end: Callable[[Program], None]) -> Figures:
    """Of one that follows another of its kind: each is ended as the next one is to find it."""
    started = time.perf_counter()
    with place.bridge() as bridge:
        place.wait_until_ready(bridge)
        figures = {"wall_s": time.perf_counter() - started, "cpu_s": usage(bridge.pid).cpu_s}
        end(bridge)
    return figures


def _waits(conn: psycopg.Connection) -> bool:
    named = "SELECT FROM pg_stat_activity WHERE application_name = %s"
    return conn.execute(named, (waiting_application(NAME),)).fetchone() is not None


def _take_over(one: _Place, other: _Place, conn: psycopg.Connection) -> Figures:
    with one.bridge() as first:
        one.wait_until_ready(first)
        with other.bridge() as second:
            wait_until(lambda: _waits(conn), "the other bridge to wait for the slot")
            first.kill()
            died = time.perf_counter()
            other.wait_until_ready(second)
            figures = {"wall_s": time.perf_counter() - died, "cpu_s": usage(second.pid).cpu_s}
            second.drain()
    return figures
