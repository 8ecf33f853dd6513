"""Section replicas: keyed upserts from a topic into an empty replica in another database, beside loads by hand."""

from __future__ import annotations

import csv
import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import duckdb
import psutil
import psycopg

from cdc.base.config import Config
from cdc.base.errors import ReplicaUnavailable
from cdc.sink.dialects import open_replica
from cdc.sink.replica import ReplicaDatabase
from tests.benchmarks import jdbc_sink, workload
from tests.benchmarks.debezium import sink as jdbc
from tests.benchmarks.deployment import Deployment, daemon, wait_until_published
from tests.benchmarks.measure import Meter, usage
from tests.benchmarks.processes import BenchmarkFailed, wait_until
from tests.benchmarks.report import Column, Figures, Section
from tests.benchmarks.servers import Servers
from tests.benchmarks.workload import Backlog
from tests.support.mariadb_server import MariadbDatabase, MariadbServer, fresh_mariadb

COLUMNS = (
    Column("wall_s", "wall s", 2),
    Column("rate", "rows/s", 0),
    Column("cpu_s", "client CPU s/M", 2),
    Column("server_cpu_s", "server CPU s/M", 2),
    Column("rss_mb", "peak RSS MB", 0),
)
NOTES = (
    "wall: from the moment at which the sink holds its lock until its recorded LSN covers the last row; by hand: one "
    "transaction with all rows, from memory or a file in memory, into an empty table that the sink has made",
    "JDBC sink: Debezium's, tuned, from its first visible batch until all rows are there, so without the start of its "
    "JVM; it reads the same rows from a topic of Debezium's source, in which an array is text; "
    "each value of its rows is compared with the sink's",
    "each run into an empty replica; count and sums of every loaded table are compared with the source",
)
_SUMS: Final = "SELECT count(*), sum(id), sum(customer_id) FROM orders"
_SERVER: Final = {"innodb-buffer-pool-size": "1G", "innodb-log-file-size": "1G", "innodb-flush-log-at-trx-commit": "1"}
"""As a small production server has it: each commit is flushed, and no checkpoint comes in the middle of a run."""

Load = Callable[[], None]


class Place(Protocol):
    """An empty replica."""

    @property
    def called(self) -> str:
        """The database's name."""

    @property
    def url(self) -> str:
        """The value of ``sink.url``."""

    @property
    def server(self) -> int | None:
        """Process id of its server; None if there is none."""

    @property
    def ways(self) -> Sequence[str]:
        """Names of the ways by which its users load rows by hand."""

    def sums(self) -> tuple[int, ...]:
        """Returns count and sums of the replica table."""

    def loads(self, directory: Path) -> Iterator[tuple[str, Load]]:
        """Yields each way of loading the replica's rows into the same table, which is empty then."""


class SqlitePlace:
    """A file of SQLite."""

    called, server, ways = "SQLite", None, ("executemany",)

    def __init__(self, path: Path) -> None:
        self._path = path
        self.url = f"sqlite:///{path}"

    def sums(self) -> tuple[int, ...]:
        with closing(sqlite3.connect(self._path)) as session:
            return _numbers(session.execute(_SUMS).fetchone())

    def loads(self, directory: Path) -> Iterator[tuple[str, Load]]:
        with closing(sqlite3.connect(self._path, isolation_level=None)) as session:
            session.execute("PRAGMA synchronous = NORMAL")
            rows = session.execute("SELECT * FROM orders").fetchall()
            session.execute("DELETE FROM orders")
            marks = ", ".join("?" * len(rows[0]))

            def load() -> None:
                session.execute("BEGIN")
                session.executemany(f"INSERT INTO orders VALUES ({marks})", rows)
                session.execute("COMMIT")

            yield "executemany", load


class DuckdbPlace:
    """A file of DuckDB."""

    called, server, ways = "DuckDB", None, ("INSERT from Arrow",)

    def __init__(self, path: Path) -> None:
        self._path = path
        self.url = f"duckdb:///{path}"

    def sums(self) -> tuple[int, ...]:
        with duckdb.connect(str(self._path)) as session:
            session.execute("SET schema = 'public'")
            return _numbers(session.execute(_SUMS).fetchone())

    def loads(self, directory: Path) -> Iterator[tuple[str, Load]]:
        with duckdb.connect(str(self._path)) as session:
            session.execute("SET schema = 'public'")
            rows = session.execute("SELECT * FROM orders").to_arrow_table()
            session.execute("DELETE FROM orders")
            session.execute("CHECKPOINT")
            session.register("loaded_rows", rows)
            yield "INSERT from Arrow", lambda: _execute(session.execute, "INSERT INTO orders SELECT * FROM loaded_rows")


