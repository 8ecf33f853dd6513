"""Section sink, updates and deletes: every row of a replica table changes once, beside the same in SQL."""

from __future__ import annotations

import time
from collections.abc import Sequence

import psycopg

from tests.benchmarks import workload
from tests.benchmarks.deployment import Deployment, daemon, wait_until_published
from tests.benchmarks.measure import usage
from tests.benchmarks.processes import Program, wait_until
from tests.benchmarks.replica import checksum, compare, cut
from tests.benchmarks.report import Figures, Section
from tests.benchmarks.servers import Servers
from tests.benchmarks.sink import COLUMNS, UPSERT, copy_blocks, figures, run_sink
from tests.benchmarks.workload import Backlog

STAGED = "staging + upsert, delete"
NOTES = (
    "every run on a copy of one replica that holds all rows; updates and deletes of different keys, in an order that "
    "is not the table's",
    f"sink: as above, with a table that is there already; {STAGED}: in one transaction, from memory, the new rows by "
    "COPY into a temporary table and from there by INSERT … ON CONFLICT DO UPDATE, the keys of deleted ones likewise "
    "and by DELETE … USING",
)
STAGE = (
    "CREATE TEMPORARY TABLE staged (LIKE orders) ON COMMIT DROP",
    "CREATE TEMPORARY TABLE gone (id bigint) ON COMMIT DROP",
)
DELETE = "DELETE FROM orders USING gone WHERE orders.id = gone.id"


def measure(servers: Servers, rows: int, runs: int) -> Section:
    """Change each of ``rows`` rows, ``runs`` times: four fifths are updated, the others deleted."""
    updates = rows * 4 // 5
    title = f"Sink, changes: {updates:,} updates and {rows - updates:,} deletes in a replica table of {rows:,} rows"
    section = Section(title, COLUMNS, ("rate", STAGED), list(NOTES))
    name = "bench_changes"
    with workload.source(servers, name) as (dsn, conn), servers.database(f"{name}_replica") as replica_dsn:
        deployment = Deployment(name, dsn, servers.bootstrap, replica_dsn, slot=name)
        with workload.copied_slot(conn, name):
            backlog = _prepare(servers, deployment, conn, rows, updates)
        expected, blocks = checksum(conn, "orders"), copy_blocks(conn)
        gone = "".join(f"{workload.scattered(each, rows)}\n" for each in range(updates, rows)).encode()
        for run in range(1, runs + 1):
            copy = f"{name}_{run}"
            with servers.database(copy, template=f"{name}_replica") as dsn_of_copy:
                mirror = deployment._replace(replica_dsn=dsn_of_copy)
                section.add("sink", run_sink(servers, copy, mirror, backlog))
                with workload.connect(dsn_of_copy) as replica:
                    compare(replica, "orders", expected)
            with (
                servers.database(copy, template=f"{name}_replica") as dsn_of_copy,
                workload.connect(dsn_of_copy) as replica,
            ):
                section.add(STAGED, _in_sql(replica, blocks, gone, rows))
                compare(replica, "orders", expected)
    return section


def _prepare(servers: Servers, deployment: Deployment, conn: psycopg.Connection, rows: int, updates: int) -> Backlog:
    """Mirror all rows, then publish the changes. Returns what the sink has left to do."""
    workload.insert_rows(conn, 1, rows)
    with daemon("run", deployment, servers.directory) as bridge:
        inserted = workload.count_backlog(conn)
        with daemon("sink", deployment, servers.directory) as sink:
            _wait_until_mirrored(deployment, sink, inserted)
            sink.drain()
        workload.change_each(conn, rows, updates)
        backlog = workload.count_backlog(conn)
        wait_until_published(deployment, bridge, backlog.end)
        bridge.drain()
    return backlog._replace(inserts=0)


def _wait_until_mirrored(deployment: Deployment, sink: Program, backlog: Backlog) -> None:
    assert deployment.replica_dsn is not None
    with workload.connect(deployment.replica_dsn) as replica:

        def mirrored() -> bool:
            sink.must_run()
            return cut(replica) >= backlog.end

        wait_until(mirrored, "the replica to hold all rows", interval_s=0.1)
        replica.execute("VACUUM ANALYZE orders")


def _in_sql(replica: psycopg.Connection, blocks: Sequence[bytes], gone: bytes, rows: int) -> Figures:
    backend = replica.info.backend_pid
    backend_before_s, own_before_s, start = usage(backend).cpu_s, time.thread_time(), time.perf_counter()
    with replica.transaction(), replica.cursor() as cursor:
        for statement in STAGE:
            cursor.execute(statement)
        with cursor.copy("COPY staged FROM STDIN") as copy:
            for block in blocks:
                copy.write(block)
        with cursor.copy("COPY gone FROM STDIN") as copy:
            copy.write(gone)
        cursor.execute(UPSERT.format(table="orders"))
        cursor.execute(DELETE)
    wall_s = time.perf_counter() - start
    return figures(wall_s, time.thread_time() - own_before_s, usage(backend).cpu_s - backend_before_s, rows)
