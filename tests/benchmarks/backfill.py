"""Section backfill: a table that is there already into its topic, beside COPY of the same table to nowhere."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from uuid import uuid4

import psycopg

from cdc.base.errors import CdcError, TopicRefused, TopicUnavailable
from cdc.contract.naming import progress_topic
from cdc.contract.record import BackfillProgress, BackfillRequest
from cdc.kafka.publish.requests import write_request
from tests.benchmarks import workload
from tests.benchmarks.debezium import source as debezium
from tests.benchmarks.deployment import Deployment, daemon
from tests.benchmarks.measure import Meter
from tests.benchmarks.processes import BenchmarkFailed, Program, wait_until
from tests.benchmarks.report import Column, Figures, Section
from tests.benchmarks.servers import Servers
from tests.benchmarks.topics import Counted, read_topic
from tests.support.reading import read_backfills

TIMEOUT_S = 1800.0
POLL_S = 0.25

COLUMNS = (
    Column("wall_s", "wall s", 2),
    Column("rate", "rows/s", 0),
    Column("cpu_s", "bridge CPU s/M", 2),
    Column("rss_mb", "peak RSS MB", 0),
)
NOTES = (
    "wall of the backfill: from its first record in the progress topic (the bridge streams, nothing is read yet) until "
    "the record of its end, by the bridge's own clock; peak RSS since the start of the process",
    "Debezium: from its first record in the topic to its last; with one snapshot thread, which is faster here than two",
    "COPY: psql -c 'COPY orders TO STDOUT' > /dev/null on the same table, its process's start included",
    "after each backfill the topic is read back and its records are counted",
)


def measure(servers: Servers, rows: int, runs: int, *, with_peers: bool) -> Section:
    """Backfill ``rows`` rows ``runs`` times, beside COPY."""
    copy = "COPY TO STDOUT (limit)"
    section = Section(
        f"Backfill: {rows:,} rows of nine columns into an empty topic", COLUMNS, ratio=("rate", copy), notes=list(NOTES)
    )
    psql = servers.postgres_program("psql")
    with workload.source(servers, "bench_backfill") as (dsn, conn):
        workload.fill(conn, "orders", rows)
        for run in range(1, runs + 1):
            if psql is not None:
                section.add(copy, _copy(psql, dsn, rows))
            for contender, in_python in (("backfill", False), ("backfill without a compiler", True)):
                name = f"bench_backfill_{run}_{in_python:d}"
                section.add(contender, run_backfill(servers, dsn, conn, name, rows, in_python=in_python))
            if with_peers:
                section.add("Debezium's snapshot, tuned", _debezium(servers, dsn, conn, f"bench_snapshot_{run}", rows))
    return section


@contextmanager
def again_and_again(deployment: Deployment, table: str) -> Iterator[None]:
    """Have a table backfilled over and over by the running bridge, for the length of the block."""
    over, options = Event(), {"bootstrap.servers": deployment.bootstrap}
    topic, failures = progress_topic(deployment.name), list[CdcError]()

    def work() -> None:
        try:
            while not over.is_set():
                request = BackfillRequest(uuid4().hex, "start", (table,))
                write_request(options, topic, request)
                while not over.wait(POLL_S):
                    found = read_backfills(options, topic).get(table)
                    if found is not None and found.request == request.request and not found.is_open:
                        break
        except CdcError as error:
            failures.append(error)

    thread = Thread(target=work, name="backfills", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if failures:
        raise BenchmarkFailed(f"no backfill beside the load: {failures[0]}")


def _copy(psql: str, dsn: str, rows: int) -> Figures:
    start = time.perf_counter()
    subprocess.run([psql, dsn, "-qc", "COPY orders TO STDOUT"], stdout=subprocess.DEVNULL, check=True)
    wall_s = time.perf_counter() - start
    return {"wall_s": wall_s, "rate": rows / wall_s}


def run_backfill(
    servers: Servers, dsn: str, conn: psycopg.Connection, name: str, rows: int, *, in_python: bool = False
) -> Figures:
    """One backfill of a table of ``rows`` rows by a bridge that is started for it."""
    # The bridge makes its slot, so that the stream does not bring the rows as well
    deployment = Deployment(name, dsn, servers.bootstrap, slot=name, snapshot="initial", in_python=in_python)
    with Meter() as meter, daemon("run", deployment, servers.directory) as bridge:
        begun = _wait(deployment, bridge, "begin")
        meter.watch(bridge.pid)
        done = _wait(deployment, bridge, "end")
        cpu_s, rss_mb, _ = meter.spent(bridge.pid)
        bridge.drain()
    workload.drop_slot(conn, name)
    if done.state != "done":
        raise BenchmarkFailed(f"the backfill ended as {done.state}: {done.reason}")
    found = read_topic(servers.bootstrap, deployment.topic).counted
    if found != Counted(rows, 0):
        raise BenchmarkFailed(f"the topic holds {found}, expected {rows:,} rows")
    wall_s = (done.updated_at - begun.started_at) / 1e6
    return {"wall_s": wall_s, "rate": rows / wall_s, "cpu_s": cpu_s * 1e6 / rows, "rss_mb": rss_mb}


def _debezium(servers: Servers, dsn: str, conn: psycopg.Connection, name: str, rows: int) -> Figures:
    deployment = Deployment(name, dsn, servers.bootstrap, slot=name)
    with (
        Meter() as meter,
        debezium.connector(deployment, "tuned", servers.directory, snapshot="initial_only") as peer,
    ):
        debezium.wait_until_written(deployment, peer, 1)
        start = time.perf_counter()
        meter.watch(peer.pid)
        debezium.wait_until_written(deployment, peer, rows)
        wall_s = time.perf_counter() - start
        cpu_s, rss_mb, _ = meter.spent(peer.pid)
    found = read_topic(servers.bootstrap, deployment.topic).counted
    if found != Counted(rows, 0):
        raise BenchmarkFailed(f"Debezium's topic holds {found}, expected {rows:,} rows")
    return {"wall_s": wall_s, "rate": rows / wall_s, "cpu_s": cpu_s * 1e6 / rows, "rss_mb": rss_mb}


def wait_for_backfill(deployment: Deployment, bridge: Program) -> None:
    """Until the first backfill is done.

    Raises:
        BenchmarkFailed: it ended otherwise.
    """
    done = _wait(deployment, bridge, "end")
    if done.state != "done":
        raise BenchmarkFailed(f"the backfill ended as {done.state}: {done.reason}")


def _wait(deployment: Deployment, bridge: Program, what: str) -> BackfillProgress:
    """The backfill's record once it has begun, or ended."""
    options, found = {"bootstrap.servers": deployment.bootstrap}, list[BackfillProgress]()

    def there() -> bool:
        bridge.must_run()
        with contextlib.suppress(TopicRefused, TopicUnavailable):  # the topics are still being made
            record = read_backfills(options, progress_topic(deployment.name)).get("public.orders")
            if record is not None and (what == "begin" or not record.is_open):
                found.append(record)
        return bool(found)

    wait_until(there, f"the backfill to {what}", timeout_s=TIMEOUT_S, interval_s=POLL_S)
    return found[0]
