"""``--where`` and a replica: whether a row is to be compared must not hang on the damage that is to be found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc.contract.jobspec.deployment import SparkSettings
from tests.support.deployment import Deploy
from tests.support.reconciling import job_for, reconciled
from tests.support.servers import Database
from tests.support.topic_damage import Damage

pytestmark = [pytest.mark.pg(16, matrix=False), pytest.mark.timeout(900)]


@pytest.mark.long
def test_a_row_of_the_replica_that_left_the_condition_is_found(
    database: Database, deploy: Deploy, tmp_path: Path, spark: SparkSession, spark_settings: SparkSettings
) -> None:
    """The replica's own row was asked whether it counts: one whose very column was wrong did not, and all was well."""
    database.execute("CREATE TABLE client (id int PRIMARY KEY, name text, city text, born date)")
    database.execute(
        "INSERT INTO client SELECT n, 'name', CASE WHEN n IN (21, 22) THEN 'there' ELSE 'here' END, '0044-03-15 BC'"
        " FROM generate_series(1, 50) n"
    )
    deployment = deploy(topics={"partitions": 2})
    deployment.start()
    deployment.wait_backfilled()
    deployment.wait_mirrored()
    deployment.sink.stop()
    (record,) = (each for each in deployment.records("public.client") if each.key == b'{"id":24}')
    assert record.value is not None
    damage = Damage(deployment)  # no date: the condition cannot be asked of that row
    damage.write("public.client", record.key or b"", record.value.replace(b"0044-03-15 BC", b"?"), -1, record.header)
    damage.done()
    deployment.replica.execute("UPDATE client SET city = 'there' WHERE id = 20")
    deployment.replica.execute("UPDATE client SET name = 'of no interest' WHERE id = 21")
    deployment.replica.execute("UPDATE client SET city = 'here' WHERE id = 22")
    where = "client.city LIKE 'he%' AND NOT '{}'::jsonb ? 'x' -- where else?"
    (table,) = reconciled(job_for(deployment, tmp_path / "run", spark_settings, where=where), spark).tables
    assert (table.counts.source_rows, table.counts.value_mismatch, table.reason) == (48, 1, ""), table
    assert table.verdict == "different"
    assert table.replica is not None
    found = table.replica
    of_replica = {json.loads(each.key)["id"] for each in table.samples if each.side == "replica"}
    assert of_replica == {20, 22, 24}, table.samples
    assert (found.rows, found.identical, found.value_mismatch, found.differences) == (49, 46, 3, 3), found
    deployment.stop()
