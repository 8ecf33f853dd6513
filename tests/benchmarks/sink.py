"""Section sink: keyed upserts from a topic into an empty replica table, beside COPY of the same rows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import psycopg

from tests.benchmarks import jdbc_sink, workload
from tests.benchmarks.debezium import sink as jdbc
from tests.benchmarks.debezium.connect import manners
from tests.benchmarks.deployment import Deployment, daemon, wait_until_published
from tests.benchmarks.measure import Meter, usage
from tests.benchmarks.processes import BenchmarkFailed, wait_until
from tests.benchmarks.replica import backends, checksum, compare, cut, is_copying
from tests.benchmarks.report import Column, Figures, Section
from tests.benchmarks.servers import Servers
from tests.benchmarks.topics import consume
from tests.benchmarks.workload import Backlog

COLUMNS = (
    Column("wall_s", "wall s", 2),
    Column("setup_s", "of it setup", 2),
    Column("core_wait_s", "of it without a core", 2),
    Column("rate", "rows/s", 0),
    Column("cpu_s", "client CPU s/M", 2),
    Column("backend_cpu_s", "backend CPU s/M", 2),
    Column("rss_mb", "peak RSS MB", 0),
)

NOTES = (
    "wall: from the sink's first session in the replica (it has yet to create its tables and to read the topic from "
    "the beginning) until its recorded LSN covers the last row, its setup being what comes before its first COPY; "
    "the contenders: from memory, first byte to commit",
    "JDBC sink: Debezium's, from its first visible batch until all rows are there, so without the start of its JVM; it "
    "reads the same rows from a topic of Debezium's source, because it cannot read ours whole (jsonb); "
    "by its defaults it runs once",
    "the bare consumer: confluent-kafka, consume() of 10,000 records at a time, which are thrown away",
    "each run into an empty table with its primary key; count and checksum of every loaded "
    "table are compared with the source",
)

BLOCK_BYTES = 1 << 18
STAGED = "CREATE TEMPORARY TABLE staged (LIKE loaded) ON COMMIT DROP"
UPSERT = """
INSERT INTO {table} SELECT * FROM staged
ON CONFLICT (id) DO UPDATE SET (customer_id, status, amount, note, tags, created_at, updated_at, payload) =
    (excluded.customer_id, excluded.status, excluded.amount, excluded.note, excluded.tags, excluded.created_at,
     excluded.updated_at, excluded.payload)
