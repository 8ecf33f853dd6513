"""Every type, every edge value: what the bridge published is known as the source's row, by another way of reading."""

from __future__ import annotations

from pathlib import Path

import pytest
from psycopg import sql
from pyspark.sql import SparkSession

from cdc.contract.jobspec.deployment import SparkSettings
from cdc.lab.stack import PostgresMajor
from tests.integration.bridge.test_type_matrix import prepare
from tests.support.deployment import Deploy
from tests.support.reconciling import job_for, reconciled
from tests.support.servers import Database
from tests.support.type_matrix import KEYS, matrix_tables


@pytest.mark.pg(16, matrix=False)
def test_every_value_is_identical(
    database: Database, replica: Database, deploy: Deploy, pg_major: PostgresMajor, tmp_path: Path,
    spark: SparkSession, spark_settings: SparkSettings,
) -> None:  # fmt: skip
    deployment = deploy(topics={"partitions": 1})
    with prepare(database) as connection:
        prepare(replica).close()
        tables = matrix_tables(connection)
        for table in tables:
            table.create(connection)
        deployment.start()
        for table in tables:
            table.insert(connection)
            table.update(connection)
        deployment.assert_equal(*[table.qualified for table in tables])
    report = reconciled(job_for(deployment, tmp_path / "report", spark_settings), spark)
    wrong = [each for each in report.tables if each.verdict != "identical" or each.rounds[0].keys]
    assert not wrong, "\n".join(
        f"{each.table}: {each.verdict} {each.reason} {each.rounds} {each.samples[:2]}" for each in wrong
    )
    assert {each.replica.identical for each in report.tables if each.replica} != {0}
    deployment.stop()


@pytest.mark.pg(16, matrix=False)
def test_every_type_as_key(
    database: Database, deploy: Deploy, tmp_path: Path, spark: SparkSession, spark_settings: SparkSettings
) -> None:
    deployment = deploy(topics={"partitions": 3})
    with prepare(database) as connection:
        for kind, values in KEYS.items():
            names = {"table": sql.Identifier(f"key of {kind}"), "key": sql.Identifier(f"k {kind}")}
            create = "CREATE TABLE {table} ({key} {kind}, also int, note text, PRIMARY KEY (also, {key}))"
            connection.execute(sql.SQL(create).format(**names, kind=sql.SQL(kind)))
            for also, value in enumerate(values):
                insert = sql.SQL("INSERT INTO {table} VALUES ({value}, {also}, 'x')")
                connection.execute(insert.format(**names, value=sql.Literal(value), also=sql.Literal(also)))
        deployment.start_bridge()
        deployment.wait_backfilled(*[f"public.key of {kind}" for kind in KEYS])
    report = reconciled(job_for(deployment, tmp_path / "report", spark_settings, replica=None), spark)
    wrong = [each for each in report.tables if each.verdict != "identical" or each.rounds[0].keys]
    assert not wrong, "\n".join(f"{each.table}: {each.verdict} {each.reason} {each.samples[:2]}" for each in wrong)
    deployment.stop()
