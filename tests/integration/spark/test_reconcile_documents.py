"""Blanks around a JSON document, which the replica does not hold: an exception that is told, and no damage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc.contract.jobspec.deployment import SparkSettings
from tests.support.deployment import Deploy
from tests.support.reconciling import job_for, reconciled
from tests.support.servers import Database

pytestmark = [pytest.mark.pg(16, matrix=False), pytest.mark.timeout(900)]


@pytest.mark.long
def test_blanks_around_a_document_are_no_difference_of_the_replica(
    database: Database, deploy: Deploy, tmp_path: Path, spark: SparkSession, spark_settings: SparkSettings
) -> None:
    """Each such row was different for ever, for the reason that somebody had changed the replica."""
    database.execute("CREATE TABLE doc (id int PRIMARY KEY, d json, t text)")
    database.execute(
        "INSERT INTO doc VALUES (1, ' {\"a\": 1} ', ' x '), (2, E'null\\n', NULL), (3, E'\\t[1,  2]', 'x'),"
        " (4, '{}', ' y'), (5, ' \" z \" ', NULL), (6, NULL, NULL), (7, ' {} ', NULL)"
    )
    deployment = deploy(topics={"partitions": 2})
    deployment.start()
    deployment.wait_backfilled()
    deployment.wait_mirrored()
    (table,) = reconciled(job_for(deployment, tmp_path / "equal", spark_settings), spark).tables
    assert (table.verdict, table.counts.identical) == ("identical", 7), table.samples
    deployment.replica.execute("UPDATE doc SET d = '{\"a\":1}' WHERE id = 1; UPDATE doc SET t = 'y' WHERE id = 4")
    deployment.replica.execute("UPDATE doc SET d = NULL WHERE id = 7; UPDATE doc SET d = '\"z\"' WHERE id = 5")
    (table,) = reconciled(job_for(deployment, tmp_path / "damaged", spark_settings), spark).tables
    assert {json.loads(each.key)["id"] for each in table.samples} == {1, 4, 5, 7}, table.samples
    deployment.stop()
