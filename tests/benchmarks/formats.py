"""Section formats: the same changes and rows in each format, through the bridge and through the sink."""

from __future__ import annotations

from collections.abc import Iterator

from cdc.lab.stack import RegistryServer
from tests.benchmarks import drains, sink, workload
from tests.benchmarks.deployment import Deployment, daemon, wait_until_published
from tests.benchmarks.processes import BenchmarkFailed
from tests.benchmarks.replica import checksum, compare
from tests.benchmarks.report import Column, Section
from tests.benchmarks.servers import Servers
from tests.benchmarks.topics import Counted, read_topic

COLUMNS = (
    Column("wall_s", "wall s", 2),
    Column("rate", "rows/s", 0),
    Column("cpu_s", "client CPU s/M", 2),
    Column("rss_mb", "peak RSS MB", 0),
)
NOTES = (
    "as in the sections bridge and sink; the formats take turns. Schemas are in an embedded Apicurio Registry, which "
    "is asked once for each table",
)


def measure(servers: Servers, changes: int, runs: int) -> Iterator[Section]:
    """Yield how bridge and sink do with each format, as a ratio of JSON."""
    with RegistryServer.open() as registry:
        formats = {"json": None, "json-schema": registry.url, "avro": registry.url}
        yield _bridge(servers, changes, runs, formats)
        yield _sink(servers, changes // 2, runs, formats)


def _bridge(servers: Servers, changes: int, runs: int, formats: dict[str, str | None]) -> Section:
    with workload.source(servers, "bench_formats") as (dsn, conn):
        workload.build_mixed(conn, changes)
        backlog = workload.count_backlog(conn)
        title = f"Formats, bridge: {changes:,} row changes from a slot"
        section = Section(title, COLUMNS, ratio=("rate", "json"), notes=list(NOTES))
        for run in range(1, runs + 1):
            for name, registry in formats.items():
                with workload.copied_slot(conn, f"bench_{_plain(name)}_{run}") as slot:
                    deployment = Deployment(slot, dsn, servers.bootstrap, slot=slot, registry=registry, format=name)
                    section.add(name, drains.by_bridge(servers, conn, deployment, backlog))
                found = read_topic(servers.bootstrap, deployment.topic).counted
                if found != Counted(backlog.changes, backlog.deletes):
                    raise BenchmarkFailed(f"the topic in {name} holds {found}")
        return section


def _sink(servers: Servers, rows: int, runs: int, formats: dict[str, str | None]) -> Section:
    title = f"Formats, sink: {rows:,} keyed upserts into an empty replica table"
    section = Section(title, COLUMNS, ratio=("rate", "json"), notes=list(NOTES))
    with workload.source(servers, "bench_format_rows") as (dsn, conn):
        workload.insert_rows(conn, 1, rows)
        backlog = workload.count_backlog(conn)
        expected = checksum(conn, "orders")
        published = {}
        for name, registry in formats.items():
            with workload.copied_slot(conn, f"bench_rows_{_plain(name)}") as slot:
                published[name] = Deployment(slot, dsn, servers.bootstrap, slot=slot, registry=registry, format=name)
                with daemon("run", published[name], servers.directory) as bridge:
                    wait_until_published(published[name], bridge, backlog.end)
                    bridge.drain()
        for run in range(1, runs + 1):
            for name, deployment in published.items():
                database = f"bench_{_plain(name)}_replica_{run}"
                with servers.database(database) as replica_dsn:
                    mirror = deployment._replace(replica_dsn=replica_dsn)
                    section.add(name, sink.run_sink(servers, database, mirror, backlog))
                    with workload.connect(replica_dsn) as replica:
                        compare(replica, "orders", expected)
    return section


def _plain(name: str) -> str:
    """Returns the format's name as a part of a slot's or a database's name."""
    return name.replace("-", "_")
