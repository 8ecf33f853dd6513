"""``cdc mirror --quarantine``: keys whose newest records cannot be read stand aside, in Delta and in Iceberg tables."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc.base.lsn import LSN
from cdc.contract.header import HeaderStamp
from cdc.contract.jobspec.deployment import LakeSettings, SparkSettings
from cdc.contract.jobspec.mirror import MirrorJob
from cdc.spark.errors import JobError, NotCaughtUp
from cdc.spark.mirror.formats import format_of
from cdc.spark.mirror.position import LakePosition
from cdc.spark.replicas.lake import LakeSide
from tests.integration.spark.lake_tables import cuts_in, texts_in, texts_of
from tests.integration.spark.mirrored_shop import mirror_process
from tests.integration.spark.mirrors import job_for, run
from tests.integration.spark.test_reconcile_lake import lake_job
from tests.support.deployment import Deploy
from tests.support.reconciling import run_command
from tests.support.servers import Database
from tests.support.topic_damage import FOREIGN_HEADER, Damage

pytestmark = [pytest.mark.pg(16, matrix=False), pytest.mark.timeout(900)]

ITEM, OTHER = "public.item", "public.other"
SCHEMA = """
CREATE TABLE item (id int PRIMARY KEY, note text, n int);
CREATE TABLE other (id int PRIMARY KEY, note text);
INSERT INTO item SELECT n, 'right' FROM generate_series(1, 20) n;
INSERT INTO other SELECT n, 'right' FROM generate_series(1, 20) n
"""
NOT_TEXT = b"\xfe\xff"
TIMEOUT_S = 300


class Shelf:
    """A deployment with two tables, and mirrors of it in both formats."""

    def __init__(self, database: Database, deploy: Deploy, lakes: Path, forms: Sequence[str]) -> None:
        database.execute(SCHEMA)
        self.source = database
        # Cuts are proven, however slow the machine is.
        self.deployment = deploy(topics={"partitions": 2, "min_compaction_lag_ms": 3_600_000})
        self.deployment.start_bridge()
        self.deployment.wait_backfilled(ITEM, OTHER)
        self.damage = Damage(self.deployment)
        self.jobs = [
            job_for(self.deployment, lakes / form).model_copy(update={"format": form, "quarantine": 3})
            for form in forms
        ]
        (self.header,) = {each.header for each in self.deployment.records(ITEM) if each.key == b'{"id":1}'}

    def change(self, statements: str) -> None:
        self.source.execute(statements)
        self.deployment.wait_published()

    def plant(self, number: int, value: bytes, header: bytes | None = None) -> None:
        """Put a record of another program over a row."""
        self.damage.write(ITEM, b'{"id":%d}' % number, value, header=header or self.header)
        self.damage.done()

    def entries(self, spark: SparkSession, job: MirrorJob) -> dict[str, str]:
        """The reasons of the keys that stand aside, by key, as the newest commit of the table tells them."""
        table = format_of(spark, "iceberg" if job.format == "iceberg" else "delta", Path(job.path)).table(
            self.deployment.topic(ITEM)
        )
        assert table.exists()
        told = next(json.loads(text) for _, text in table.commits() if text and "position" in text)
        return {each.key: each.reason for each in LakePosition.from_fields(told["position"]).aside}

    def rows(self, job: MirrorJob, table: str = ITEM) -> list[tuple[str | None, ...]]:
        return texts_in(Path(job.path) / self.deployment.topic(table))

    def wanted(self, *without: int) -> list[tuple[str | None, ...]]:
        """The source's rows except these."""
        return [row for row in texts_of(self.source, "item") if int(row[0] or 0) not in without]

    def assert_state(self, spark: SparkSession, job: MirrorJob, aside: dict[str, str], *without: int) -> None:
        """The rows and the entries; the last cut of a table with entries is not exact, that of the other one is."""
        found = self.entries(spark, job)
        assert found.keys() == aside.keys(), found
        assert [each for each in aside if aside[each] not in found[each]] == [], found
        assert self.rows(job) == self.wanted(*without), job.format
        assert self.rows(job, OTHER) == texts_of(self.source, "other"), job.format
        exact = {row["table"]: row["is_exact"] for row in cuts_in(job)}
        assert exact == {ITEM: not aside, OTHER: True}, job.format