class MariadbPlace:
    """A database of MariaDB."""

    called, ways = "MariaDB", ("LOAD DATA", "LOAD DATA to staging + upsert")

    def __init__(self, database: MariadbDatabase) -> None:
        self._database = database
        self.url = database.url
        self.server: int | None = database.server.pid

    def sums(self) -> tuple[int, ...]:
        return _numbers(self._database.execute(_SUMS)[0])

    def by_peer(self, run: _Run) -> Iterator[tuple[str, Figures]]:
        """Yields the figures of Debezium's JDBC sink into the same table, emptied."""
        if run.published is None:
            return
        columns = ", ".join(f"COALESCE({each}, 'NULL')" for (each, *_) in self._database.execute("DESCRIBE orders"))
        checksum = f"SELECT count(*), sum(conv(left(md5(concat_ws('/', {columns})), 12), 16, 10)) FROM orders"
        expected = self._database.execute(checksum)
        self._database.execute("TRUNCATE orders")
        figures = jdbc_sink.run_into_mariadb(run.directory, self._database, run.published, run.backlog.changes)
        if (found := self._database.execute(checksum)) != expected:
            raise BenchmarkFailed(f"the JDBC sink's replica has {found}; the sink's: {expected}")
        yield "JDBC sink, tuned", figures

    def loads(self, directory: Path) -> Iterator[tuple[str, Load]]:
        connect = self._database.server.connect
        with (
            closing(connect(self._database.name, local_infile=True, autocommit=False)) as session,
            session.cursor() as cursor,
        ):
            cursor.execute("SELECT * FROM orders")
            columns = [each[0] for each in cursor.description]
            path = _written(directory / "orders.tsv", cursor.fetchall())
            data = f"LOAD DATA LOCAL INFILE '{path}' INTO TABLE {{}} CHARACTER SET utf8mb4"
            others = ", ".join(f"{each} = VALUES({each})" for each in columns if each != "id")
            upsert = f"INSERT INTO orders SELECT * FROM staged ON DUPLICATE KEY UPDATE {others}"
            staging = "CREATE TEMPORARY TABLE staged LIKE orders"
            for way, statements in zip(
                self.ways, ([data.format("orders")], [staging, data.format("staged"), upsert]), strict=True
            ):
                cursor.execute("DELETE FROM orders")
                session.commit()
                yield way, lambda statements=statements: _execute(cursor.execute, *statements, "COMMIT")  # type: ignore[misc]


class _Run(NamedTuple):
    """What all runs share.

    Attributes:
        deployment: whose topic is replayed.
        backlog: what the topic holds.
        expected: count and sums of the source table.
        directory: for files.
        published: the same rows for Debezium's JDBC sink; None without peers.
    """

    deployment: Deployment
    backlog: Backlog
    expected: tuple[int, ...]
    directory: Path
    published: jdbc.Published | None


def measure(servers: Servers, rows: int, runs: int, *, with_peers: bool) -> Iterator[Section]:
    """Publish ``rows`` inserts once, then replay them ``runs`` times into each database."""
    with workload.source(servers, "bench_replicas") as (dsn, conn):
        workload.insert_rows(conn, 1, rows)
        backlog = workload.count_backlog(conn)
        deployment = Deployment("bench_replicas", dsn, servers.bootstrap)
        with daemon("run", deployment, servers.directory) as bridge:
            wait_until_published(deployment, bridge, backlog.end)
            bridge.drain()
        peer = Deployment("bench_replicas_jdbc", dsn, servers.bootstrap, slot="bench_replicas_jdbc")
        published = jdbc.publish(peer, servers.directory, rows, flattened={"tags"}) if with_peers else None
        run = _Run(deployment, backlog, _numbers(_one(conn, _SUMS)), servers.directory, published)
        with MariadbServer.open(_SERVER) as server:
            for kind in ("sqlite", "duckdb", "mariadb"):
                yield _in_database(kind, server, run, runs)


