"""Section view: topics become tables that one can ask. How fast they are filled, and how fast they answer."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import psycopg

from cdc.base.lsn import LSN
from cdc.lab.stack.redis_server import RedisServer
from tests.benchmarks import view_answers, workload
from tests.benchmarks.backfill import wait_for_backfill
from tests.benchmarks.deployment import Deployment, daemon, wait_until_published
from tests.benchmarks.measure import Meter
from tests.benchmarks.processes import BenchmarkFailed
from tests.benchmarks.report import Column, Section
from tests.benchmarks.servers import Servers
from tests.benchmarks.topics import consume
from tests.benchmarks.view_config import folder, write_config

VERSIONS = 3
_UPDATED_AT_ONCE = 1000
_UPDATES = """
DO $$
BEGIN
    FOR low IN 1..{rows} BY {batch} LOOP
        UPDATE orders SET status = 'v' || {version}, amount = amount + 1, updated_at = clock_timestamp()
        WHERE id BETWEEN low AND low + {batch} - 1;
        COMMIT;
    END LOOP;
END $$
"""

COLUMNS = (
    Column("wall_s", "wall s", 2),
    Column("rate", "records/s", 0),
    Column("mb_per_s", "MB/s"),
    Column("cpu_s", "CPU s/M", 2),
    Column("server_cpu_s", "Redis CPU s/M", 2),
    Column("rss_mb", "peak RSS MB", 0),
    Column("memory_mb", "memory MB/M keys", 0),
    Column("disk_mb", "disk MB/M keys", 0),
)
NOTES = (
    "the bare consumer: confluent-kafka, consume() of 10,000 records at a time, which are thrown away; a view: from "
    "the start of its session until its tables show everything that was published. MB: keys and values",
    "memory: of the store alone, as it tells (keys and values in the store in memory; in Redis, what the server takes)",
)


class Topic(NamedTuple):
    """The topic that views are filled from.

    Attributes:
        deployment: that wrote it.
        end: LSN before its last record.
        rows: keys.
        records: that there are.
        mb: of keys and values.
    """

    deployment: Deployment
    end: LSN
    rows: int
    records: int
    mb: float


def measure(servers: Servers, rows: int, runs: int, seconds: int) -> Iterator[Section]:
    """All about views: a section each for filling, answering, being watched, and following."""
    with ExitStack() as stack:
        dsn, source = stack.enter_context(workload.source(servers, "bench_view"))
        redis = stack.enter_context(RedisServer.open())
        topic = _publish(servers, Deployment("bench_view", dsn, servers.bootstrap, snapshot="initial"), source, rows)
        yield _rebuild(servers, topic, redis, runs)
        yield from view_answers.measure(servers, topic.deployment, source, redis, rows, seconds)


def _publish(servers: Servers, deployment: Deployment, source: psycopg.Connection, rows: int) -> Topic:
    """Fill the topic with the bridge, unmeasured: each key as often as ``VERSIONS``, far apart."""
    with daemon("run", deployment, servers.directory) as bridge:
        # Of no rows: only then a view believes that the topic holds all of them.
        wait_for_backfill(deployment, bridge)
        workload.insert_rows(source, 1, rows)
        source.execute("SET synchronous_commit = off")
        for version in range(2, VERSIONS + 1):
            source.execute(_UPDATES.format(rows=rows, batch=_UPDATED_AT_ONCE, version=version).encode())
        source.execute("RESET synchronous_commit")
        row = source.execute("SELECT pg_current_wal_lsn()").fetchone()
        assert row is not None
        end = LSN.parse(row[0])
        source.execute("UPDATE orders SET status = 'last' WHERE id = 1")  # beyond which the progress moves
        wait_until_published(deployment, bridge, end)
        bridge.drain()
    records, size = consume(deployment.bootstrap, deployment.topic, count=True)
    return Topic(deployment, end, rows, records, size / 1e6)


def _rebuild(servers: Servers, topic: Topic, redis: RedisServer, runs: int) -> Section:
    title = f"View rebuild: {topic.rows:,} keys × {VERSIONS} versions, {topic.mb:,.0f} MB"
    section = Section(title, COLUMNS, ("rate", "bare consumer"), list(NOTES))
    for run in range(runs):
        began, cpu_s = time.perf_counter(), time.process_time()
        records, _ = consume(topic.deployment.bootstrap, topic.deployment.topic)
        if records != topic.records:
            raise BenchmarkFailed(f"read {records:,} records of {topic.records:,}")
        wall_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu_s
        section.add("bare consumer", _figures(topic, wall_s, cpu_s))
        for store in ("LMDB", "Redis", "memory"):
            where = {"LMDB": folder(servers, "lmdb", run), "Redis": redis.url, "memory": "memory"}[store]
            section.add(f"view in {store}", _fill(servers, topic, store, where, redis))
    return section


def _fill(servers: Servers, topic: Topic, store: str, where: str, redis: RedisServer) -> dict[str, float | None]:
    if store == "Redis":
        redis.restart()
    config = write_config(servers.directory, topic.deployment, where, f"view-{store.lower()}")
    with Meter() as meter:
        meter.watch(redis.pid)
        command = [sys.executable, "-m", "tests.benchmarks.view_filler", str(config), str(topic.end)]
        done = subprocess.run(command, capture_output=True, text=True)
        server_cpu_s = meter.spent(redis.pid).cpu_s
    if done.returncode:
        raise BenchmarkFailed(f"the view in {store} was not filled:\n{done.stderr[-2000:]}")
    told = json.loads(done.stdout.splitlines()[-1])
    if (told["rows"], told["state"]) != (topic.rows, "exact"):
        raise BenchmarkFailed(f"the view in {store} holds {told['rows']:,} rows, {told['state']}")
    millions = topic.rows / 1e6
    return {
        **_figures(topic, told["wall_s"], told["cpu_s"]),
        "server_cpu_s": server_cpu_s * 1e6 / topic.records if store == "Redis" else None,
        "rss_mb": told["rss_mb"],
        "memory_mb": told["memory_bytes"] / 1e6 / millions or None,
        "disk_mb": told["disk_bytes"] / 1e6 / millions or None,
    }


def _figures(topic: Topic, wall_s: float, cpu_s: float) -> dict[str, float | None]:
    return {
        "wall_s": wall_s,
        "rate": topic.records / wall_s,
        "mb_per_s": topic.mb / wall_s,
        "cpu_s": cpu_s * 1e6 / topic.records,
    }
