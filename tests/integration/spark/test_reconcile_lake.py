"""``cdc reconcile --lake``: a lake equals its topics at its own cut, and damage to it is found and named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from cdc.contract.jobspec.deployment import LakeSettings, SparkSettings
from cdc.contract.jobspec.reconcile import ReconcileJob
from cdc.ops.jobs.describe import JobDeployment, beside_lake
from cdc.spark.errors import JobError, SourceUnreadable
from cdc.spark.mirror.iceberg import IcebergLake
from cdc.spark.mirror.main import mirror as mirror_on
from cdc.spark.replicas.lake import LakeSide
from cdc.spark.report.document import from_json
from cdc.spark.report.model import Report, TableReport
from tests.integration.spark.lake_tables import iceberg_table
from tests.integration.spark.mirrors import job_for as mirror_job
from tests.integration.spark.mirrors import run as mirror
from tests.integration.spark.typed_values import make_matrix
from tests.support.deployment import Deploy, Deployment
from tests.support.reconciling import job_for, reconciled, run_command, table_of
from tests.support.servers import Database
from tests.support.type_matrix import PINNED

pytestmark = [pytest.mark.pg(16, matrix=False), pytest.mark.timeout(900)]

SCHEMA: Final = """
CREATE TABLE client (
  id int PRIMARY KEY, name text, amount numeric(12,2), free numeric, seen timestamptz, born date, doc jsonb,
  tags text[], ratio real);
CREATE TABLE "Größe" (a int, "b, c" text, v bool, PRIMARY KEY (a, "b, c"));
CREATE TABLE person (id int PRIMARY KEY, email text, phone text, secret text)
"""
ROWS: Final = """
INSERT INTO client SELECT n, n::text, n * 1.1, n / 7.0,
  CASE n % 3 WHEN 0 THEN 'infinity' ELSE '2020-02-02 20:20:20+02' END::timestamptz,
  '1969-12-31', '{"a": [1.50, null]}', ARRAY['a,b', NULL, n::text], n / 3.0 FROM generate_series(1, 30) n;