"""


def measure(servers: Servers, rows: int, runs: int, *, with_peers: bool) -> Section:
    """Publish ``rows`` inserts once, then replay them ``runs`` times, taking turns with the two ways of COPY."""
    title = f"Sink: {rows:,} keyed upserts into an empty replica table"
    section = Section(title, COLUMNS, ("rate", "direct COPY"), list(NOTES))
    with workload.source(servers, "bench_upserts") as (dsn, conn):
        workload.insert_rows(conn, 1, rows)
        backlog = workload.count_backlog(conn)
        deployment = Deployment("bench_upserts", dsn, servers.bootstrap)
        _publish(deployment, servers.directory, backlog)
        expected, blocks = checksum(conn, "orders"), copy_blocks(conn)
        peer = Deployment("bench_jdbc", dsn, servers.bootstrap, slot="bench_jdbc")
        published = jdbc.publish(peer, servers.directory, rows) if with_peers else None
        for run in range(1, runs + 1):
            name = f"bench_replica_{run}"
            with servers.database(name) as replica_dsn:
                mirror = deployment._replace(replica_dsn=replica_dsn)
                section.add("sink", run_sink(servers, name, mirror, backlog))
                section.add("bare consumer", _read(deployment, rows))
                with workload.connect(replica_dsn) as replica:
                    compare(replica, "orders", expected)
                    for contender, staged in (("direct COPY", False), ("COPY to staging + upsert", True)):
                        replica.execute("CREATE TABLE loaded (LIKE orders INCLUDING ALL)")
                        section.add(contender, _load(replica, blocks, rows, staged=staged))
                        compare(replica, "loaded", expected)
                        replica.execute("DROP TABLE loaded")
            if published is None:
                continue
            for manner in manners(run):
                figures_of_peer = jdbc_sink.run(servers, f"{name}_{manner}", published, manner, expected)
                section.add(f"JDBC sink, {manner}", figures_of_peer)
    return section


def _publish(deployment: Deployment, directory: Path, backlog: Backlog) -> None:
    """Fill the topic with the bridge, unmeasured."""
    with daemon("run", deployment, directory) as bridge:
        wait_until_published(deployment, bridge, backlog.end)
        bridge.drain()


def _read(deployment: Deployment, rows: int) -> Figures:
    """Read the topic and throw away what it holds."""
    start, before_s = time.perf_counter(), time.process_time()
    records, _ = consume(deployment.bootstrap, deployment.topic)
    wall_s, cpu_s = time.perf_counter() - start, time.process_time() - before_s
    if records != rows:
        raise BenchmarkFailed(f"read {records:,} records of {rows:,}")
    return {"wall_s": wall_s, "rate": rows / wall_s, "cpu_s": cpu_s * 1e6 / rows}


def run_sink(servers: Servers, database: str, deployment: Deployment, backlog: Backlog) -> Figures:
    """One run of the sink process, from its first session in the replica to the cut that covers the backlog."""
    assert deployment.replica_dsn is not None
    sessions: set[int] = set()
    with servers.admin() as admin, Meter() as meter, daemon("sink", deployment, servers.directory) as sink:

        def watch_sessions() -> bool:
            sink.must_run()
            for pid in backends(admin, database, sessions):
                sessions.add(pid)
                meter.watch(pid)
            return bool(sessions)

        wait_until(watch_sessions, "the sink to connect to the replica")
        start = time.perf_counter()
        meter.watch(sink.pid)
        with workload.connect(deployment.replica_dsn) as replica:
            own = replica.info.backend_pid
            setup_s = 0.0

            def mirrored() -> bool:
                nonlocal setup_s
                if not setup_s and is_copying(admin, database):
                    setup_s = time.perf_counter() - start
                return watch_sessions() and cut(replica) >= backlog.end

            wait_until(mirrored, "the sink to reach the last row", interval_s=0.02)
            wall_s, spent = time.perf_counter() - start, meter.spent(sink.pid)
            backend_cpu_s = sum(meter.spent(pid).cpu_s for pid in sessions - {own})
        sink.drain()
    own_figures = {"setup_s": setup_s, "core_wait_s": spent.core_wait_s, "rss_mb": spent.rss_mb}
    return figures(wall_s, spent.cpu_s, backend_cpu_s, backlog.changes) | own_figures


def copy_blocks(conn: psycopg.Connection) -> list[bytes]:
    """The table as COPY text, in blocks of about ``BLOCK_BYTES``."""
    blocks, lines, size = [], [], 0
    with conn.cursor().copy("COPY orders TO STDOUT") as copy:
        for line in copy:
            lines.append(bytes(line))
            size += len(line)
            if size > BLOCK_BYTES:
                blocks.append(b"".join(lines))
                lines, size = [], 0
    return [*blocks, b"".join(lines)]


def _load(replica: psycopg.Connection, blocks: Sequence[bytes], rows: int, *, staged: bool) -> Figures:
    """One COPY of all rows in one transaction: straight into the table, or through a temporary one."""
    backend = replica.info.backend_pid
    backend_before_s, own_before_s, start = usage(backend).cpu_s, time.thread_time(), time.perf_counter()
    with replica.transaction(), replica.cursor() as cursor:
        if staged:
            cursor.execute(STAGED)
        with cursor.copy("COPY staged FROM STDIN" if staged else "COPY loaded FROM STDIN") as copy:
            for block in blocks:
                copy.write(block)
        if staged:
            cursor.execute(UPSERT.format(table="loaded"))
    wall_s = time.perf_counter() - start
    return figures(wall_s, time.thread_time() - own_before_s, usage(backend).cpu_s - backend_before_s, rows)


def figures(wall_s: float, cpu_s: float, backend_cpu_s: float, rows: int) -> dict[str, float | None]:
    """A run's figures, CPU per million rows."""
    return {
        "wall_s": wall_s,
        "rate": rows / wall_s,
        "cpu_s": cpu_s * 1e6 / rows,
        "backend_cpu_s": backend_cpu_s * 1e6 / rows,
    }
