"""Section bridge: one WAL backlog drained by the bridge, by pg_recvlogical and by the decoder alone."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping

import psycopg

from tests.benchmarks import workload
from tests.benchmarks.debezium import source as debezium
from tests.benchmarks.deployment import Deployment, daemon, wait_until_published
from tests.benchmarks.measure import Meter, usage
from tests.benchmarks.processes import BenchmarkFailed, Program, program, wait_until
from tests.benchmarks.report import Column, Figures, Section
from tests.benchmarks.servers import Servers
from tests.benchmarks.topics import Content, Counted, read_topic
from tests.benchmarks.workload import PUBLICATION, Backlog

_PLAIN = "bridge without a compiler"

DEBEZIUM: Mapping[debezium.Manner, str] = {"tuned": "Debezium, tuned", "defaults": "Debezium, defaults"}

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

DECODE_ALONE = """
SELECT count(*) FROM pg_logical_slot_peek_binary_changes(%s, %s, NULL, 'proto_version', '1', 'publication_names', %s)
"""


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
        recvlogical = servers.postgres_program("pg_recvlogical") or shutil.which("pg_recvlogical")
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
            for manner in DEBEZIUM if with_peers else ():
                with workload.copied_slot(conn, f"bench_debezium_{run}_{manner}") as slot:
                    section.add(DEBEZIUM[manner], _debezium(servers, dsn, conn, slot, backlog, manner))
            if recvlogical is not None:
                with workload.copied_slot(conn, f"bench_recvlogical_{run}") as slot:
                    section.add("pg_recvlogical", _recvlogical(servers, recvlogical, dsn, conn, slot, backlog))
            with workload.copied_slot(conn, f"bench_decode_{run}") as slot:
                section.add("decoding alone (limit)", _decode_alone(conn, slot, backlog))
    return section


def _bridge(
    servers: Servers, dsn: str, conn: psycopg.Connection, slot: str, backlog: Backlog, *, in_python: bool
) -> tuple[Figures, Content]:
    deployment = Deployment(slot, dsn, servers.bootstrap, slot=slot, in_python=in_python)
    with Meter() as meter, daemon("run", deployment, servers.directory) as bridge:
        walsender, start = _streaming(conn, slot, bridge, meter)
        wait_until_published(deployment, bridge, backlog.end)
        figures = _figures(time.perf_counter() - start, meter, bridge.pid, walsender, backlog.changes)
        bridge.drain()
    expected = Counted(backlog.changes, backlog.deletes)
    content = read_topic(servers.bootstrap, deployment.topic)
    if content.counted != expected:
        raise BenchmarkFailed(f"the topic holds {content.counted}, expected {expected}")
    return figures, content


def _debezium(
    servers: Servers, dsn: str, conn: psycopg.Connection, slot: str, backlog: Backlog, manner: debezium.Manner
) -> Figures:
    deployment = Deployment(slot, dsn, servers.bootstrap, slot=slot)
    with Meter() as meter, debezium.connector(deployment, manner, servers.directory, snapshot="no_data") as peer:
        walsender, start = _streaming(conn, slot, peer, meter)
        records = backlog.changes + (backlog.deletes if manner == "defaults" else 0)  # by default a delete is two
        debezium.wait_until_written(deployment, peer, records)
        figures = _figures(time.perf_counter() - start, meter, peer.pid, walsender, backlog.changes)
    figures = {**figures, "core_wait_s": None}  # of the JVM's main thread, which does nothing
    found = read_topic(servers.bootstrap, deployment.topic).counted
    if found != Counted(records, backlog.deletes):
        raise BenchmarkFailed(f"Debezium's topic holds {found}, expected {records:,} and {backlog.deletes:,}")
    return figures


def _recvlogical(
    servers: Servers, executable: str, dsn: str, conn: psycopg.Connection, slot: str, backlog: Backlog
) -> Figures:
    argv = [executable, "--dbname", dsn, "--slot", slot, "--start", "--file", "/dev/null", "--no-loop"]
    argv += ["--endpos", str(backlog.end), "-o", "proto_version=1", "-o", f"publication_names={PUBLICATION}"]
    with Meter() as meter, program("pg_recvlogical", argv, servers.directory) as client:
        walsender, start = _streaming(conn, slot, client, meter)
        client.wait()
        return _figures(time.perf_counter() - start, meter, client.pid, walsender, backlog.changes)


def _decode_alone(conn: psycopg.Connection, slot: str, backlog: Backlog) -> Figures:
    backend = conn.info.backend_pid
    before, start = usage(backend), time.perf_counter()
    conn.execute(DECODE_ALONE, [slot, str(backlog.end), PUBLICATION])
    wall_s = time.perf_counter() - start
    return {
        "wall_s": wall_s,
        "rate": backlog.changes / wall_s,
        "walsender_cpu_s": (usage(backend).cpu_s - before.cpu_s) * 1e6 / backlog.changes,
    }


def _streaming(conn: psycopg.Connection, slot: str, client: Program, meter: Meter) -> tuple[int, float]:
    """Wait for START_REPLICATION on the slot. Returns the walsender's process id and the time it was seen."""
    active: list[int] = []

    def slot_active() -> bool:
        client.must_run()
        row = conn.execute("SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s", [slot]).fetchone()
        active.extend(pid for pid in row or () if pid is not None)
        return bool(active)

    wait_until(slot_active, f"{client.name} to stream from slot {slot}")
    start = time.perf_counter()
    meter.watch(client.pid)
    meter.watch(active[0])
    return active[0], start


def _figures(wall_s: float, meter: Meter, client: int, walsender: int, changes: int) -> Figures:
    spent, per_million = meter.spent(client), 1e6 / changes
    return {
        "wall_s": wall_s,
        "core_wait_s": spent.core_wait_s,
        "rate": changes / wall_s,
        "cpu_s": spent.cpu_s * per_million,
        "cpu_s_with_start": meter.total_cpu_s(client) * per_million,
        "walsender_cpu_s": meter.spent(walsender).cpu_s * per_million,
        "rss_mb": spent.rss_mb,
    }