def name(number: int) -> str:
    return repr(b'{"id":%d}' % number)


def test_keys_stand_aside_until_their_next_record(
    spark: SparkSession,
    spark_settings: SparkSettings,
    database: Database,
    deploy: Deploy,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shelf = Shelf(database, deploy, tmp_path, ("delta", "iceberg"))
    shelf.plant(1, b'{"id":1,"note"')
    shelf.damage.write(ITEM, NOT_TEXT, b"{}", header=shelf.header)
    shelf.damage.done()
    for job in shelf.jobs:
        run(spark, job)
        shelf.assert_state(spark, job, {name(1): "expected ", repr(NOT_TEXT): "can't decode byte 0xfe"}, 1)
        said = capsys.readouterr().err
        assert said.count("warning: put aside: topic ") == 2, said
        assert "warning: public.item: keys that stand aside, without a row: 2\n  topic " in said
    compared = lake_job(shelf.deployment, tmp_path / "delta", tmp_path / "run", spark_settings)
    assert isinstance(compared.replica, LakeSettings)
    side, names = LakeSide(spark, compared, compared.replica), [("public", "item"), ("public", "other")]
    with side.hold(names, tmp_path) as held:
        told = {table.name: held.recorded(table) for table in compared.tables}
    assert "item stand aside (2), so no cut of it is exact" in told["item"][1]
    assert told["other"][0] > 0
    with pytest.raises(NotCaughtUp, match=r"item stand aside \(2\)"):
        side.wait_for(told["other"][0], 0.0)
    shelf.plant(2, b'{"id":2,"note":"nul \\u0000"}')
    shelf.damage.write(ITEM, NOT_TEXT, None, header=shelf.header)
    shelf.change("UPDATE item SET note = 'mended' WHERE id = 1; UPDATE other SET note = 'more' WHERE id = 1")
    for job in shelf.jobs:
        run(spark, job)
        shelf.assert_state(spark, job, {name(2): "NUL"}, 2)
    shelf.change("UPDATE item SET note = 'mended' WHERE id = 2; DELETE FROM item WHERE id = 20")
    for job in shelf.jobs:
        run(spark, job)
        shelf.assert_state(spark, job, {})
    for number in range(3, 7):
        shelf.plant(number, b"{}", FOREIGN_HEADER if number % 2 else HeaderStamp(LSN(1), None, 1).header("x", 1, "0"))
    for job in shelf.jobs:
        before = cuts_in(job)
        for _ in range(2 if job.format == "delta" else 1):
            with pytest.raises(
                JobError, match=r"key b'.*: .*stand aside already: 0; --quarantine allows no more than 3"
            ):
                run(spark, job)
            assert (shelf.rows(job), cuts_in(job)) == (shelf.wanted(), before)
    shelf.deployment.stop()


POINTS = (
    ("delta", "mirror.before_table_commit:2"),  # the second try, with the bad record put aside
    ("delta", "mirror.after_table_commit:1"),
    ("delta", "mirror.after_compaction:1"),
    ("iceberg", "mirror.before_table_commit:2"),
    ("iceberg", "mirror.files_written:1"),
    ("iceberg", "mirror.after_table_commit:1"),
    ("iceberg", "mirror.before_cut:1"),
)


@pytest.mark.long
@pytest.mark.parametrize(("form", "point"), POINTS)
def test_a_kill_leaves_the_row_or_the_entry(
    form: str,
    point: str,
    spark: SparkSession,
    spark_settings: SparkSettings,
    database: Database,
    deploy: Deploy,
    tmp_path: Path,
) -> None:
    shelf = Shelf(database, deploy, tmp_path / "lakes", [form])
    (job,) = (each.model_copy(update={"compact_every": 1, "spark": spark_settings}) for each in shelf.jobs)
    run(spark, job)

    def killed(at: str) -> None:
        with mirror_process(job, tmp_path, at, is_warm=True) as process:
            assert process.wait(TIMEOUT_S) == -signal.SIGKILL, (tmp_path / "mirror.log").read_text()

    shelf.plant(1, b"\xff")
    shelf.change("UPDATE item SET note = 'more' WHERE id = 2; UPDATE other SET note = 'more' WHERE id = 1")
    killed(point)
    aside = shelf.entries(spark, job)
    assert (("1" in {row[0] for row in shelf.rows(job)}), len(aside)) in ((True, 0), (False, 1))
    run(spark, job)
    shelf.assert_state(spark, job, {name(1): "UTF-8"}, 1)
    shelf.change("UPDATE item SET note = 'mended' WHERE id = 1")
    killed(point.replace(":2", ":1"))
    assert (("1" in {row[0] for row in shelf.rows(job)}), len(shelf.entries(spark, job))) in ((True, 0), (False, 1))
    run(spark, job)
    shelf.assert_state(spark, job, {})
    shelf.deployment.stop()


@pytest.mark.long
@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_entries_stay_in_whatever_the_mirror_commits(
    form: str, spark: SparkSession, database: Database, deploy: Deploy, tmp_path: Path
) -> None:
    shelf = Shelf(database, deploy, tmp_path / "lakes", [form])
    (job,) = shelf.jobs
    job = job.model_copy(update={"compact_every": 1})
    shelf.plant(1, b"\xff")
    shelf.plant(2, b"\xff")
    aside = {name(1): "UTF-8", name(2): "UTF-8"}
    run(spark, job)
    shelf.assert_state(spark, job, aside, 1, 2)
    shelf.change("ALTER TABLE item ADD more int, ALTER n TYPE bigint; UPDATE item SET more = 1, n = 1 WHERE id = 3")
    fewer = job.model_copy(update={"quarantine": 1})
    run(spark, fewer)
    shelf.assert_state(spark, job, aside, 1, 2)
    shelf.plant(2, b"{")
    for each, why in ((fewer, "already: 2; --quarantine allows no more than 1"), (job, "")):
        if why:
            with pytest.raises(JobError, match=why):
                run(spark, each)
        else:
            run(spark, each)
    shelf.assert_state(spark, job, {name(1): "UTF-8", name(2): "expected"}, 1, 2)
    run(spark, job.model_copy(update={"rebuild": True}))
    shelf.assert_state(spark, job, {name(1): "UTF-8", name(2): "expected"}, 1, 2)
    shelf.change("UPDATE item SET n = 2 WHERE id = 1; DELETE FROM item WHERE id = 2")
    none = job.model_copy(update={"quarantine": 0})
    run(spark, none)
    shelf.assert_state(spark, job, {})
    shelf.deployment.stop()


@pytest.mark.long
def test_a_repair_of_the_topic_ends_it(spark: SparkSession, database: Database, deploy: Deploy, tmp_path: Path) -> None:
    shelf = Shelf(database, deploy, tmp_path / "lakes", ["delta"])
    (job,) = shelf.jobs
    shelf.plant(1, b"\xff")
    shelf.plant(2, b"{}", FOREIGN_HEADER)
    shelf.damage.write(ITEM, NOT_TEXT, b"{}", header=shelf.header)
    shelf.damage.done()
    run(spark, job)
    shelf.assert_state(spark, job, {name(1): "UTF-8", name(2): "definition", repr(NOT_TEXT): "decode"}, 1, 2)
    code, said = run_command(shelf.deployment, tmp_path / "report", ITEM, "--no-replica", "--repair", "--yes")
    assert code == 0, said
    run(spark, job.model_copy(update={"quarantine": 0}))
    shelf.assert_state(spark, job, {})
    shelf.deployment.stop()
