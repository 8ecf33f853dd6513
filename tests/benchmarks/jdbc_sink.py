"""One run of Debezium's JDBC sink: the rows of section sink, into an empty table of the same definition."""

from __future__ import annotations

import time

import psycopg

from tests.benchmarks import workload
from tests.benchmarks.debezium import sink as jdbc
from tests.benchmarks.debezium.connect import Manner
from tests.benchmarks.measure import Meter
from tests.benchmarks.processes import Program, wait_until
from tests.benchmarks.replica import backends, compare
from tests.benchmarks.report import Figures
from tests.benchmarks.servers import Servers

POLL_S = 0.02
LAST_ARE_THERE = "SELECT count(*) FROM orders WHERE id = ANY (%s)"
COUNT = "SELECT count(*) FROM orders"


def run(
    servers: Servers, database: str, published: jdbc.Published, manner: Manner, expected: tuple[int, int]
) -> Figures:
    """Write all rows, and compare them with the ``expected`` count and checksum.

    The figures are from the first visible batch until all rows are there, so without the start of the JVM. That is in
    its favour: the figures of ``cdc sink`` begin with its first session in the replica.
    """
    rows = expected[0]
    sessions: set[int] = set()
    with (
        servers.database(database) as dsn,
        workload.connect(dsn) as replica,
        servers.admin() as admin,
        Meter() as meter,
    ):
        replica.execute(workload.CREATE_TABLE)
        sessions.add(replica.info.backend_pid)
        own = frozenset(sessions)
        with jdbc.connector(published, dsn, database, manner, servers.directory) as sink:
            wait_until(lambda: _count(replica, sink) > 0, "the JDBC sink's first rows", interval_s=POLL_S)
            before, start = _count(replica, sink), time.perf_counter()
            meter.watch(sink.pid)

            def there() -> bool:
                sink.must_run()
                for pid in backends(admin, database, sessions):
                    sessions.add(pid)
                    meter.watch(pid)
                row = replica.execute(LAST_ARE_THERE, [list(published.last_keys)]).fetchone()
                # The whole table is counted only at the end: it would disturb.
                return row == (len(published.last_keys),) and _count(replica, sink) == rows

            wait_until(there, "the JDBC sink to have written all rows", interval_s=POLL_S)
            wall_s, spent = time.perf_counter() - start, meter.spent(sink.pid)
            backend_cpu_s = sum(meter.spent(pid).cpu_s for pid in sessions - own)
        compare(replica, "orders", expected)
    measured = max(rows - before, 1)
    per_million = 1e6 / measured
    return {
        "wall_s": wall_s,
        "rate": measured / wall_s,
        "cpu_s": spent.cpu_s * per_million,
        "backend_cpu_s": backend_cpu_s * per_million,
        "rss_mb": spent.rss_mb,
    }


def _count(replica: psycopg.Connection, sink: Program) -> int:
    sink.must_run()
    row = replica.execute(COUNT).fetchone()
    assert row is not None
    return int(row[0])