INSERT INTO "Größe" SELECT n, n::text, n % 2 = 0 FROM generate_series(1, 30) n;
INSERT INTO person SELECT n, 'p' || n || '@example.org', '+49 170 12345' || n, 'secret' FROM generate_series(1, 30) n
"""
TABLES: Final = ("public.client", "public.Größe", "public.person")
HIDDEN: Final = {"public.person": {"exclude": ["secret"], "mask": {"email": "sha256", "phone": "last4"}}}


@pytest.fixture
def shop(database: Database, deploy: Deploy) -> Deployment:
    """Three tables, one of them with columns that do not leave, whose bridge has published all of them."""
    database.execute(SCHEMA)
    database.execute(ROWS)
    deployment = deploy(
        source={"columns": HIDDEN, "salt": "a salt that is long enough for this test"}, topics={"partitions": 2}
    )
    deployment.start_bridge()
    deployment.wait_backfilled(*TABLES)
    return deployment


def mirrored(spark: SparkSession, deployment: Deployment, lake: Path, *tables: str, form: str = "delta") -> None:
    """Copies everything that is published now, and writes a cut."""
    deployment.wait_published()
    mirror(spark, mirror_job(deployment, lake, tables).model_copy(update={"format": form}))


@contextmanager
def following(spark: SparkSession, deployment: Deployment, lake: Path) -> Iterator[None]:
    """A mirror goes on until the end of the block."""
    job, stop = mirror_job(deployment, lake, once=False, interval_s=0).model_copy(update={"format": "delta"}), Event()
    thread = Thread(target=lambda: mirror_on(spark, job, stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def lake_job(
    deployment: Deployment, lake: Path, folder: Path, settings: SparkSettings, form: str = "delta", **options: Any
) -> ReconcileJob:
    """The job that the command would start with ``--lake``."""
    job = job_for(deployment, folder, settings, replica=None, **options)
    compared = JobDeployment(job.source, None, job.kafka, job.stream, job.tables)
    compared = beside_lake(compared, LakeSettings.model_validate({"system": form, "path": str(lake)}))
    return job.model_copy(update={"replica": compared.replica, "tables": compared.tables})


def verdicts(report: Report) -> dict[str, str]:
    return {each.table.removeprefix("public."): f"{each.verdict} {each.reason}".strip() for each in report.tables}


DAMAGES: Final = (
    "UPDATE {0} SET name = 'other' WHERE id = 1",
    "DELETE FROM {0} WHERE id = 2",
    "INSERT INTO {0} (cdc_key, id) VALUES ('{{\"id\":900}}', 900)",
    "INSERT INTO {0} SELECT * FROM {0} WHERE id = 4",
    "UPDATE {0} SET cdc_key = '{{\"id\":905}}' WHERE id = 5",
    "UPDATE {0} SET id = 907 WHERE id = 7",
    "UPDATE {0} SET _beyond = map('seen', '-infinity') WHERE id = 6",
    "UPDATE {0} SET amount = NULL WHERE id = 8",
    "UPDATE {0} SET seen = timestamp '2020-01-01' WHERE id = 9",
    "UPDATE {0} SET tags = array('a,b', NULL) WHERE id = 10",
    "UPDATE {0} SET cdc_key = NULL WHERE id = 11",
)
FOUND: Final = {
    '{"id":1}': ("value_mismatch", ("name",)),
    '{"id":2}': ("missing_in_replica", ()),
    '{"id":900}': ("extra_in_replica", ()),
    '{"id":4}': ("value_mismatch", ()),
    '{"id":5}': ("missing_in_replica", ()),
    '{"id":905}': ("extra_in_replica", ()),
    '{"id":7}': ("value_mismatch", ("id",)),
    '{"id":6}': ("value_mismatch", ("seen",)),
    '{"id":8}': ("value_mismatch", ("amount",)),
    '{"id":9}': ("value_mismatch", ("seen",)),
    '{"id":10}': ("value_mismatch", ("tags",)),
    '{"id":11}': ("missing_in_replica", ()),
    "": ("extra_in_replica", ()),
}
"""By key, how the rows that ``DAMAGES`` changed are called, and which of their columns differ."""


def test_a_lake_is_identical_at_its_own_cut_and_each_damage_is_found(
    spark: SparkSession, spark_settings: SparkSettings, shop: Deployment, tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    lake = tmp_path / "lake"
    mirrored(spark, shop, lake)
    capfd.readouterr()
    report = reconciled(lake_job(shop, lake, tmp_path / "equal", spark_settings), spark)
    said = capfd.readouterr().err
    assert set(verdicts(report).values()) == {"identical"}, (verdicts(report), said)
    assert said.count("3 of 3 are identical") == 2, said  # by hashes alone
    for table in report.tables:
        found = table.replica
        assert found is not None
        assert (found.kind, found.table) == ("lake", str(lake / table.topic))
        assert (found.rows, found.identical) == (30, 30)
        assert found.version

    shop.source.execute(
        "UPDATE client SET name = 'later'; DELETE FROM client WHERE id = 30; INSERT INTO client (id) VALUES (31);"
        'TRUNCATE "Größe"'
    )
    shop.wait_published()
    report = reconciled(lake_job(shop, lake, tmp_path / "moved on", spark_settings), spark)
    assert set(verdicts(report).values()) == {"identical"}, verdicts(report)
    assert [each.counts.source_rows for each in report.tables] == [0, 30, 30]
    assert [each.replica.identical for each in report.tables if each.replica] == [30, 30, 30]

    mirrored(spark, shop, lake)
    client = f"delta.`{lake / shop.topic('public.client')}`"
    for damage in DAMAGES:
        spark.sql(damage.format(client)).collect()
    mirrored(spark, shop, lake)
    # As a user runs it: with a session of its own, which has to know Delta
    code, said = run_command(shop, tmp_path / "damaged", "--lake", f"delta:{lake}", "--samples", "100", own_jvm=True)
    report = from_json((tmp_path / "damaged" / "report.json").read_text(encoding="utf-8"))
    assert (code, report.exit_code) == (1, 1), said
    assert f"DIFFERENT public.client -> lake {lake / shop.topic('public.client')}: 13 of " in " ".join(said.split())
    assert verdicts(report) == {"Größe": "identical", "client": "different", "person": "identical"}
    client_report = table_of(report, "public.client")
    assert client_report.counts.differences == 0
    by_key = {each.key: each for each in client_report.samples}
    assert {key: (each.difference, each.differing) for key, each in by_key.items()} == FOUND
    assert by_key['{"id":4}'].cause.startswith("several rows of one key: the lake has 2")
    assert by_key['{"id":1}'].cause.startswith("lake changed by others than the mirror")
    shop.stop()


def test_an_iceberg_lake_is_identical_at_its_own_cut_and_damage_is_found(
    spark: SparkSession, spark_settings: SparkSettings, shop: Deployment, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"

    def compared(folder: str) -> Report:
        return reconciled(lake_job(shop, lake, tmp_path / folder, spark_settings, "iceberg"), spark)

    mirrored(spark, shop, lake, form="iceberg")
    shop.source.execute("UPDATE client SET name = 'later'; DELETE FROM client WHERE id = 30; TRUNCATE \"Größe\"")
    shop.wait_published()
    report = compared("moved on")
    assert set(verdicts(report).values()) == {"identical"}, verdicts(report)
    assert [each.replica.identical for each in report.tables if each.replica] == [30, 30, 30]
    mirrored(spark, shop, lake, form="iceberg")
    with closing(IcebergLake(spark, lake)) as tables:
        client = tables.table(shop.topic("public.client"))
        assert client.exists()
        (_, told), rows = next(client.commits()), client.rows().withColumn("cdc_deleted", fn.lit(False))
        changes = rows.where("id = 1").withColumn("name", fn.lit("other"))
        changes = changes.union(rows.where("id = 2").withColumn("cdc_deleted", fn.lit(True)))
        more = {"id": fn.lit(900), "cdc_key": fn.lit('{"id":900}')}
        assert told is not None
        client.merge(changes.union(rows.where("id = 3").withColumns(more)), told, 0)
    mirrored(spark, shop, lake, form="iceberg")
    report = compared("damaged")
    assert verdicts(report) == {"Größe": "identical", "client": "different", "person": "identical"}
    found = {each.key: (each.difference, each.differing) for each in table_of(report, "public.client").samples}
    assert found == {key: FOUND[key] for key in ('{"id":1}', '{"id":2}', '{"id":900}')}
    with pytest.raises(JobError, match="lake is not a Delta lake of cdc mirror"):
        reconciled(lake_job(shop, lake, tmp_path / "other format", spark_settings), spark)
    shop.stop()


def test_a_table_without_an_exact_cut_is_not_verified_and_what_is_not_its_lake_is_refused(
    spark: SparkSession, spark_settings: SparkSettings, shop: Deployment, tmp_path: Path
) -> None:
    lake, other = tmp_path / "lake", tmp_path / "other"

    def compared(folder: str, place: Path = lake, **options: Any) -> Report:
        return reconciled(lake_job(shop, place, tmp_path / folder, spark_settings, **options), spark)

    with pytest.raises(JobError, match="other is not a Delta lake of cdc mirror: it has no table _cdc_cuts"):
        compared("no lake", other)
    mirrored(spark, shop, lake, *TABLES[:2])
    with pytest.raises(JobError, match=r"has none of these tables; it has .*public\.Gr.*, .*public\.client"):
        compared("others", tables=TABLES[2:])
    with pytest.raises(JobError, match=r"which the lake .* does not understand; compare .*, without --lake"):
        compared("where", tables=TABLES[:1], where="id > 5")
    cuts, client = f"delta.`{lake / '_cdc_cuts'}`", shop.topic("public.client")
    # Rows that were deleted since a cut from long ago may have lost their tombstones
    spark.sql(f"UPDATE {cuts} SET at = at - INTERVAL 400 DAYS WHERE folder <> '{client}'").collect()
    spark.sql(f"UPDATE {cuts} SET is_exact = false WHERE folder = '{client}'").collect()
    report = compared("not exact")
    reasons = verdicts(report)
    assert report.exit_code == 2
    assert reasons["client"].startswith("not_verified lake: the lake has no exact cut of this table yet"), reasons
    assert "old, but tombstones are kept for only 168 h 00 min (delete.retention.ms)" in reasons["Größe"], reasons
    assert "does not have this table; run cdc mirror" in reasons["person"], reasons
    assert {each.counts.identical for each in report.tables} == {30}

    # An older cut is compared as long as it is exact
    spark.sql(f"DELETE FROM {cuts}").collect()
    mirrored(spark, shop, lake, *TABLES[:2])
    shop.source.execute("UPDATE client SET name = 'later'")
    mirrored(spark, shop, lake, *TABLES[:2])
    ((newest,),) = spark.sql(f"SELECT max(cut) FROM {cuts}").collect()
    spark.sql(f"UPDATE {cuts} SET is_exact = false WHERE cut = {newest}").collect()
    report = compared("older", tables=TABLES[:2])
    assert set(verdicts(report).values()) == {"identical"}, verdicts(report)
    shop.stop()


@pytest.mark.parametrize("form", ["delta", pytest.param("iceberg", marks=pytest.mark.long)])
def test_every_type_is_identical_in_a_lake(
    spark: SparkSession, spark_settings: SparkSettings, deploy: Deploy, database: Database, tmp_path: Path,
    capfd: pytest.CaptureFixture[str], form: str,
) -> None:  # fmt: skip
    with database.connect(options=PINNED) as connection:
        make_matrix(connection)
        deployment = deploy(topics={"partitions": 2})
        deployment.start_bridge()
        deployment.wait_backfilled("public.matrix")
    mirrored(spark, deployment, tmp_path / "lake", form=form)
    capfd.readouterr()
    job = lake_job(deployment, tmp_path / "lake", tmp_path / "equal", spark_settings, form)
    (table,) = reconciled(job, spark).tables
    assert table.verdict == "identical", (table.reason, table.samples[:1])
    assert "again" not in capfd.readouterr().err
    assert table.replica is not None
    assert table.replica.identical == table.counts.source_rows > 10
    deployment.stop()


@pytest.mark.long
def test_a_repair_reaches_the_lake_while_a_mirror_runs(spark: SparkSession, shop: Deployment, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    mirrored(spark, shop, lake)
    client = f"delta.`{lake / shop.topic('public.client')}`"
    for damage in DAMAGES[:3]:
        spark.sql(damage.format(client)).collect()
    mirrored(spark, shop, lake)
    with following(spark, shop, lake):
        code, said = run_command(
            shop, tmp_path / "report", "public.client", "--lake", f"delta:{lake}", "--repair", "--yes",
            "--fence-timeout", "300",
        )  # fmt: skip
    report = from_json((tmp_path / "report" / "report.json").read_text(encoding="utf-8"))
    assert {each.key for each in report.tables[0].samples} == {'{"id":1}', '{"id":2}', '{"id":900}'}, said
    healed = from_json((tmp_path / "report" / "after-repair" / "report.json").read_text(encoding="utf-8"))
    assert (code, healed.verdict) == (0, "identical"), said
    assert healed.tables[0].replica is not None
    shop.stop()


@pytest.mark.parametrize("form", ["delta", pytest.param("iceberg", marks=pytest.mark.long)])
def test_a_version_that_somebody_removed_is_said_to_be_gone_and_a_mirror_that_starts_anew_names_another(
    spark: SparkSession, spark_settings: SparkSettings, shop: Deployment, tmp_path: Path, form: str
) -> None:
    lake, table, gone = tmp_path / "the läke", "public.client", "cannot be read: old versions or their files were"
    folder = lake / shop.topic(table)

    def compared(name: str) -> TableReport:
        job = lake_job(shop, lake, tmp_path / name, spark_settings, form, tables=[table])
        return table_of(reconciled(job, spark), table)

    mirrored(spark, shop, lake, table, form=form)
    assert compared("there").verdict == "identical"
    job = lake_job(shop, lake, tmp_path / "while it is read", spark_settings, form, tables=[table])
    assert isinstance(job.replica, LakeSettings)
    side = LakeSide(spark, job, job.replica)

    def read_while_it_goes() -> None:
        with side.hold([("public", "client")], tmp_path) as held:
            rows = held.rows(job.tables[0], None).hashes((0, 1))
            pack_and_forget(spark, folder, form)
            rows.collect()

    with pytest.raises(SourceUnreadable, match=gone):
        read_while_it_goes()
    report = compared("gone")
    assert report.verdict == "not_verified"
    assert gone in report.reason, report.reason
    assert report.remedy.startswith("start cdc mirror anew"), report.remedy
    mirrored(spark, shop, lake, table, form=form)
    assert compared("anew").verdict == "identical"
    shop.stop()


def pack_and_forget(spark: SparkSession, folder: Path, form: str) -> None:
    """Writes all rows of a table into other files, as tools of others do, and removes all former versions."""
    if form == "delta":
        name = f"delta.`{folder}`"
        spark.read.format("delta").load(str(folder)).repartition(3).write.format("delta").mode("overwrite").option(
            "dataChange", "false"
        ).save(str(folder))
        spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        spark.sql(f"VACUUM {name} RETAIN 0 HOURS").collect()
        spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
        return
    with closing(IcebergLake(spark, folder.parent)) as tables:
        table = tables.table(folder.name)
        assert table.exists()
        _, told = next(table.commits())
        assert told is not None
        table.replace(table.rows(), told, 0)
    with iceberg_table(folder) as packed:
        held = {task.file.file_path.rpartition("/")[2] for task in packed.scan().plan_files()}
        for file in (folder / "data").iterdir():
            if file.name not in held:
                file.unlink()
        newest = packed.current_snapshot()
        assert newest is not None
        former = [each.snapshot_id for each in packed.snapshots() if each.snapshot_id != newest.snapshot_id]
        packed.maintenance.expire_snapshots().by_ids(former).commit()
