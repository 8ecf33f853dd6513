"""Jobs over topics whose values have schemas, in each format: they find what they find in JSON, and no less.

One deployment has tables of each format; the tests here are its life, and Spark runs for as few of them as possible.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from pyspark.sql import SparkSession

from cdc.contract.jobspec.deployment import SparkSettings
from cdc.contract.naming import subject
from cdc.contract.record import FormatName
from cdc.lab.proof.comparison import Rows, describe, difference, pinned, table_rows
from cdc.lab.stack import Kafka, Postgres, RegistryServer
from cdc.spark.mirror.main import mirror
from tests.integration.bridge.test_formats import be_compatible
from tests.integration.bridge.test_type_matrix import prepare
from tests.integration.spark import mirrors
from tests.integration.spark.snapshots import Snapshots
from tests.integration.spark.test_mirror_altered import rows_of
from tests.support.deployment import Deployment, deployed
from tests.support.reconciling import job_for, reconciled, table_of
from tests.support.servers import fresh_database
from tests.support.type_matrix import MatrixTable, matrix_tables
from tests.support.waiting import eventually

pytestmark = [pytest.mark.timeout(900), pytest.mark.pg(16, matrix=False)]

FORMATS: Final[Mapping[str, FormatName]] = {"avro": "avro", "protobuf": "protobuf", "described": "json-schema"}
"""By the ends of the tables' names."""
RETYPE: Final = (
    "ALTER TABLE public.retyped_{} ALTER id TYPE bigint, ALTER n TYPE text, ALTER d TYPE numeric(8,3),"
    " ALTER t TYPE bytea USING convert_to(t, 'UTF8'), ALTER at TYPE timestamptz USING at AT TIME ZONE 'UTC'"
)
"""Changes that a registry takes in the mode ``NONE`` only."""


def named(what: str) -> list[str]:
    """A table of each format."""
    return [f"public.{what}_{name}" for name in FORMATS]


@dataclass
class Formats:
    """The deployment, a connection to its source, and its tables of every type, by the ends of their names."""

    deployment: Deployment
    connection: psycopg.Connection[Any]
    matrix: Mapping[str, Sequence[MatrixTable]]

    @property
    def tables(self) -> list[str]:
        """All tables."""
        matrix = [table.qualified for each in self.matrix.values() for table in each]
        return [*named("retyped"), *named("thing"), *matrix]

    def execute(self, *statements: str) -> None:
        """Run statements on a table of each format."""
        for statement in statements:
            for name in FORMATS:
                self.connection.execute(statement.format(name).encode())


@pytest.fixture(scope="module")
def formats(
    postgres: Postgres,
    other_postgres: Postgres,
    kafka: Kafka,
    registry: RegistryServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Formats]:
    """Everything is published and in the replica; bridge and sink run."""
    with ExitStack() as stack:
        source, replica = (stack.enter_context(fresh_database(server)) for server in (postgres, other_postgres))
        connection = stack.enter_context(prepare(source))
        prepare(replica).close()
        matrix = {name: made_for(name, connection) for name in FORMATS}
        formats_ = {f"public.{what}_{each}": FORMATS[each] for what in ("thing", "retyped") for each in FORMATS}
        formats_ |= {table.qualified: FORMATS[name] for name, tables in matrix.items() for table in tables}
        sections: dict[str, dict[str, Any]] = {
            "topics": {"partitions": 2, "formats": formats_},
            "registry": {"url": registry.url},
        }
        folder = tmp_path_factory.mktemp("formats")
        deployment = stack.enter_context(deployed(source, kafka.bootstrap, replica, folder, sections))
        found = Formats(deployment, connection, matrix)
        for table in named("retyped"):
            be_compatible(registry, subject(deployment.topic(table)), "NONE")
        fill(found)
        change(found)
        deployment.assert_equal(*found.tables)
        for name in found.tables:
            values = [each.value for each in deployment.records(name) if each.value is not None]
            assert values, name
            assert all(value[:1] == b"\0" for value in values), name
        yield found
        deployment.stop()


def made_for(name: str, connection: psycopg.Connection[tuple[object, ...]]) -> list[MatrixTable]:
    """Tables that have every type. What old rows look like means nothing to Spark."""
    return [replace(each, name=f"{each.name} {name}") for each in matrix_tables(connection) if not each.full]


def fill(formats: Formats) -> None:
    """Begin, with rows that the backfill reads."""
    formats.execute(
        "CREATE TABLE retyped_{} (id int PRIMARY KEY, n int, d numeric(6,2), t text, at timestamp)",
        "INSERT INTO retyped_{} SELECT i, i, i + 0.25, 'é', '2026-01-02 03:04:05' FROM generate_series(1, 20) i",
        "CREATE TABLE thing_{} (id int PRIMARY KEY, name text)",
        "INSERT INTO thing_{} VALUES (1, 'one')",
    )
    formats.deployment.start()
    formats.deployment.wait_backfilled(*named("retyped"), *named("thing"))


