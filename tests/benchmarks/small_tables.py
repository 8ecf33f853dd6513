"""Section small: ``cdc reconcile`` of many small tables, as a user runs it, its JVM's start included."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import psutil

from cdc.lab.stack.embedded import free_port
from tests.benchmarks import workload
from tests.benchmarks.processes import BenchmarkFailed, program
from tests.benchmarks.report import Column, Figures, Section
from tests.benchmarks.servers import Servers
from tests.benchmarks.tables import create_tables, wait_until_whole, write_configuration

NAME = "bench_small_tables"
ROWS = 1_000
SAMPLE_S = 0.1
COLUMNS = (
    Column("wall_s", "wall s", 1),
    Column("cpu_s", "own CPU s", 1),
    Column("rss_mb", "peak RSS MB", 0),
    Column("rate", "tables/s", 1),
)
NOTES = (
    f"tables of four columns, a primary key and {ROWS:,} rows each; four partitions a topic; no replica",
    "wall: the whole command, as a user types it; own CPU and peak RSS: of the command, its job, its JVM and workers",
)


def measure(servers: Servers, tables: int, runs: int) -> Section:
    """Reconcile one table, and then all, in turns."""
    section = Section(f"Reconciliation of {tables:,} tables of {ROWS:,} rows", COLUMNS, notes=list(NOTES))
    with servers.database(NAME) as dsn, workload.connect(dsn) as conn:
        create_tables(conn, tables, rows=ROWS)
        config = write_configuration(servers, NAME, dsn, free_port(), partitions=4)
        with program("cdc run", [sys.executable, "-m", "cdc", "run", "-c", config], servers.directory) as bridge:
            wait_until_whole(servers, NAME, bridge, tables)
            for _ in range(runs):
                section.add("one table", _reconcile(servers, config, ["public.t_1"], 1))
                section.add("all tables", _reconcile(servers, config, [], tables))
            bridge.drain()
        workload.drop_slot(conn, NAME)
    return section


def _reconcile(servers: Servers, config: Path, wanted: list[str], count: int) -> Figures:
    log, folder = servers.directory / "reconcile.log", servers.directory / f"{NAME}-report"
    started = time.perf_counter()
    with log.open("wb") as output:
        command = [sys.executable, "-m", "cdc", "reconcile", "-c", str(config), "--report", str(folder), *wanted]
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        cpu_s, rss_mb = _spent(process)
    wall_s = time.perf_counter() - started
    said = log.read_text()
    if process.returncode or said.count("IDENTICAL public.t_") != count:
        raise BenchmarkFailed(f"cdc reconcile ended with {process.returncode}:\n{said[-2000:]}")
    return {"wall_s": wall_s, "cpu_s": cpu_s, "rss_mb": rss_mb, "rate": count / wall_s}


def _spent(process: subprocess.Popen[bytes]) -> tuple[float, float]:
    """CPU seconds of it and all its descendants, until it ends, and their peak memory together."""
    cpu_s: defaultdict[int, float] = defaultdict(float)
    peak = 0
    root = psutil.Process(process.pid)
    while process.poll() is None:
        resident = 0
        with suppress(psutil.NoSuchProcess):
            for each in [root, *root.children(recursive=True)]:
                with suppress(psutil.NoSuchProcess):
                    times = each.cpu_times()
                    cpu_s[each.pid] = max(cpu_s[each.pid], times.user + times.system)
                    resident += each.memory_info().rss
        peak = max(peak, resident)
        time.sleep(SAMPLE_S)
    return sum(cpu_s.values()), peak / 1e6
