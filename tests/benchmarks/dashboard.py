"""Section dashboard: what the page costs the bridge under a load, closed and open in turn."""

from __future__ import annotations

import json
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psycopg

from cdc.lab.stack.embedded import free_port
from tests.benchmarks import workload
from tests.benchmarks.deployment import Deployment
from tests.benchmarks.measure import usage
from tests.benchmarks.processes import Program, program, wait_until
from tests.benchmarks.report import Column, Section
from tests.benchmarks.servers import Servers

RATE_PER_S = 2_000
_ROWS: Final = 20
"""In each transaction: single rows would be bounded by the disk."""
_WARM_S = 8.0
"""A bridge that has just started catches up first, and its checks are made when the page is opened."""

COLUMNS = (
    Column("core_percent", "bridge: CPU % of a core"),
    Column("more", "more than with the page closed", 2),
    Column("changes_s", "changes/s", 0),
    Column("looks", "looks", 0),
)
NOTES = (
    "one bridge; the page is opened and closed again and again, so that both meet the same load and neighbours",
    "open: one client reads its events, so the bridge looks every two seconds; open four times: as many clients",
)
WAYS = {"page closed": 0, "page open": 1, "page open four times": 4}


def measure(servers: Servers, seconds: int, runs: int) -> Section:
    """Run the bridge under ``RATE_PER_S`` changes a second, with the page closed and open in turn."""
    section = Section(
        f"Dashboard: the bridge at {RATE_PER_S:,} changes/s asked for, {seconds} s a round", COLUMNS, notes=list(NOTES)
    )
    port = free_port()
    with workload.source(servers, "bench_dashboard") as (source_dsn, source):
        workload.insert_rows(source, 0, 0)
        path = Deployment("bench_dashboard", source_dsn, servers.bootstrap).write(servers.directory)
        path.write_text(json.dumps({**json.loads(path.read_text()), "http": {"bridge_port": port}}))
        argv: list[str | Path] = [sys.executable, "-m", "cdc", "run", "-c", path]
        with (
            program("cdc run", argv, servers.directory) as bridge,
            _load(source_dsn),
        ):
            wait_until(lambda: _answers(port, bridge), "the bridge to stream")
            with _watching(port, 1, [0]):
                _pause(_WARM_S, bridge)
            for _ in range(runs):
                closed = 0.0
                for name, watchers in WAYS.items():
                    found = _round(source, bridge, port, watchers, seconds)
                    closed = found["core_percent"] if watchers == 0 else closed
                    section.add(name, {**found, "more": found["core_percent"] - closed if watchers else None})
            bridge.drain()
    return section


def _round(source: psycopg.Connection, bridge: Program, port: int, watchers: int, seconds: int) -> dict[str, float]:
    looks = [0]
    with _watching(port, watchers, looks):
        before, first, started = usage(bridge.pid), _rows(source), time.monotonic()
        _pause(seconds, bridge)
        after, wall_s = usage(bridge.pid), time.monotonic() - started
        changes = _rows(source) - first
    return {
        "core_percent": 100 * (after.cpu_s - before.cpu_s) / wall_s,
        "changes_s": changes / wall_s,
        "looks": looks[0] / max(watchers, 1),
    }


@contextmanager
def _load(dsn: str) -> Iterator[None]:
    """Rows in transactions of ``_ROWS``, at a fixed pace, while the block lasts."""
    ended = threading.Event()

    def write() -> None:
        with workload.connect(dsn) as conn:
            started, key = time.monotonic(), 1
            while not ended.wait(max(started + key / RATE_PER_S - time.monotonic(), 0)):
                conn.execute(
                    "INSERT INTO orders SELECT made.* FROM generate_series(%s::bigint, %s) n, bench_row(n) made",
                    [key, key + _ROWS - 1],
                )
                key += _ROWS

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        yield
    finally:
        ended.set()
        writer.join(30)


def _rows(source: psycopg.Connection) -> int:
    """Rows that the load has written so far: the bridge keeps up with it."""
    row = source.execute("SELECT max(id) FROM orders").fetchone()
    assert row is not None
    return int(row[0])


@contextmanager
def _watching(port: int, watchers: int, looks: list[int]) -> Iterator[None]:
    ended = threading.Event()

    def watch() -> None:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/dashboard/events", timeout=30) as events:
            while not ended.is_set():
                looks[0] += events.readline().startswith(b"event: look")

    threads = [threading.Thread(target=watch, daemon=True) for _ in range(watchers)]
    for each in threads:
        each.start()
    try:
        yield
    finally:
        ended.set()
        for each in threads:
            each.join(30)


def _answers(port: int, bridge: Program) -> bool:
    bridge.must_run()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _pause(seconds: float, bridge: Program) -> None:
    ends_at = time.monotonic() + seconds

    def over() -> bool:
        bridge.must_run()
        return time.monotonic() >= ends_at

    wait_until(over, "the end of a round", interval_s=0.2)
