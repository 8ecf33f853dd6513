"""Jobs over topics whose values have JSON Schemas: they find what they find in JSON."""

from __future__ import annotations

import json
from datetime import UTC
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from cdc.contract.formats.registered import head
from cdc.lab.stack import RegistryServer
from cdc.spark.errors import JobError, TopicUnreadable
from cdc.spark.report.document import from_json
from tests.integration.bridge.test_formats import in_format
from tests.integration.spark import mirrors
from tests.integration.spark.snapshots import Snapshots
from tests.support.deployment import Deploy
from tests.support.reconciling import run_command, table_of
from tests.support.servers import Database
from tests.support.topic_damage import Damage

TABLE: Final = "public.account"


@pytest.mark.timeout(900)
@pytest.mark.pg(16, matrix=False)
def test_damage_is_found_refused_and_healed(
    database: Database, deploy: Deploy, registry: RegistryServer, tmp_path: Path, spark: SparkSession
) -> None:
    database.execute("CREATE TABLE account (id int PRIMARY KEY, note text, tags text[], rate float8, at timestamptz)")
    database.execute(
        "INSERT INTO account SELECT n, 'é\"' || n, CASE n % 3 WHEN 0 THEN '[2:2]={x}' ELSE '{{a,NULL}}' END::text[],"
        " CASE n % 2 WHEN 0 THEN 'NaN' ELSE 0.1 END, '2026-11-27 12:00Z' FROM generate_series(1, 60) n"
    )
    deployment = in_format("json-schema", deploy, registry, topics={"partitions": 2})
    deployment.start_bridge()
    deployment.wait_backfilled(TABLE)
    database.execute("ALTER TABLE account ADD COLUMN more jsonb")
    database.execute("UPDATE account SET more = CASE id % 2 WHEN 0 THEN 'null' ELSE '{\"a\": [1]}' END::jsonb")
    deployment.wait_published()
    records = {each.key: each for each in deployment.records(TABLE)}
    damage = Damage(deployment)

    def write(number: int, value: bytes | None) -> None:
        key = b'{"id":%d}' % number
        damage.write(TABLE, key, value, header=records.get(key, records[b'{"id":1}']).header)

    def value(number: int) -> bytes:
        return records[b'{"id":%d}' % number].value or b""

    write(17, value(17).replace(b"2026", b"2025"))
    write(19, value(19)[:-2])
    write(20, head(999_999) + value(20)[5:])
    write(21, value(21)[:5])
    write(22, None)
    write(900, value(23).replace(b'"id":23', b'"id":900'))
    write(24, value(24)[5:])  # the same row in JSON
    damage.done()
    snapshots = Snapshots(spark, deployment, tmp_path / "snapshots")
    with pytest.raises(TopicUnreadable, match=r"\((JSON|Avro) "):
        snapshots.take(TABLE)
    with pytest.raises(JobError, match=r"topic .*account, partition .* key .*\((JSON|Avro) "):
        mirrors.run(spark, mirrors.job_for(deployment, tmp_path / "lake"))

    _, said = run_command(deployment, tmp_path / "report", "--repair", "--yes")
    found = from_json((tmp_path / "report" / "report.json").read_text(encoding="utf-8"))
    table = table_of(found, TABLE)
    assert (table.counts.missing_in_topic, table.counts.extra_in_topic, table.counts.value_mismatch) == (1, 1, 4), said
    told = {json.loads(each.key)["id"]: f"{each.cause} {each.other}" for each in table.samples}
    assert set(told) == {17, 19, 20, 21, 22, 900}
    assert all("(JSON that is cut or damaged)" in told[number] for number in (19, 21))
    healed = from_json((tmp_path / "report" / "after-repair" / "report.json").read_text(encoding="utf-8"))
    repair = table_of(healed, TABLE).repair
    assert repair is not None
    assert repair.still_different == 0, said
    lake = mirrors.job_for(deployment, tmp_path / "lake", [TABLE])
    mirrors.run(spark, lake)
    mirrors.assert_equal(deployment, lake, [TABLE])
    snapshots.take(TABLE)
    with database.connect() as connection:
        rows = connection.execute("SELECT id, note, at FROM account ORDER BY id").fetchall()
    copy = [(row[0], row[1], row[4].astimezone(UTC)) for row in snapshots.rows(TABLE)]
    assert copy == rows
    deployment.stop()
