"""One run of Debezium's JDBC sink: the rows of another section, into an empty table of the same definition."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

import psycopg

from tests.benchmarks import workload
from tests.benchmarks.debezium import sink as jdbc
from tests.benchmarks.debezium.connect import Manner
from tests.benchmarks.measure import Meter, Usage
from tests.benchmarks.processes import Program, wait_until
from tests.benchmarks.replica import backends, compare
from tests.benchmarks.report import Figures
from tests.benchmarks.servers import Servers
from tests.support.mariadb_server import MariadbDatabase

POLL_S: Final = 0.02
LAST_ARE_THERE: Final = "SELECT count(*) FROM orders WHERE id IN ({})"
COUNT: Final = "SELECT count(*) FROM orders"

Ask = Callable[[str], int]
"""Runs a query in the replica, and returns the one number of its result."""


class _Run(NamedTuple):
    """What a run took.

    Attributes:
        rows: that were written in the measured time.
        wall_s: from the first visible batch until all rows were there.
        spent: by the sink.
    """

    rows: int
    wall_s: float
    spent: Usage

    def figures(self) -> dict[str, float | None]:
        return {
            "wall_s": self.wall_s,
            "rate": self.rows / self.wall_s,
            "cpu_s": self.spent.cpu_s * self.per_million,
            "rss_mb": self.spent.rss_mb,
        }

    @property
    def per_million(self) -> float:
        return 1e6 / self.rows


def run(
    servers: Servers, database: str, published: jdbc.Published, manner: Manner, expected: tuple[int, int]
) -> Figures:
    """Write all rows into PostgreSQL, and compare them with the ``expected`` count and checksum.

    The figures are from the first visible batch until all rows are there, so without the start of the JVM. That is in
    its favour: the figures of ``cdc sink`` begin with its first session in the replica.
    """
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
        with jdbc.connector(published, jdbc.postgres(dsn), database, manner, servers.directory) as sink:

            def ask(query: str) -> int:
                for pid in backends(admin, database, sessions):
                    sessions.add(pid)
                    meter.watch(pid)
                return _number(replica, query)

            made = _watched(sink, ask, published, expected[0], meter)
            backend_cpu_s = sum(meter.spent(pid).cpu_s for pid in sessions - own)
        compare(replica, "orders", expected)
    return {**made.figures(), "backend_cpu_s": backend_cpu_s * made.per_million}


def run_into_mariadb(directory: Path, database: MariadbDatabase, published: jdbc.Published, rows: int) -> Figures:
    """Write all rows into the empty table ``orders`` of MariaDB, tuned; the figures begin as those of ``run``."""
    target = jdbc.mariadb(database.server.port, database.name)
    with (
        Meter() as meter,
        closing(database.server.connect(database.name)) as session,
        session.cursor() as cursor,
        jdbc.connector(published, target, f"jdbc-{database.name}", "tuned", directory) as sink,
    ):

        def ask(query: str) -> int:
            cursor.execute(query)
            return int(cursor.fetchall()[0][0])

        made = _watched(sink, ask, published, rows, meter, [database.server.pid])
        server_s = meter.spent(database.server.pid).cpu_s
    return {**made.figures(), "server_cpu_s": server_s * made.per_million}


def _watched(
    sink: Program, ask: Ask, published: jdbc.Published, rows: int, meter: Meter, also: Sequence[int] = ()
) -> _Run:
    last = LAST_ARE_THERE.format(", ".join(map(str, published.last_keys)))
    wait_until(lambda: _count(ask, sink) > 0, "the JDBC sink's first rows", interval_s=POLL_S)
    before, start = _count(ask, sink), time.perf_counter()
    for pid in (sink.pid, *also):
        meter.watch(pid)

    def there() -> bool:
        sink.must_run()
        # The whole table is counted only at the end: it would disturb
        return ask(last) == len(published.last_keys) and ask(COUNT) == rows

    wait_until(there, "the JDBC sink to have written all rows", interval_s=POLL_S)
    return _Run(max(rows - before, 1), time.perf_counter() - start, meter.spent(sink.pid))


def _count(ask: Ask, sink: Program) -> int:
    sink.must_run()
    return ask(COUNT)


def _number(replica: psycopg.Connection, query: str) -> int:
    row = replica.execute(query.encode()).fetchone()
    assert row is not None
    return int(row[0])
