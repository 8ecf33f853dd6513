"""Section shapes: backlogs of many forms, each drained by the bridge and by pg_recvlogical in turn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg

from tests.benchmarks import drains, workload
from tests.benchmarks.deployment import Deployment
from tests.benchmarks.processes import BenchmarkFailed
from tests.benchmarks.report import Column, Figures, Section
from tests.benchmarks.servers import Servers
from tests.benchmarks.shapes import Shape, all_shapes
from tests.benchmarks.topics import committed_reader, partitions, read_to_end
from tests.benchmarks.workload import Backlog

COLUMNS = (
    Column("bytes", "B a change", 0),
    Column("rate", "changes/s", 0),
    Column("mb_s", "MB/s", 1),
    Column("cpu_s", "client CPU s/M", 2),
    Column("rss_mb", "peak RSS MB", 0),
    Column("core_wait_s", "s without a core", 2),
    Column("peer_rate", "pg_recvlogical's changes/s", 0),
    Column("peer_cpu_s", "its CPU s/M", 2),
    Column("ratio", "rate ÷ its", 2),
)
NOTES = (
    "wall, CPU and RSS as in section bridge; bytes: of the messages that PostgreSQL sends, begin and commit included; "
    "MB/s: of the same bytes",
    "each run of the bridge is followed by pg_recvlogical on another copy of the slot, and the ratio is of the two",
    "many tables: the time holds the bridge's first look at each, and Kafka transactions that touch each partition; "
    "updates of TOAST: the bridge reads 4 KB a row again, which pg_recvlogical never sees",
    "the topics of each shape's first run are read back and counted",
)


def measure(servers: Servers, changes: int, narrow_rows: int, runs: int) -> Section:
    """Each shape ``runs`` times."""
    section = Section("Shapes of rows and transactions", COLUMNS, notes=list(NOTES))
    for number, shape in enumerate(all_shapes(changes, narrow_rows)):
        with built(servers, f"bench_shape_{number}", shape) as (dsn, conn):
            run_shape(servers, dsn, conn, section, shape, runs)
    return section


@contextmanager
def built(servers: Servers, database: str, shape: Shape) -> Iterator[tuple[str, psycopg.Connection]]:
    """A source whose untouched slot holds the shape's changes."""
    with workload.source(servers, database, create=shape.create, published="ALL TABLES") as (dsn, conn):
        for statement in shape.build:
            workload.build(conn, statement)
        yield dsn, conn


def run_shape(servers: Servers, dsn: str, conn: psycopg.Connection, section: Section, shape: Shape, runs: int) -> None:
    """Drain what the untouched slot holds, ``runs`` times, and add the figures to the section."""
    backlog = workload.count_backlog(conn)
    recvlogical = drains.recvlogical(servers)
    base = conn.info.dbname
    for run in range(1, runs + 1):
        with workload.copied_slot(conn, f"{base}_{run}") as slot:
            deployment = Deployment(slot, dsn, servers.bootstrap, slot=slot, tables=tuple(shape.tables))
            own = drains.by_bridge(servers, conn, deployment, backlog)
        if run == 1:
            _must_hold(deployment, backlog)
        peer: Figures = {}
        if recvlogical is not None:
            with workload.copied_slot(conn, f"{base}_{run}_peer") as slot:
                peer = drains.by_recvlogical(servers, recvlogical, dsn, conn, slot, backlog)
        section.add(shape.name, _figures(own, peer, backlog))


def _figures(own: Figures, peer: Figures, backlog: Backlog) -> Figures:
    rate, peer_rate = own["rate"], peer.get("rate")
    assert rate is not None
    bytes_each = backlog.stream_bytes / backlog.changes
    return {
        "bytes": bytes_each,
        "rate": rate,
        "mb_s": rate * bytes_each / 1e6,
        "cpu_s": own["cpu_s"],
        "rss_mb": own["rss_mb"],
        "core_wait_s": own["core_wait_s"],
        "peer_rate": peer_rate,
        "peer_cpu_s": peer.get("cpu_s"),
        "ratio": rate / peer_rate if peer_rate else None,
    }


def _must_hold(deployment: Deployment, backlog: Backlog) -> None:
    """Count the records of all its topics.

    Raises:
        BenchmarkFailed: they are more or fewer than the changes.
    """
    topics = [f"{deployment.name}.{table}" for table in deployment.tables]
    unread = [each for topic in topics for each in partitions(deployment.bootstrap, topic)]
    with closing(committed_reader(deployment.bootstrap, end_events=True)) as consumer:
        found = sum(1 for _ in read_to_end(consumer, unread))
    if found != backlog.changes:
        raise BenchmarkFailed(f"the topics of {deployment.name} hold {found:,} records, expected {backlog.changes:,}")
