"""Section formats: the same changes and rows in each format, form and envelope, through bridge, sink and Debezium."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import psycopg

from cdc.lab.stack import RegistryServer
from tests.benchmarks import drains, sink, workload
from tests.benchmarks.debezium import source as debezium
from tests.benchmarks.deployment import Deployment, daemon, wait_until_published
from tests.benchmarks.measure import Meter
from tests.benchmarks.processes import BenchmarkFailed
from tests.benchmarks.replica import checksum, compare
from tests.benchmarks.report import Column, Figures, Section
from tests.benchmarks.servers import Servers
from tests.benchmarks.topics import Counted, read_topic
from tests.benchmarks.workload import Backlog

COLUMNS = (
    Column("wall_s", "wall s", 2),
    Column("rate", "rows/s", 0),
    Column("cpu_s", "client CPU s/M", 2),
    Column("rss_mb", "peak RSS MB", 0),
)
NOTES = (
    "as in the sections bridge and sink; the formats take turns. Schemas are in an embedded Apicurio Registry, which "
    "is asked once for each table",
    "Debezium, tuned, writes what stands in its name with the same converter: JSON without schemas, and Avro by "
    "Apicurio's converter",
    "forms: JSON with timestamps in ISO 8601, numbers, base64, and documents as strings; connect: the same with "
    "Connect's schemas, and without numbers; events: JSON with the headers of CloudEvents",
)
_FORMS: Final = {"timestamps": "iso", "bytea": "base64", "documents": "string"}
_PEERS: Final[Mapping[str, debezium.Form]] = {
    "Debezium, json": "rows",
    "Debezium, envelope": "change events",
    "Debezium, avro": "rows in Avro",
}


def measure(servers: Servers, changes: int, runs: int, *, with_peers: bool) -> Iterator[Section]:
    """Yield how bridge and sink do with each format, as a ratio of JSON."""
    with RegistryServer.open() as registry:
        others = {each: {"registry": registry.url, "format": each} for each in ("json-schema", "avro", "protobuf")}
        forms: dict[str, dict[str, Any]] = {
            "json": {},
            **others,
            "envelope": {"envelope": True},
            "avro envelope": {"envelope": True, **others["avro"]},
            "forms": {"values": {**_FORMS, "numeric": "number"}},
            "connect": {"values": {**_FORMS, "schemas": "connect"}},
            "events": {"events": True},
        }
        yield _bridge(servers, changes, runs, forms, registry.url if with_peers else None)
        yield _sink(servers, changes // 2, runs, forms)


def _bridge(
    servers: Servers, changes: int, runs: int, forms: Mapping[str, Mapping[str, Any]], peers_registry: str | None
) -> Section:
    with workload.source(servers, "bench_formats") as (dsn, conn):
        workload.build_mixed(conn, changes)
        backlog = workload.count_backlog(conn)
        title = f"Formats, bridge: {changes:,} row changes from a slot"
        section = Section(title, COLUMNS, ratio=("rate", "json"), notes=list(NOTES))
        for run in range(1, runs + 1):
            for name, options in forms.items():
                with workload.copied_slot(conn, f"bench_{_plain(name)}_{run}") as slot:
                    deployment = Deployment(slot, dsn, servers.bootstrap, slot=slot, **options)
                    section.add(name, drains.by_bridge(servers, conn, deployment, backlog))
                _check(deployment, name, backlog)
            for name, form in _PEERS.items() if peers_registry else ():
                with workload.copied_slot(conn, f"bench_{_plain(name)}_{run}") as slot:
                    peer = Deployment(slot, dsn, servers.bootstrap, slot=slot, registry=peers_registry)
                    section.add(name, _by_debezium(servers, conn, peer, form, backlog))
                _check(peer, name, backlog)
        return section


def _by_debezium(
    servers: Servers, conn: psycopg.Connection, deployment: Deployment, form: debezium.Form, backlog: Backlog
) -> Figures:
    with Meter() as meter, debezium.connector(deployment, "tuned", servers.directory, form=form) as peer:
        walsender, start = drains.streaming(conn, deployment.slot, peer, meter)
        debezium.wait_until_written(deployment, peer, _records(form == "change events", backlog))
        return drains.figures(time.perf_counter() - start, meter, peer.pid, walsender, backlog.changes)


def _check(deployment: Deployment, name: str, backlog: Backlog) -> None:
    found = read_topic(deployment.bootstrap, deployment.topic).counted
    if found != Counted(_records(name.endswith("envelope"), backlog), backlog.deletes):
        raise BenchmarkFailed(f"the topic of {name} holds {found}")


def _records(has_envelope: bool, backlog: Backlog) -> int:
    return backlog.changes + (backlog.deletes if has_envelope else 0)


def _sink(servers: Servers, rows: int, runs: int, forms: Mapping[str, Mapping[str, Any]]) -> Section:
    title = f"Formats, sink: {rows:,} keyed upserts into an empty replica table"
    section = Section(title, COLUMNS, ratio=("rate", "json"), notes=list(NOTES[:1]))
    with workload.source(servers, "bench_format_rows") as (dsn, conn):
        workload.insert_rows(conn, 1, rows)
        backlog = workload.count_backlog(conn)
        expected = checksum(conn, "orders")
        published = {}
        for name, options in forms.items():
            with workload.copied_slot(conn, f"bench_rows_{_plain(name)}") as slot:
                published[name] = Deployment(slot, dsn, servers.bootstrap, slot=slot, **options)
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
    """Returns a contender's name as a part of a slot's or a database's name."""
    return name.replace("-", "_").replace(", ", "_").replace(" ", "_").lower()
