"""Section tables: what a deployment of thousands of tables costs to start, to look at, and to leave alone."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import psycopg

from cdc.base.errors import TopicRefused, TopicUnavailable
from cdc.contract.naming import progress_topic
from cdc.lab.stack.embedded import free_port
from tests.benchmarks import workload
from tests.benchmarks.measure import usage
from tests.benchmarks.processes import BenchmarkFailed, Program, program, wait_until
from tests.benchmarks.report import Column, Figures, Section
from tests.benchmarks.servers import Servers
from tests.support.reading import read_backfills

NAME = "bench_tables"
IDLE_S = 60.0
TIMEOUT_S = 1800.0
POLL_S = 0.1
TABLES_PER_STATEMENT = 100

COLUMNS = (
    Column("wall_s", "wall s", 1),
    Column("cpu_s", "own CPU s", 2),
    Column("postgres_cpu_s", "PostgreSQL CPU s", 2),
    Column("broker_cpu_s", "broker CPU s", 2),
    Column("rss_mb", "peak RSS MB", 0),
)
NOTES = (
    "tables of four columns and a primary key with one row each; one partition a topic (the default is 4), one node",
    "streaming: /ready of a new process answers 200; everything is there at the second start",
    "a table more: from SIGHUP, which makes the bridge look at once, until the backfill of a new table is done",
    "PostgreSQL: all of its processes, the walsender included",
)

CREATE_TABLES = """
DO $$
BEGIN
    FOR n IN {first}..{last} LOOP
        EXECUTE format('CREATE TABLE t_%s (id bigint PRIMARY KEY, name text, amount numeric(12,2), at timestamptz)', n);
        EXECUTE format('INSERT INTO t_%s SELECT i, ''one'', 1.5, now() FROM generate_series(1, {rows}) i', n);
    END LOOP;
