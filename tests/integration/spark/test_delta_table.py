"""Delta tables that several processes change at once: what each takes for its own commit, and who is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import deltalake
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from cdc.base.lsn import LSN
from cdc.contract.jobspec.deployment import JobTable
from cdc.contract.jobspec.mirror import KEEP_DAYS
from cdc.spark.errors import JobError
from cdc.spark.mirror import versioned_lake
from cdc.spark.mirror.cut_log import CutLog, CutTable
from cdc.spark.mirror.delta_sql import DeltaLake, DeltaTable
from cdc.spark.mirror.position import LakePosition
from tests.integration.spark.lake_tables import cuts_in, rows_in
from tests.integration.spark.mirrored_shop import Changes, assert_cuts, assert_equal
from tests.integration.spark.mirrors import run
from tests.integration.spark.test_delta import delta_job, shop
from tests.support.deployment import Deployment
from tests.support.sampling import sampled

__all__ = ["shop"]

pytestmark = [pytest.mark.pg(16, matrix=False), pytest.mark.timeout(600)]

ANOTHER: Final = "another process writes into"
NAME: Final = "thing"
COLUMNS: Final = StructType([StructField("cdc_key", StringType()), StructField("a", IntegerType())])
CHANGES: Final = "cdc_deleted boolean, cdc_key string, a int"
MOMENTS: Final = ("before packing", "mirror.after_table_commit", "mirror.before_cut")
ONE_MORE: Final = "INSERT INTO client (id) VALUES (9000); INSERT INTO \"Größe\" VALUES (9000, '', true)"
TABLE: Final = JobTable(namespace="public", name=NAME, topic=NAME, key=("a",), columns=())


class Writer(NamedTuple):
    """The table as one process has it, with a session of its own."""

    spark: SparkSession
    table: DeltaTable

    def append(self, number: int, *keys: int) -> None:
        held = self.spark.createDataFrame([(str(key), key) for key in keys], COLUMNS)
        self.table.append(held, f"append {number}", number)

    def merge(self, number: int, *keys: int) -> None:
        self.table.merge(self.changes(*keys), f"merge {number}", number)

    def changes(self, *keys: int) -> DataFrame:
        return self.spark.createDataFrame([(False, str(key), key) for key in keys], CHANGES)

    def keys(self) -> list[str]:
        return sorted(row["cdc_key"] for row in rows_in(self.table.folder))


def writer(spark: SparkSession, lake: Path) -> Writer:
    session = spark.newSession()
    return Writer(session, DeltaLake(session, lake, KEEP_DAYS).table(NAME))


@pytest.fixture
def ours(spark: SparkSession, tmp_path: Path) -> Writer:
    """A table whose newest version is 2."""
    made = writer(spark, tmp_path)
    made.table.create(COLUMNS, {"cdc.topic": NAME}, "create")
    assert made.table.committed(-1) == 0
    made.append(0, 1, 2)
    assert made.table.committed(0) == 1
    made.merge(1, 2, 3)
    assert made.table.committed(1) == 2
    return made


@pytest.fixture
def theirs(spark: SparkSession, ours: Writer, tmp_path: Path) -> Writer:
    """The same table in another process."""
    return writer(spark, tmp_path)


def test_a_version_is_that_of_the_own_commit_whatever_came_after_it(ours: Writer, theirs: Writer) -> None:
    ours.merge(2, 4)
    theirs.merge(3, 5)
    assert ours.table.committed(2) == 3
    assert theirs.table.committed(3) == 4
    assert [row["cdc_key"] for row in rows_in(ours.table.folder, 3) if row["cdc_key"] > "3"] == ["4"]
    assert list(ours.table.commits())[:3] == [(4, "merge 3"), (3, "merge 2"), (2, "merge 1")]


def test_of_two_changes_with_one_number_the_second_is_refused(ours: Writer, theirs: Writer) -> None:
    ours.merge(2, 4)
    late: list[Callable[[], None]] = [
        lambda: theirs.merge(2, 5),
        lambda: theirs.append(2, 5),
        lambda: theirs.table.replace(theirs.table.rows().limit(0), "emptied", 2),
        lambda: theirs.table.delete("a = 4", "deleted", 2),
    ]
    for change in late:
        with pytest.raises(JobError, match=ANOTHER):
            change()
    assert ours.keys() == ["1", "2", "3", "4"]
    theirs.table.delete("a = 99", "nothing to delete", 3)
    assert theirs.table.committed(3) == 3


def test_what_packs_files_after_another_process_changed_rows_is_refused_and_hides_no_position(
    ours: Writer, theirs: Writer
) -> None:
    theirs.append(2, 4)
    ours.table.compact("merge 1")
    with pytest.raises(JobError, match=ANOTHER):
        ours.table.committed(2)
    told = [told for _, told in theirs.table.commits()]
    assert told[:2] == [None, "append 2"], "the newest commit that tells something is that of the newest rows"
    assert theirs.keys() == ["1", "2", "3", "4"]


def test_other_programs_may_pack_files_in_between(ours: Writer) -> None:
    ours.append(2, 4)
    assert ours.table.committed(2) == 3
    packed = deltalake.DeltaTable(ours.table.folder)
    packed.optimize.compact()
    assert packed.version() == 4
    ours.merge(3, 5)
    assert ours.table.committed(3) == 5
    ours.table.compact("")
    ours.table.compact("")
    assert ours.table.committed(6) == 6, "there was nothing to pack a second time"
    assert [told for _, told in ours.table.commits()][:4] == [None, "merge 3", None, "append 2"]


def test_a_commit_that_cannot_be_read_is_named(ours: Writer) -> None:
    newest = ours.table.folder / "_delta_log" / f"{2:020}.json"
    newest.write_text("{")
    with pytest.raises(JobError, match=f"the commit {newest} of the Delta table cannot be read"):
        list(ours.table.commits())


def test_a_cut_that_another_process_wrote_first_stays_and_the_second_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The second cut was left out without a word, and the newest cut named older versions than the mirror had made."""
    first, second = (CutLog(session, DeltaLake(session, tmp_path, KEEP_DAYS)) for session in two_sessions(spark))
    first.make()
    for log, version in ((first, 1), (first, 2)):
        log.write(LSN(version), version, [CutTable(TABLE, version, LakePosition(), is_exact=True)], 0)
    with pytest.raises(JobError, match=ANOTHER):
        second.write(LSN(9), 9, [CutTable(TABLE, 9, LakePosition(), is_exact=True)], 0)
    third = CutLog(spark, DeltaLake(spark, tmp_path, KEEP_DAYS))
    third.forget([NAME])
    with pytest.raises(JobError, match=ANOTHER):
        first.write(LSN(10), 10, [CutTable(TABLE, 2, LakePosition(), is_exact=True)], 0)
    assert rows_in(tmp_path / "_cdc_cuts") == []
    third.write(LSN(11), 11, [CutTable(TABLE, 3, LakePosition(batch=4), is_exact=True)], 0)
    third.expire(KEEP_DAYS)
    found = CutLog(spark, DeltaLake(spark, tmp_path, KEEP_DAYS)).position(NAME)
    assert found == LakePosition(batch=4)


