"""Section big: one source transaction of millions of rows, then a backfill of them: the memory that they need."""

from __future__ import annotations

import time
from contextlib import ExitStack

from cdc.base.lsn import LSN
from tests.benchmarks import workload
from tests.benchmarks.backfill import run_backfill
from tests.benchmarks.deployment import Deployment, daemon
from tests.benchmarks.measure import Meter
from tests.benchmarks.processes import BenchmarkFailed, wait_until
from tests.benchmarks.replica import checksum, cut
from tests.benchmarks.report import Column, Section
from tests.benchmarks.servers import Servers

TIMEOUT_S = 3600.0

COLUMNS = (
    Column("rss_mb", "peak RSS MB", 0),
    Column("cpu_s", "CPU s/M", 2),
    Column("wall_s", "wall s", 0),
)
NOTES = (
    "bridge and sink follow while the transaction is written; wall: from its COMMIT until the replica's recorded LSN "
    "covers it; afterwards row count and checksum of the replica are compared with the source",
    "backfill: another bridge, as in section backfill",
)


def measure(servers: Servers, rows: int) -> Section:
    """Write one transaction of ``rows`` inserts, wait until the replica has all of it, and backfill the table."""
    name = "bench_big"
    with ExitStack() as stack:
        source_dsn, source = stack.enter_context(workload.source(servers, name))
        replica_dsn = stack.enter_context(servers.database(f"{name}_replica"))
        deployment = Deployment(name, source_dsn, servers.bootstrap, replica_dsn)
        bridge = stack.enter_context(daemon("run", deployment, servers.directory))
        sink = stack.enter_context(daemon("sink", deployment, servers.directory))
        meter = stack.enter_context(Meter())
        replica = stack.enter_context(workload.connect(replica_dsn))
        meter.watch(bridge.pid)
        meter.watch(sink.pid)
        workload.insert_rows(source, 1, rows, batch=rows)
        row = source.execute("SELECT pg_current_wal_insert_lsn()").fetchone()
        assert row is not None
        end, start = LSN.parse(row[0]), time.perf_counter()

        def mirrored() -> bool:
            bridge.must_run()
            sink.must_run()
            return cut(replica) >= end

        wait_until(mirrored, "the replica to cover the transaction", timeout_s=TIMEOUT_S, interval_s=0.5)
        section = Section(
            f"Big: one transaction of {rows:,} inserts, and a backfill of them", COLUMNS, notes=list(NOTES)
        )
        wall_s = time.perf_counter() - start
        for daemon_name, process in (("bridge", bridge), ("sink", sink)):
            cpu_s, rss_mb, _ = meter.spent(process.pid)
            section.add(daemon_name, {"rss_mb": rss_mb, "cpu_s": cpu_s * 1e6 / rows, "wall_s": wall_s})
        if checksum(replica, "orders") != checksum(source, "orders"):
            raise BenchmarkFailed("the replica's rows differ from the source's")
        bridge.drain()
        sink.drain()
        section.add("backfill", run_backfill(servers, source_dsn, source, "bench_big_backfill", rows))
    return section