def _in_database(kind: str, server: MariadbServer, run: _Run, runs: int) -> Section:
    section: Section | None = None
    for number in range(1, runs + 1):
        with _empty(kind, server, run.directory / f"{kind}-{number}") as place:
            if section is None:
                title = f"Replica in {place.called}: {run.backlog.changes:,} keyed upserts into an empty table"
                section = Section(title, COLUMNS, ("rate", place.ways[0]), list(NOTES))
            section.add("sink", _by_sink(place, run))
            if isinstance(place, MariadbPlace):
                for peer, figures in place.by_peer(run):
                    section.add(peer, figures)
            for way, load in place.loads(run.directory):
                section.add(way, _by_hand(place, load, run))
    assert section is not None
    return section


@contextmanager
def _empty(kind: str, server: MariadbServer, path: Path) -> Iterator[Place]:
    if kind == "sqlite":
        yield SqlitePlace(path)
    elif kind == "duckdb":
        yield DuckdbPlace(path)
    else:
        with fresh_mariadb(server) as database:
            yield MariadbPlace(database)


def _by_sink(place: Place, run: _Run) -> Figures:
    deployment = run.deployment._replace(replica_url=place.url)
    config = Config.model_validate(json.loads(deployment.write(run.directory).read_text()))
    with Meter() as meter, daemon("sink", deployment, run.directory) as sink:
        replica = open_replica(config, application_name="bench")

        def runs() -> bool:
            sink.must_run()
            return _is_begun(replica)

        wait_until(runs, "the sink to take its lock", interval_s=0.02)
        start, before_s = time.perf_counter(), _server_s(place)
        meter.watch(sink.pid)

        def mirrored() -> bool:
            sink.must_run()
            return (replica.status().lsn or 0) >= run.backlog.end

        wait_until(mirrored, "the sink to reach the last row", interval_s=0.1)
        wall_s, spent = time.perf_counter() - start, meter.spent(sink.pid)
        server_s = _server_s(place) - before_s
        sink.drain()
    _compare(place, run)
    return {**_figures(wall_s, spent.cpu_s, server_s, run), "rss_mb": spent.rss_mb}


def _is_begun(replica: ReplicaDatabase) -> bool:
    try:
        return replica.status().running
    except ReplicaUnavailable:  # nobody else can open the file, and the sink has not told its state yet
        return False


def _by_hand(place: Place, load: Load, run: _Run) -> Figures:
    before_s, own_s, start = _server_s(place), time.process_time(), time.perf_counter()
    load()
    wall_s, own_s = time.perf_counter() - start, time.process_time() - own_s
    figures = _figures(wall_s, own_s, _server_s(place) - before_s, run)
    if place.server is not None:  # the session that loaded has the files open
        _compare(place, run)
    return figures


def _figures(wall_s: float, cpu_s: float, server_s: float, run: _Run) -> Mapping[str, float]:
    rows = run.backlog.changes
    per_million = 1e6 / rows
    figures = {"wall_s": wall_s, "rate": rows / wall_s, "cpu_s": cpu_s * per_million}
    return {**figures, "server_cpu_s": server_s * per_million} if server_s else figures


def _compare(place: Place, run: _Run) -> None:
    if (found := place.sums()) != run.expected:
        raise BenchmarkFailed(f"the replica in {place.called} has {found}; the source: {run.expected}")


def _server_s(place: Place) -> float:
    return 0.0 if place.server is None else usage(psutil.Process(place.server).pid).cpu_s


def _written(path: Path, rows: Sequence[Sequence[Any]]) -> Path:
    """Writes rows as LOAD DATA reads them."""
    escaped = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n"})
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", quoting=csv.QUOTE_NONE, quotechar=None, lineterminator="\n")
        writer.writerows([["\\N" if v is None else str(v).translate(escaped) for v in row] for row in rows])
    return path


def _execute(execute: Callable[[str], object], *statements: str) -> None:
    for each in statements:
        execute(each)


def _one(conn: psycopg.Connection, query: str) -> Sequence[Any]:
    row = conn.execute(query.encode()).fetchone()
    assert row is not None
    return row


def _numbers(row: Sequence[Any] | None) -> tuple[int, ...]:
    return tuple(map(int, row or ()))