def change(formats: Formats) -> None:
    """Give topics values of several schemas. From here on, a value may be beyond its type."""
    deployment = formats.deployment
    deployment.wait_mirrored()
    deployment.stop()
    deployment.settings["topics"]["beyond"] = "text"
    deployment.write()
    formats.execute(RETYPE, "UPDATE retyped_{} SET n = n || ' times'")
    for name in FORMATS:
        deployment.replica.execute(RETYPE.format(name))
    for table in formats.matrix.values():
        for each in table:
            each.create(formats.connection)
    # The sink only then: it stops a table whose columns somebody widened before it knows of the source's new type
    deployment.start_bridge()
    deployment.wait_published()
    deployment.sink.start()
    for table in formats.matrix.values():
        for each in table:
            each.insert(formats.connection)
            each.update(formats.connection)


def test_all_is_identical(formats: Formats, spark: SparkSession, spark_settings: SparkSettings, tmp_path: Path) -> None:
    """Every type, rows of several schemas, and the replica of everything."""
    report = reconciled(job_for(formats.deployment, tmp_path / "report", spark_settings, formats.tables), spark)
    wrong = [each for each in report.tables if each.verdict != "identical"]
    assert not wrong, "\n".join(f"{each.table}: {each.reason} {each.samples[:2]}" for each in wrong)
    replicas = [each.replica for each in report.tables]
    assert all(each is not None and each.identical and not each.differences for each in replicas), replicas
    # In Avro, arrays with bounds of their own or several dimensions, and the smallest float, are compared as whole rows
    for name, tables in formats.matrix.items():
        found = [table_of(report, table.qualified) for table in tables]
        looked_at = {each.table: each.rounds[0].keys for each in found if each.rounds[0].keys}
        assert sum(looked_at.values()) <= sum(each.counts.source_rows for each in found) / 3, looked_at
        assert name != "described" or not looked_at


def test_a_snapshot_has_rows_of_several_schemas(formats: Formats, spark: SparkSession, tmp_path: Path) -> None:
    manifest, frames = Snapshots(spark, formats.deployment, tmp_path / "snapshots").take(*named("retyped"))
    assert [each.rows for each in manifest.tables] == [20] * 3
    for table in named("retyped"):
        rows = formats.connection.execute(f"SELECT id, n, d, t, at FROM {table} ORDER BY id".encode()).fetchall()
        # pyspark returns timestamps in the machine's time zone, without naming it
        found = frames[table].select("id", "n", "d", "t", "at").sort("id").collect()
        assert [(*row[:3], bytes(row[3]), row[4].astimezone(UTC)) for row in found] == rows


@pytest.mark.long
def test_a_mirror_has_every_type_and_meets_a_new_schema(formats: Formats, spark: SparkSession, tmp_path: Path) -> None:
    deployment = formats.deployment
    job = mirrors.job_for(deployment, tmp_path / "lake", once=False, interval_s=1, compact_every=100)
    topics, stop = [deployment.topic(table) for table in named("thing")], threading.Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(mirror, spark, job, stop)

        def are(*expected: Mapping[str, object]) -> bool:
            return running.done() or [newest(rows_of(job, topic)) for topic in topics] == [list(expected)] * 3

        try:
            eventually(lambda: are({"id": 1, "name": "one"}), timeout_s=240)
            formats.execute(
                "ALTER TABLE thing_{} ADD COLUMN price numeric(6,2)",
                "INSERT INTO thing_{} VALUES (2, 'two', 2.20)",
                "UPDATE thing_{} SET name = 'first' WHERE id = 1",
            )
            expected = {"id": 1, "name": "first", "price": None}, {"id": 2, "name": "two", "price": "2.20"}
            eventually(lambda: are(*expected), timeout_s=240)
        finally:
            stop.set()
        running.result(timeout=60)
    assert are(*expected)
    with pinned(deployment.source.dsn) as source:
        for name in formats.tables:
            if name in named("thing"):
                continue
            shape = describe(source, name)
            rows = mirrors.typed(table_rows(source, shape), shape, job)
            copy = mirrors.lake_rows(job, deployment.topic(name), shape)
            found = difference("lake", as_java_spells(rows), as_java_spells(copy), shape)
            assert found is None, f"{name}: {found}"


def newest(rows: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
    """The last of the rows with each id: changes come after the state."""
    return list({row["id"]: row for row in rows}.values())


def as_java_spells(rows: Rows) -> Rows:
    """Rows with the smallest numbers as Java spells them."""
    spelled = {b"5e-324": b"4.9e-324", b"1e-45": b"1.4e-45"}

    def respelled(cell: bytes | None) -> bytes | None:
        for ours, of_java in spelled.items():
            cell = None if cell is None else cell.replace(ours, of_java)
        return cell

    return {key: tuple(map(respelled, row)) for key, row in rows.items()}