def two_sessions(spark: SparkSession) -> tuple[SparkSession, SparkSession]:
    return spark.newSession(), spark.newSession()


@pytest.mark.long
def test_a_mirror_goes_on_after_it_removed_what_is_old_and_the_newest_commits_tell_where(
    spark: SparkSession, shop: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta forgets old commits, so a table that does not change has to tell again where its topic is read on."""
    monkeypatch.setattr(DeltaLake, "tend_every_ms", -1)
    job, changes = delta_job(shop, tmp_path / "lake"), Changes(shop.source)
    for _ in range(2):
        changes.make()
        shop.wait_published()
        run(spark, job)
        assert_equal(shop, job)
    for topic in (each.topic for each in job.tables):
        table = DeltaLake(spark, tmp_path / "lake", KEEP_DAYS).table(topic)
        _, told = next(table.commits())
        assert topic in (told or "")
    assert assert_cuts(job, changes) == 2
    shop.stop()


@pytest.mark.parametrize("moment", sampled(MOMENTS, ()))
def test_a_mirror_that_another_one_overtakes_ends_and_leaves_no_wrong_cut(
    spark: SparkSession, shop: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Before packing: the packed version was taken for that of the former position, and no mirror could go on there."""
    job, changes = delta_job(shop, tmp_path / "lake", compact_every=1), Changes(shop.source)
    changes.make()
    shop.wait_published()
    run(spark, job)
    changes.make()
    shop.wait_published()

    def overtake() -> None:
        monkeypatch.undo()
        (tmp_path / "lake" / ".lock").unlink()
        changes.make()
        for statement in ("SELECT 1", ONE_MORE):  # what is only added comes in a file of its own, which can be packed
            shop.source.execute(statement)
            shop.wait_published()
            run(spark.newSession(), job.model_copy(update={"compact_every": 1000}))

    at_moment(monkeypatch, moment, overtake)
    before = len(cuts_in(job))
    with pytest.raises(JobError, match=ANOTHER):
        run(spark, job)
    assert len(cuts_in(job)) > before, "the other one wrote a cut"
    assert_equal(shop, job)
    changes.make()
    shop.wait_published()
    run(spark, job)
    assert_equal(shop, job)
    assert assert_cuts(job, changes) >= 3
    shop.stop()


def at_moment(monkeypatch: pytest.MonkeyPatch, moment: str, then: Callable[[], None]) -> None:
    """Does something when a mirror gets to a moment for the first time."""
    pack = DeltaTable.compact

    def packing(table: DeltaTable, tells: str) -> None:
        then()
        pack(table, tells)

    if moment == "before packing":
        monkeypatch.setattr(DeltaTable, "compact", packing)
    else:
        monkeypatch.setattr(versioned_lake, "reach", lambda point: then() if point == moment else None)
