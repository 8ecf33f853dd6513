"""Section bridge: one WAL backlog drained by the bridge, by pg_recvlogical and by the decoder alone."""

from __future__ import annotations

import time

import psycopg

from tests.benchmarks import drains, workload
from tests.benchmarks.debezium import source as debezium
from tests.benchmarks.debezium.connect import Manner, manners
from tests.benchmarks.deployment import Deployment
from tests.benchmarks.measure import Meter
from tests.benchmarks.processes import BenchmarkFailed
from tests.benchmarks.report import Column, Figures, Section
from tests.benchmarks.servers import Servers
from tests.benchmarks.topics import Content, Counted, read_topic
from tests.benchmarks.workload import Backlog

_PLAIN = "bridge without a compiler"

COLUMNS = (
    Column("wall_s", "wall s", 2),
    Column("core_wait_s", "of it without a core", 2),
    Column("rate", "changes/s", 0),
    Column("cpu_s", "client CPU s/M", 2),
    Column("cpu_s_with_start", "with start", 2),
    Column("walsender_cpu_s", "walsender CPU s/M", 2),
    Column("rss_mb", "peak RSS MB", 0),
)

NOTES = (
    "wall: from START_REPLICATION (the slot becomes active) until a read_committed consumer has the progress record of "
    "the last commit (bridge), until the process has ended after the last commit (pg_recvlogical), the statement "
    "(decoding alone)",
    "without a core: the client's main thread could have run, but others had all cores: far from 0 means that "
    "something else ran here, or that there are too few cores for client, walsender and broker",
    "CPU: user + system of the whole process, all threads, per million changes and in the time of wall; 'with start' "
    "adds the start of the process",
    "each run on its own copy of one untouched slot; after each run of the bridge the topic is read back, counted, and "
    "hashed by partition: keys, values and headers in their order are the same in all runs",
)


def measure(servers: Servers, changes: int, runs: int, *, with_peers: bool) -> Section:
    """Build the backlog and drain it ``runs`` times by each contender, taking turns."""
    with workload.source(servers, "bench_drain") as (dsn, conn):
        workload.build_mixed(conn, changes)
        backlog = workload.count_backlog(conn)
        if backlog.changes != changes:
            raise BenchmarkFailed(f"the backlog holds {backlog.changes:,} changes, not {changes:,}")
        section = Section(
            f"Bridge: {changes:,} row changes ({backlog.inserts:,} inserts, {backlog.updates:,} updates, "
            f"{backlog.deletes:,} deletes in {backlog.transactions:,} transactions) from a slot",
            COLUMNS,
            ratio=("rate", "bridge"),
            notes=list(NOTES),
        )
        recvlogical = drains.recvlogical(servers)
        if recvlogical is None:
            section.notes.append("pg_recvlogical left out: no such program here (Debian: postgresql-client)")
        contents = set()
        for run in range(1, runs + 1):
            for contender, in_python in (("bridge", False), (_PLAIN, True)):
                with workload.copied_slot(conn, f"bench_bridge_{run}_{in_python:d}") as slot:
                    figures, content = _bridge(servers, dsn, conn, slot, backlog, in_python=in_python)
                section.add(contender, figures)
                contents.add(content)
            if len(contents) != 1:
                raise BenchmarkFailed(f"in C and in Python the topics differ: {contents}")
            for manner in manners(run) if with_peers else ():
                with workload.copied_slot(conn, f"bench_debezium_{run}_{manner}") as slot:
                    section.add(f"Debezium, {manner}", _debezium(servers, dsn, conn, slot, backlog, manner))
            if recvlogical is not None:
                with workload.copied_slot(conn, f"bench_recvlogical_{run}") as slot:
                    section.add("pg_recvlogical", drains.by_recvlogical(servers, recvlogical, dsn, conn, slot, backlog))
            with workload.copied_slot(conn, f"bench_decode_{run}") as slot:
                section.add("decoding alone (limit)", drains.by_decoder(conn, slot, backlog))
    return section


def _bridge(
    servers: Servers, dsn: str, conn: psycopg.Connection, slot: str, backlog: Backlog, *, in_python: bool
) -> tuple[Figures, Content]:
    deployment = Deployment(slot, dsn, servers.bootstrap, slot=slot, in_python=in_python)
    figures = drains.by_bridge(servers, conn, deployment, backlog)
    expected = Counted(backlog.changes, backlog.deletes)
    content = read_topic(servers.bootstrap, deployment.topic)
    if content.counted != expected:
        raise BenchmarkFailed(f"the topic holds {content.counted}, expected {expected}")
    return figures, content


def _debezium(
    servers: Servers, dsn: str, conn: psycopg.Connection, slot: str, backlog: Backlog, manner: Manner
) -> Figures:
    deployment = Deployment(slot, dsn, servers.bootstrap, slot=slot)
    with Meter() as meter, debezium.connector(deployment, manner, servers.directory, snapshot="no_data") as peer:
        walsender, start = drains.streaming(conn, slot, peer, meter)
        records = backlog.changes + (backlog.deletes if manner == "defaults" else 0)  # by default a delete is two
        debezium.wait_until_written(deployment, peer, records)
        figures = drains.figures(time.perf_counter() - start, meter, peer.pid, walsender, backlog.changes)
    figures = {**figures, "core_wait_s": None}  # of the JVM's main thread, which does nothing
    found = read_topic(servers.bootstrap, deployment.topic).counted
    if found != Counted(records, backlog.deletes):
        raise BenchmarkFailed(f"Debezium's topic holds {found}, expected {records:,} and {backlog.deletes:,}")
    return figures
