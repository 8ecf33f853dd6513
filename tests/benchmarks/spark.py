"""Section spark: a reconciliation, beside what compares two tables of one server: EXCEPT both ways, and reladiff."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import psycopg
from pyspark.sql import SparkSession

from cdc.base.lsn import LSN
from cdc.cli.options import load_config
from cdc.contract.jobspec.reconcile import ReconcileJob
from cdc.ops.jobs.describe import describe_deployment, spark_settings
from cdc.spark.reconcile.main import reconcile
from cdc.spark.session import open_session
from tests.benchmarks import workload
from tests.benchmarks.backfill import wait_for_backfill
from tests.benchmarks.deployment import Deployment, daemon, wait_until_published
from tests.benchmarks.processes import BenchmarkFailed, Program
from tests.benchmarks.report import Column, Figures, Section
from tests.benchmarks.servers import Servers

CORES: Final = 2
CONNECTIONS: Final = 2
"""Fewer than the topic has partitions, so that the two scans can be told apart by their number of tasks."""

EXCEPT: Final = """
SELECT count(*) FROM ((TABLE orders EXCEPT TABLE orders_copy) UNION ALL (TABLE orders_copy EXCEPT TABLE orders)) d
"""
COLUMNS = (
    Column("wall_s", "wall s", 1),
    Column("rate", "rows/s", 0),
    Column("source_s", "source scan s", 1),
    Column("topic_s", "topic scan s", 1),
    Column("join_s", "join s", 1),
    Column("shuffle", "shuffle B/row", 1),
)
NOTES = (
    f"Spark on local[{CORES}], started before; the topic holds three versions of each key",
    "wall: the whole run, fence and report included; the scans run side by side, each figure is its stage's wall time",
    "EXCEPT: both ways, on the table and a copy of it in the same server, default settings",
    "--state: the second run with one, after 1 % of the rows were updated",
    "reladiff: the same two tables, by its Python interface in a process of its own, with two threads",
)


class StageFigures(NamedTuple):
    """One finished stage of Spark."""

    tasks: int
    wall_s: float
    shuffle_written: int
    shuffle_read: int


def measure(servers: Servers, rows: int, runs: int) -> Section:
    """Reconcile tables of a tenth of ``rows``, ``rows``, and five times ``rows``; the reference is of ``rows``."""
    reference = f"EXCEPT both ways, {rows:,}"
    section = Section("Reconciliation of nine columns", COLUMNS, ratio=("wall_s", reference), notes=list(NOTES))
    started = time.perf_counter()
    settings = spark_settings(f"local[{CORES}]")
    with open_session(settings, "bench") as spark:
        section.add("start of Spark", {"wall_s": time.perf_counter() - started})
        for size in (rows // 10, rows, 5 * rows):
            with _filled(servers, size) as (deployment, conn, bridge):
                for run in range(runs if size == rows else 1):
                    section.add(f"EXCEPT both ways, {size:,}", _except(conn, size))
                    if size == rows and run == 0:
                        section.add(f"reladiff, {size:,}", _reladiff(deployment.source_dsn, size))
                    section.add(f"cdc reconcile, {size:,}", _reconcile(servers, deployment, spark, size, str(run)))
                if size == rows:
                    state = servers.directory / f"{deployment.name}-state"
                    _reconcile(servers, deployment, spark, size, "first", state)
                    conn.execute(f"UPDATE orders SET amount = amount + 1 WHERE id <= {rows // 100}")
                    _wait(deployment, bridge, conn)
                    again = _reconcile(servers, deployment, spark, size, "next", state)
                    section.add(
                        f"with --state, 1 % of {size:,} new", {name: again[name] for name in ("wall_s", "rate")}
                    )
    return section


@contextmanager
def _filled(servers: Servers, rows: int) -> Iterator[tuple[Deployment, psycopg.Connection[Any], Program]]:
    """A table, its copy, and a bridge that has published three versions of each row."""
    name = f"bench_spark_{rows}"
    with workload.source(servers, name) as (dsn, conn):
        workload.fill(conn, "orders", rows)
        deployment = Deployment(name, dsn, servers.bootstrap, slot=name, snapshot="initial")
        with daemon("run", deployment, servers.directory) as bridge:
            wait_for_backfill(deployment, bridge)
            for _ in range(2):
                conn.execute("UPDATE orders SET amount = amount + 1")
            conn.execute("CREATE TABLE orders_copy (LIKE orders INCLUDING ALL)")
            conn.execute("INSERT INTO orders_copy TABLE orders")
            conn.execute("VACUUM ANALYZE orders, orders_copy")
            _wait(deployment, bridge, conn)
            yield deployment, conn, bridge
            bridge.drain()
        workload.drop_slot(conn, name)


def _wait(deployment: Deployment, bridge: Program, conn: psycopg.Connection[Any]) -> None:
    row = conn.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
    assert row is not None
    wait_until_published(deployment, bridge, LSN.parse(row[0]))


def _reconcile(
    servers: Servers, deployment: Deployment, spark: SparkSession, rows: int, run: str, state: Path | None = None
) -> Figures:
    folder = servers.directory / f"{deployment.name}-{run}"
    described = describe_deployment(load_config(deployment.write(servers.directory)))
    job = ReconcileJob(
        run=folder.name,
        tool_version="bench",
        spark=spark_settings(f"local[{CORES}]"),
        kafka=described.kafka,
        source=described.source,
        stream=described.stream,
        tables=described.tables,
        folder=str(folder),
        connections=CONNECTIONS,
        state=None if state is None else str(state),
    )
    before = set(_stages(spark))
    started = time.perf_counter()
    report = reconcile(job, contextlib.nullcontext(spark))
    wall_s = time.perf_counter() - started
    if report.verdict != "identical" or report.tables[0].counts.source_rows != rows:
        raise BenchmarkFailed(f"the reconciliation says {report.verdict}: {report.tables[0].reason}")
    stages = [each for number, each in _stages(spark).items() if number not in before]
    scans = [each for each in stages if each.shuffle_written]
    return {
        "wall_s": wall_s,
        "rate": rows / wall_s,
        "source_s": sum(each.wall_s for each in scans if each.tasks == CONNECTIONS),
        "topic_s": sum(each.wall_s for each in scans if each.tasks != CONNECTIONS),
        "join_s": sum(each.wall_s for each in stages if each.shuffle_read),
        "shuffle": sum(each.shuffle_written for each in scans) / rows,
    }


def _stages(spark: SparkSession) -> Mapping[int, StageFigures]:
    """Finished stages by number, from Spark's own store."""
    context: Any = spark.sparkContext
    gateway = context._gateway
    store = context._jsc.sc().statusStore()
    listed = store.stageList(None, False, False, gateway.new_array(gateway.jvm.double, 0), None)
    stages = {}
    for index in range(listed.size()):
        stage = listed.apply(index)
        if stage.completionTime().isDefined():
            wall_ms = stage.completionTime().get().getTime() - stage.submissionTime().get().getTime()
            stages[stage.stageId()] = StageFigures(
                stage.numTasks(), wall_ms / 1000, stage.shuffleWriteBytes(), stage.shuffleReadBytes()
            )
    return stages


def _except(conn: psycopg.Connection[Any], rows: int) -> Figures:
    started = time.perf_counter()
    row = conn.execute(EXCEPT).fetchone()
    wall_s = time.perf_counter() - started
    if row != (0,):
        raise BenchmarkFailed(f"EXCEPT finds {row} differences")
    return {"wall_s": wall_s, "rate": rows / wall_s}


def _reladiff(dsn: str, rows: int) -> Figures:
    """None of the figures when it is not installed: it is a peer, not a dependency."""
    if importlib.util.find_spec("reladiff") is None:
        return {}
    script = Path(__file__).with_name("reladiff_peer.py")
    started = time.perf_counter()
    done = subprocess.run([sys.executable, str(script), dsn], capture_output=True, text=True, env=dict(os.environ))
    wall_s = time.perf_counter() - started
    if done.returncode != 0 or done.stdout.strip() != "0":
        raise BenchmarkFailed(f"reladiff: {done.stdout}{done.stderr}")
    return {"wall_s": wall_s, "rate": rows / wall_s}
