"""Section starts: for how long nothing is published when a bridge is started again, or when another one takes over."""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import psycopg

from cdc.bridge.slot_wait import waiting_application
from cdc.stack.embedded import free_port
from tests.benchmarks import workload
from tests.benchmarks.measure import usage
from tests.benchmarks.processes import Program, program, wait_until
from tests.benchmarks.report import Column, Figures, Section
from tests.benchmarks.servers import Servers
from tests.benchmarks.tables import create_tables, wait_until_whole, write_configuration

NAME = "bench_starts"
TABLES = 10
_STARTS_PER_RUN = 5
COLUMNS = (
    Column("wall_s", "wall s", 2),
    Column("longest_s", "longest s", 2),
    Column("cpu_s", "own CPU s", 2),
)
NOTES = (
    f"{TABLES} tables of one row each, all of them published; nothing is written meanwhile",
    "a start: from the process's, Python's own included, until /ready answers 200; there the one before was ended",
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
        count = _STARTS_PER_RUN * runs
        places = [_Place(servers, dsn, number) for number in range(2)]
        with places[0].bridge() as bridge:
            wait_until_whole(servers, NAME, bridge, TABLES)
            bridge.drain()
        for kind, is_killed in (("a start after SIGTERM", False), ("a start after SIGKILL", True)):
            _add(section, kind, [_start(places[0], is_killed=is_killed) for _ in range(count)])
        _add(section, "another takes over", [_take_over(places, conn) for _ in range(count)])
    return section


def _add(section: Section, kind: str, found: list[Figures]) -> None:
    """Each run, and beside it the longest of all."""
    longest_s = max(each["wall_s"] or 0.0 for each in found)
    for each in found:
        section.add(kind, {**each, "longest_s": longest_s})


class _Place:
    """A configuration of the one bridge, with a port of its own."""

    def __init__(self, servers: Servers, dsn: str, number: int) -> None:
        self._directory, self._port = servers.directory, free_port()
        content = json.loads(write_configuration(servers, NAME, dsn, self._port, partitions=1).read_text())
        self._config: Path = servers.directory / f"{NAME}-{number}.yaml"
        self._config.write_text(json.dumps(content, indent=2))

    def bridge(self) -> AbstractContextManager[Program]:
        """A process for the length of the block."""
        return program("cdc run", [sys.executable, "-m", "cdc", "run", "-c", self._config], self._directory)

    def is_ready(self, bridge: Program) -> bool:
        """Whether it streams."""
        bridge.must_run()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/ready", timeout=10):
                return True
        except OSError:  # not there yet, or 503
            return False


def _start(place: _Place, *, is_killed: bool) -> Figures:
    started = time.perf_counter()
    with place.bridge() as bridge:
        wait_until(lambda: place.is_ready(bridge), "the bridge to stream")
        figures = {"wall_s": time.perf_counter() - started, "cpu_s": usage(bridge.pid).cpu_s}
        if is_killed:
            bridge.kill()
        else:
            bridge.drain()
    return figures


def _waits(conn: psycopg.Connection) -> bool:
    named = "SELECT FROM pg_stat_activity WHERE application_name = %s"
    return conn.execute(named, (waiting_application(NAME),)).fetchone() is not None


def _take_over(places: list[_Place], conn: psycopg.Connection) -> Figures:
    one, other = places
    with ExitStack() as stack:
        first = stack.enter_context(one.bridge())
        wait_until(lambda: one.is_ready(first), "the bridge to stream")
        second = stack.enter_context(other.bridge())
        wait_until(lambda: _waits(conn), "the other bridge to wait for the slot")
        first.kill()
        died = time.perf_counter()
        wait_until(lambda: other.is_ready(second), "the other bridge to stream")
        figures = {"wall_s": time.perf_counter() - died, "cpu_s": usage(second.pid).cpu_s}
        second.drain()
    return figures
