"""``cdc reconcile`` with a replica in a file: every type is identical, and damage to each of them is found."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import duckdb
import pytest
from psycopg import sql
from pyspark.sql import SparkSession

from cdc.contract.jobspec.deployment import SparkSettings
from cdc.lab.stack import Kafka
from cdc.spark.errors import JobError
from cdc.spark.report.document import from_json
from cdc.spark.report.model import Report
from tests.integration.bridge.test_type_matrix import prepare
from tests.support.file_replicas import DuckdbReplica, FileDeployment, FileReplica, SqliteReplica, deployed_to_file
from tests.support.reconciling import job_for, reconciled, run_command, table_of
from tests.support.servers import Database
from tests.support.type_matrix import KEYS, MatrixTable, matrix_tables

pytestmark = [pytest.mark.pg(16, matrix=False), pytest.mark.timeout(900)]

FILES: Final[Mapping[str, Callable[[Path], FileReplica]]] = {"sqlite": SqliteReplica, "duckdb": DuckdbReplica}
CHANGED: Final = {
    "sqlite": (
        "CASE typeof({0}) WHEN 'integer' THEN CASE WHEN {0} = 0 THEN 1 ELSE 0 END"
        " WHEN 'real' THEN CASE WHEN {0} = 0 THEN 1.5 ELSE 0.0 END"
        " WHEN 'blob' THEN zeroblob(length({0}) + 1) ELSE {0} || 'x' END"
    ),
    "VARCHAR": "{0} || 'x'",
    "BOOLEAN": "NOT {0}",
    "BLOB": "{0} || '\\x00'::BLOB",
    "DATE": "CASE WHEN {0} = '2000-01-01' THEN '2000-01-02'::DATE ELSE '2000-01-01'::DATE END",
    "TIMESTAMP": "CASE WHEN {0} = '2000-01-01' THEN '2000-01-02'::TIMESTAMP ELSE '2000-01-01'::TIMESTAMP END",
    "TIMESTAMP WITH TIME ZONE": "CASE WHEN {0} = '2000-01-01' THEN '2000-01-02' ELSE '2000-01-01' END::TIMESTAMPTZ",
}
"""By DuckDB's type, or for all of SQLite's: an expression of another value than a column has."""
NUMBER: Final = "CASE WHEN {0} = 0 THEN 1 ELSE 0 END"

AS_KEY: Final = (
    "text",
    "uuid",
    "timestamptz",
    "numeric",
    "bytea",
    "double precision",
    "bigint",
    "boolean",
    "jsonb",
    "text[]",
)


@pytest.fixture(params=FILES)
def file(request: pytest.FixtureRequest, tmp_path: Path) -> FileReplica:
    return FILES[request.param](tmp_path / "shop.db")


@pytest.fixture
def deploy_to_file(
    database: Database, kafka: Kafka, file: FileReplica, tmp_path: Path
) -> Iterator[Callable[..., FileDeployment]]:
    with ExitStack() as stack:

        def make(**sections: Mapping[str, Any]) -> FileDeployment:
            return stack.enter_context(deployed_to_file(database, kafka.bootstrap, file, tmp_path, sections))

        yield make


@pytest.fixture
def shop(database: Database, deploy_to_file: Callable[..., FileDeployment]) -> FileDeployment:
    """Two tables, one of them under another name, whose bridge has published all of them."""
    database.execute(
        "CREATE SCHEMA sales; CREATE TABLE orders (id int PRIMARY KEY, note text);"
        "CREATE TABLE sales.lines (id int PRIMARY KEY, size real);"
        "INSERT INTO orders SELECT i, 'x' FROM generate_series(1, 500) i;"
        "INSERT INTO sales.lines SELECT i, i / 7.0 FROM generate_series(1, 500) i"
    )
    deployment = deploy_to_file(
        source={"tables": ["public.*", "sales.*"]}, topics={"min_compaction_lag_ms": 900_000},
        sink={"tables": {"public.orders": "main.customer orders"}},
    )  # fmt: skip
    deployment.start_bridge()
    deployment.wait_backfilled("public.orders", "sales.lines")
    return deployment


def ask(file: FileReplica, *statements: str) -> list[tuple[Any, ...]]:
    """Run SQL as a person would, and return the rows of the last statement."""
    path = file.url.partition(":///")[2]
    found = []
    if file.is_exclusive:
        with duckdb.connect(path) as connection:
            for each in statements:
                found = connection.execute(each).fetchall()
        return found
    with closing(sqlite3.connect(path, isolation_level=None)) as session:
        for each in statements:
            found = session.execute(each).fetchall()
    return found


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def damage(file: FileReplica, table: MatrixTable) -> None:
    """Change one value of each column, in some row that has one."""
    name = f"{'public' if file.is_exclusive else 'main'}.{quoted(table.name)}"
    types = dict(ask(file, f"SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = '{table.name}'")
                 if file.is_exclusive else [])  # fmt: skip
    for column in table.columns:
        changed = CHANGED["sqlite"] if not file.is_exclusive else CHANGED.get(types[column], NUMBER)
        value = changed.format(quoted(column))
        row = f"(SELECT max(id) FROM {name} WHERE {quoted(column)} IS NOT NULL)"
        ask(file, f"UPDATE {name} SET {quoted(column)} = {value} WHERE id = {row}")


def fill(database: Database, deployment: FileDeployment) -> list[MatrixTable]:
    """Start bridge and sink with all types as columns, in the tables that are returned, and as keys."""
    with prepare(database) as connection:
        tables = [
            replace(each, columns={
                name: [value for value in values if not re.search(deployment.file.beyond, value)]
                for name, values in each.columns.items()
            }) for each in matrix_tables(connection) if each.name in ("scalars default", "arrays default")
        ]  # fmt: skip
        for table in tables:
            table.create(connection)
        for kind in AS_KEY:
            names = {"table": sql.Identifier(f"key of {kind}"), "key": sql.Identifier(f"k {kind}")}
            create = "CREATE TABLE {table} ({key} {kind}, also int, note text, PRIMARY KEY (also, {key}))"
            connection.execute(sql.SQL(create).format(**names, kind=sql.SQL(kind)))
            for also, value in enumerate(KEYS[kind]):
                insert = sql.SQL("INSERT INTO {table} VALUES ({value}, {also}, 'x')")
                connection.execute(insert.format(**names, value=sql.Literal(value), also=sql.Literal(also)))
        deployment.start()
        for table in tables:
            table.insert(connection)
            table.update(connection)
    return tables


def verdicts(report: Report) -> dict[str, str]:
    return {each.table.removeprefix("public."): f"{each.verdict} {each.reason}".strip() for each in report.tables}


@pytest.mark.parametrize("file", [pytest.param("sqlite", marks=pytest.mark.long), "duckdb"], indirect=True)
def test_every_value_is_identical_and_a_changed_one_of_each_type_is_found(
    database: Database, deploy_to_file: Callable[..., FileDeployment], tmp_path: Path,
    spark: SparkSession, spark_settings: SparkSettings, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    deployment = deploy_to_file(topics={"partitions": 1, "min_compaction_lag_ms": 900_000})
    file, tables = deployment.file, fill(database, deployment)
    deployment.wait_backfilled()
    deployment.wait_mirrored()
    if file.is_exclusive:
        deployment.sink.stop()
    capfd.readouterr()
    report = reconciled(job_for(deployment, tmp_path / "equal", spark_settings), spark)
    said = capfd.readouterr().err
    assert set(verdicts(report).values()) == {"identical"}, (verdicts(report), report.tables[0].samples[:1])
    # Hashes alone must tell: a form of ours that is unlike the topic's would send each row to the second look
    assert "again" not in said
    compared = f"{len(report.tables)} of {len(report.tables)} are identical"
    assert said.count(compared) == 2, said
    assert {each.replica.identical == each.counts.source_rows for each in report.tables if each.replica} == {True}

    if not file.is_exclusive:
        deployment.sink.stop()
    for table in tables:
        damage(file, table)
    schema = "public" if file.is_exclusive else "main"
    ask(
        file,
        f'DELETE FROM {schema}."key of uuid" WHERE also = 0',
        f"INSERT INTO {schema}.\"key of text\" VALUES ('more', 7, NULL)",
        f'UPDATE {schema}."key of bigint" SET note = NULL WHERE also = 1',
    )
    report = reconciled(job_for(deployment, tmp_path / "damaged", spark_settings, samples=1000, rounds=0), spark)
    for table in tables:
        found = table_of(report, table.qualified)
        differing = {name for each in found.samples if each.side == "replica" for name in each.differing}
        assert differing == set(table.columns), (set(table.columns) - differing, found.reason)
        assert found.counts.differences == 0
    wrong = {name: verdict for name, verdict in verdicts(report).items() if verdict != "identical"}
    assert set(wrong) == {*(each.name for each in tables), "key of uuid", "key of text", "key of bigint"}
    by_name = {each.table: each.replica for each in report.tables if each.replica is not None}
    assert by_name["public.key of uuid"].missing_in_replica == 1
    assert by_name["public.key of text"].extra_in_replica == 1
    assert by_name["public.key of bigint"].value_mismatch == 1
    assert report.exit_code == 1
    deployment.stop()


@pytest.mark.parametrize("file", ["sqlite"], indirect=True)
def test_a_file_is_compared_beside_its_sink_and_a_table_that_is_not_exact_is_left_alone(
    shop: FileDeployment, tmp_path: Path, spark: SparkSession, spark_settings: SparkSettings
) -> None:
    def compared(run: str, **options: Any) -> Report:
        return reconciled(job_for(shop, tmp_path / run, spark_settings, **options), spark)

    shop.sink.start()
    shop.wait_mirrored()
    report = compared("beside the sink")
    assert report.exit_code == 0, verdicts(report)
    assert [each.replica.table for each in report.tables if each.replica] == [
        "main.customer orders",
        "main.sales_lines",
    ]
    shop.sink.stop()
    with pytest.raises(JobError, match="does not understand; compare source and topic alone, --no-replica"):
        compared("where", tables=["public.orders"], where="id > 5")
    ask(shop.file, "UPDATE \"customer orders\" SET note = 'y' WHERE id = 7")
    chosen = {"tables": ["public.orders"], "columns": {"public.orders": ("id",)}}
    report = compared("some columns", **chosen)
    assert (report.exit_code, report.tables[0].columns_compared) == (0, ("id",)), verdicts(report)
    ask(shop.file, "UPDATE cdc_mirrored_table SET state = 'stopped', reason = 'by hand' WHERE topic LIKE '%lines'")
    ask(shop.file, 'ALTER TABLE "customer orders" DROP COLUMN note')
    report = compared("not there")
    assert "replica: the replica's table is stopped: by hand" in table_of(report, "sales.lines").reason
    assert "no such column: t.note" in table_of(report, "public.orders").reason
    assert report.exit_code == 2
    shop.stop()


@pytest.mark.parametrize("file", ["duckdb"], indirect=True)
def test_a_file_that_is_not_there_or_open_elsewhere_is_not_verified(
    shop: FileDeployment, tmp_path: Path, spark: SparkSession, spark_settings: SparkSettings
) -> None:
    chosen = ["public.orders"]
    (table,) = reconciled(job_for(shop, tmp_path / "none", spark_settings, chosen), spark).tables
    assert (table.verdict, table.counts.identical) == ("not_verified", 500)
    assert "does not exist yet; start the sink" in table.reason
    shop.sink.start()
    shop.wait_mirrored()
    report = reconciled(job_for(shop, tmp_path / "held", spark_settings, chosen), spark)
    (table,) = report.tables
    assert (report.exit_code, table.verdict, table.counts.identical) == (2, "not_verified", 500)
    assert "another process has" in table.reason
    assert "stop the sink" in table.remedy
    shop.sink.stop()
    ask(shop.file, "UPDATE main.\"customer orders\" SET note = 'y' WHERE id = 7")
    job = job_for(shop, tmp_path / "held", spark_settings, chosen, resume=True, rounds=0)
    (table,) = reconciled(job, spark).tables
    assert table.replica is not None, table.reason
    assert (table.verdict, table.replica.identical, table.replica.value_mismatch) == ("different", 499, 1)
    job = job_for(shop, tmp_path / "behind", spark_settings, chosen, replica_lsn="FFFFFFFF/0")
    (table,) = reconciled(job, spark).tables
    assert "start the sink, wait until cdc status calls the table exact, stop the sink" in table.remedy
    shop.stop()


@pytest.mark.long
def test_a_repair_reaches_the_file(
    database: Database, kafka: Kafka, tmp_path: Path, spark: SparkSession  # the command shares its JVM
) -> None:  # fmt: skip
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, note text)")
    database.execute("INSERT INTO orders SELECT i, 'x' FROM generate_series(1, 500) i")
    file = SqliteReplica(tmp_path / "shop.db")
    with deployed_to_file(database, kafka.bootstrap, file, tmp_path) as deployment:
        deployment.start()
        deployment.wait_backfilled("public.orders")
        deployment.wait_mirrored()
        ask(file, "DELETE FROM orders WHERE id = 7", "UPDATE orders SET note = 'y' WHERE id = 8")
        code, said = run_command(deployment, tmp_path / "report", "--repair", "--yes")
        found = from_json((tmp_path / "report" / "report.json").read_text(encoding="utf-8")).tables[0].replica
        assert found is not None
        assert (found.missing_in_replica, found.value_mismatch) == (1, 1), said
        healed = from_json((tmp_path / "report" / "after-repair" / "report.json").read_text(encoding="utf-8"))
        assert (code, healed.verdict) == (0, "identical"), said
        deployment.assert_equal("public.orders")
        deployment.stop()