END $$
"""


class _Spent:
    """CPU seconds of one program and of both servers since its making."""

    def __init__(self, postmaster: psutil.Process, broker_pid: int, pid: int | None = None) -> None:
        self._postmaster, self._broker_pid, self._pid = postmaster, broker_pid, pid
        self._start, self._before = time.perf_counter(), self._now()

    def figures(self) -> dict[str, float | None]:
        """What was spent until now."""
        spent = {key: value - self._before[key] for key, value in self._now().items()}
        rss_mb = None if self._pid is None else usage(self._pid).rss_mb
        return {"wall_s": time.perf_counter() - self._start, "rss_mb": rss_mb, **spent}

    def _now(self) -> dict[str, float]:
        now = {"postgres_cpu_s": _family_cpu_s(self._postmaster), "broker_cpu_s": usage(self._broker_pid).cpu_s}
        return now if self._pid is None else {**now, "cpu_s": usage(self._pid).cpu_s}


def measure(servers: Servers, tables: int) -> Section:
    """Start a bridge for so many tables twice, leave it alone for a minute, and look at it."""
    section = Section(f"Tables: {tables:,} of them", COLUMNS, notes=list(NOTES))
    with ExitStack() as stack:
        dsn = stack.enter_context(servers.database(NAME))
        conn = stack.enter_context(workload.connect(dsn))
        create_tables(conn, tables)
        stack.callback(workload.drop_slot, conn, NAME)
        postmaster = psutil.Process(conn.info.backend_pid).parent()
        assert postmaster is not None
        port = free_port()
        config = write_configuration(servers, NAME, dsn, port, partitions=1)

        def spent(pid: int | None = None) -> _Spent:
            return _Spent(postmaster, servers.broker_pid, pid)

        with program("cdc run", command("run", config), servers.directory) as bridge:
            since = spent(bridge.pid)
            wait_until_ready(bridge, port)
            section.add("first start: streaming", since.figures())
            wait_until_whole(servers, NAME, bridge, tables)
            section.add("first start: all backfills done", since.figures())
            bridge.drain()
        with program("cdc run", command("run", config), servers.directory) as bridge:
            since = spent(bridge.pid)
            wait_until_ready(bridge, port)
            section.add("second start: streaming", since.figures())
            time.sleep(IDLE_S / 6)  # what is asked for the first time only is no part of being idle
            since = spent(bridge.pid)
            time.sleep(IDLE_S)
            section.add(f"idle for {IDLE_S:.0f} s", since.figures())
            bridge.must_run()
            for verb in ("status", "check"):
                section.add(f"cdc {verb}", _run(command(verb, config), servers.directory / verb, spent))
            since = spent(bridge.pid)
            create_tables(conn, tables + 1, first=tables + 1)
            os.kill(bridge.pid, signal.SIGHUP)
            wait_until_whole(servers, NAME, bridge, tables + 1)
            section.add("a table more", since.figures())
            bridge.drain()
    return section


def create_tables(conn: psycopg.Connection, last: int, first: int = 1, rows: int = 1) -> None:
    """Tables ``t_1`` and so on, with so many rows each."""
    for low in range(first, last + 1, TABLES_PER_STATEMENT):
        high = min(low + TABLES_PER_STATEMENT - 1, last)
        conn.execute(CREATE_TABLES.format(first=low, last=high, rows=rows).encode())


def write_configuration(servers: Servers, name: str, dsn: str, port: int, partitions: int) -> Path:
    """A bridge of that name for all tables of a database; a file for each port."""
    content = {
        "name": name,
        "source": {"dsn": dsn, "slot": name, "tables": ["public.*"]},
        "kafka": {"bootstrap": servers.bootstrap},
        "topics": {"partitions": partitions},
        "http": {"bridge_port": port},
    }
    path = servers.directory / f"{name}-{port}.yaml"
    path.write_text(json.dumps(content, indent=2))
    return path


def command(verb: str, config: Path) -> list[str | Path]:
    """What runs it, in this Python."""
    return [sys.executable, "-m", "cdc", verb, "-c", config]


def wait_until_ready(bridge: Program, port: int, interval_s: float = POLL_S) -> None:
    """Wait until it streams."""

    def ready() -> bool:
        bridge.must_run()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=10):
                return True
        except OSError:  # not there yet, or 503
            return False

    wait_until(ready, "the bridge to stream", timeout_s=TIMEOUT_S, interval_s=interval_s)


def wait_until_whole(servers: Servers, name: str, bridge: Program, tables: int) -> None:
    """Wait until so many tables are in their topics."""
    options = {"bootstrap.servers": servers.bootstrap}

    def whole() -> bool:
        bridge.must_run()
        with suppress(TopicRefused, TopicUnavailable):  # the topics are still being made
            return sum(each.whole for each in read_backfills(options, progress_topic(name)).values()) == tables
        return False

    wait_until(whole, f"{tables:,} backfills", timeout_s=TIMEOUT_S, interval_s=1.0)


def _run(argv: list[str | Path], log: Path, spent: Callable[[], _Spent]) -> Figures:
    """Run a command that ends by itself; the figures of a process are exact when it is waited for."""
    since = spent()
    with log.open("wb") as output:
        pid = os.posix_spawn(
            sys.executable,
            [str(each) for each in argv],
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, output.fileno(), 1), (os.POSIX_SPAWN_DUP2, output.fileno(), 2)],
        )
        _, status, resources = os.wait4(pid, 0)
    if code := os.waitstatus_to_exitcode(status):
        raise BenchmarkFailed(f"{' '.join(map(str, argv))} ended with {code}:\n{log.read_text()[-2000:]}")
    cpu_s = resources.ru_utime + resources.ru_stime
    return {**since.figures(), "cpu_s": cpu_s, "rss_mb": resources.ru_maxrss * 1024 / 1e6}


def _family_cpu_s(parent: psutil.Process) -> float:
    """CPU seconds of a process and its children, those that have ended included."""
    total = sum(parent.cpu_times()[:4])
    for child in parent.children():
        with suppress(psutil.NoSuchProcess):
            total += sum(child.cpu_times()[:2])
    return total
