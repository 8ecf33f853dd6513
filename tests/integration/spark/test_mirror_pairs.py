"""Options of ``cdc mirror`` two by two: whatever is combined, and whatever becomes of the copy, it is its source."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

from cdc.contract.jobspec.mirror import COMPACT_EVERY, RECORDS_PER_BATCH, MirrorJob
from cdc.lab.proof.comparison import Rows, TableShape, describe, difference, pinned, table_rows
from cdc.spark.mirror import manifest as manifests
from cdc.spark.mirror.main import mirror
from cdc.spark.mirror.position import LakePosition
from cdc.spark.offsets import Brokers
from tests.integration.spark.mirrors import job_for, lake_rows, run, typed
from tests.support.deployment import Deploy, Deployment
from tests.support.pairs import Choice, covering
from tests.support.servers import Database
from tests.support.soak import times
from tests.support.waiting import eventually

CLIENT, OTHER = TABLES = ("public.client", "public.Größe")
ROWS: Final = 40
_FOLLOW_S: Final = 120

SAMPLE: Final = 1
"""So many combinations in an ordinary run, all of them in ``make soak``."""

OPTIONS: Final[Mapping[str, tuple[Any, ...]]] = {
    "compact_every": (COMPACT_EVERY, 1, 2),
    "first": ((CLIENT,), ()),
    "then": ((), (CLIENT,), (OTHER,)),
    "once": (True, False),
    "rebuild": (False, True),
    "checkpoint": (None, "kept", "lost"),
    "records": (RECORDS_PER_BATCH, 40),
    "interval": (0, 1),
    "fate": (None, "spoilt", "gone", "older"),
}
"""``first`` and ``then`` are the tables of two runs; all other options are of both, but ``rebuild`` is of the second.

``checkpoint`` says what became of Spark's notes between the two, ``fate`` what became of the copy: somebody changed it,
deleted it, or brought it back from a backup that is older than the last run.
"""


def allowed(choice: Choice) -> bool:
    """What makes sense together: a copy that somebody changed is right again after a rebuild only."""
    return bool(choice.get("fate") != "spoilt" or choice.get("rebuild", True))


@pytest.fixture
def shop(database: Database, deploy: Deploy) -> Deployment:
    """Two tables of a bridge that runs."""
    database.execute(
        "CREATE TABLE client (id numeric PRIMARY KEY, name text, doc jsonb, seen timestamptz, share float8)"
    )
    database.execute('CREATE TABLE "Größe" (a int, "b ""c" text, v bool, PRIMARY KEY (a, "b ""c"))')
    deployment = deploy(topics={"partitions": 2})
    deployment.start_bridge()
    database.execute(
        "INSERT INTO client SELECT n, 'name ' || n, '{\"n\": 1.50}', 'epoch', n / 7.0"
        f" FROM generate_series(1, {ROWS}) n"
    )
    database.execute(f"INSERT INTO \"Größe\" SELECT n, 'ä' || n, n % 2 = 0 FROM generate_series(1, {ROWS}) n")
    deployment.wait_published()
    return deployment


def change(shop: Deployment, number: int) -> None:
    """What a copy might miss: deletions, keys that change or are spelled otherwise, NULLs, a column more."""
    first, other = number % ROWS + 1, (number + 1) % ROWS + 1
    shop.source.execute(f"UPDATE client SET name = 'run {number}', doc = 'null', seen = 'infinity' WHERE id = {first}")
    shop.source.execute(
        f"UPDATE client SET id = trim_scale(id) + {1000 * (number + 1)}.00, share = 'NaN' WHERE id = {other}"
    )
    shop.source.execute(
        f"UPDATE client SET id = (trim_scale(id)::text || '.{'0' * (number % 3 + 1)}')::numeric WHERE id = 20"
    )
    shop.source.execute("DELETE FROM client WHERE id = 30; INSERT INTO client (id, name) VALUES (30, NULL)")
    shop.source.execute(f'DELETE FROM "Größe" WHERE a = {number}')
    shop.source.execute(f"INSERT INTO \"Größe\" VALUES ({1000 + number}, '', NULL)")
    if number % 3 == 0:
        shop.source.execute(
            f'ALTER TABLE "Größe" ADD COLUMN "c{number}" int4; UPDATE "Größe" SET "c{number}" = a WHERE a > 9'
        )
    shop.wait_published()


@dataclass
class Copy:
    """The copy that one combination makes."""

    spark: SparkSession
    shop: Deployment
    choice: Choice
    folder: Path
    wanted: dict[str, tuple[TableShape, Rows]] = field(default_factory=dict)

    @property
    def lake(self) -> Path:
        """Where the copy is."""
        return self.folder / "lake"

    def run(self, tables: Sequence[str], *, rebuild: bool = False) -> None:
        """A run of the command, and from now on these tables must equal their source."""
        job = self._job(tables, rebuild)
        if self.choice["once"]:
            run(self.spark, job)
        else:
            self._follow(job)
        with pinned(self.shop.source.dsn) as source:
            for table in tables or TABLES:
                shape = describe(source, table)
                self.wanted[table] = shape, typed(table_rows(source, shape), shape, job)

    def assert_equal(self) -> None:
        """Every table as it was in its source when it was copied last: every row and column."""
        for table, (shape, rows) in self.wanted.items():
            found = lake_rows(self._job((), False), self.shop.topic(table), shape)
            assert difference("copy", rows, found, shape) is None, (table, self.choice)

    def _job(self, tables: Sequence[str], rebuild: bool) -> MirrorJob:
        checkpoint = None if self.choice["checkpoint"] is None else str(self.folder / "checkpoint")
        return job_for(
            self.shop, self.lake, tables, compact_every=self.choice["compact_every"],
            once=self.choice["once"], rebuild=rebuild, checkpoint=checkpoint,
            records_per_batch=self.choice["records"], interval_s=self.choice["interval"],
        )  # fmt: skip

    def _follow(self, job: MirrorJob) -> None:
        """Until the copy says that it has everything."""
        brokers = Brokers(job.kafka)
        ends = {each.topic: dict(enumerate(brokers.extent(each.topic).ends)) for each in job.tables}
        brokers.close()
        stop, late = threading.Event(), []

        def watch() -> None:
            try:
                eventually(lambda: stop.is_set() or self._positions_end_at(ends), _FOLLOW_S)
            except AssertionError as error:
                late.append(error)
            stop.set()

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            mirror(self.spark, job, stop)
        finally:
            stop.set()
            watcher.join()
        assert late == [], self.choice

    def _positions_end_at(self, ends: Mapping[str, Mapping[int, int]]) -> bool:
        return all(dict(self._position(topic).current_ends) == dict(end) for topic, end in ends.items())

    def _position(self, topic: str) -> LakePosition:
        return manifests.read(self.lake / topic, topic).position

    def meet(self, fate: str | None, number: int) -> None:
        """What becomes of the copy between the runs."""
        if fate is not None:
            fates: Mapping[str, Callable[[], None]] = {
                "spoilt": self._spoil,
                "gone": self._remove,
                "older": lambda: self._older(number),
            }
            fates[fate]()

    def _older(self, number: int) -> None:
        """A backup, another run behind it, and the backup is back."""
        shutil.copytree(self.lake, self.folder / "backup")
        wanted = dict(self.wanted)
        change(self.shop, number)
        self.run(self.choice["first"])
        self.wanted = wanted
        shutil.rmtree(self.lake)
        (self.folder / "backup").rename(self.lake)

    def _spoil(self) -> None:
        for file in self.lake.rglob("*.parquet"):
            pyarrow.parquet.write_table(pyarrow.parquet.read_table(file).slice(1), file)
            file.with_name(f".{file.name}.crc").unlink(missing_ok=True)

    def _remove(self) -> None:
        shutil.rmtree(self.lake)
        self.wanted.clear()


class Runs:
    """Copies of one deployment, in one session."""

    def __init__(self, spark: SparkSession, shop: Deployment, folder: Path) -> None:
        self._spark = spark
        self._shop = shop
        self._folder = folder

    def check(self, number: int, choice: Choice) -> None:
        """One combination: two runs, and what happens between them."""
        folder = self._folder / f"copy-{number}"
        folder.mkdir()
        copy = Copy(self._spark, self._shop, choice, folder)
        copy.run(choice["first"])
        copy.assert_equal()
        copy.meet(choice["fate"], 2 * number)
        change(self._shop, 2 * number + 1)
        if choice["checkpoint"] == "lost":
            shutil.rmtree(folder / "checkpoint")
        copy.run(choice["then"], rebuild=choice["rebuild"])
        if choice["fate"] == "spoilt":
            copy.wanted = {table: copy.wanted[table] for table in choice["then"] or TABLES}
        copy.assert_equal()


@pytest.mark.pg(16, matrix=False)
@pytest.mark.timeout(1800)
@pytest.mark.soak
def test_any_two_options_make_a_copy_that_equals_its_source(
    spark: SparkSession, shop: Deployment, tmp_path: Path
) -> None:
    runs, rows = Runs(spark, shop, tmp_path), covering(OPTIONS, allowed)
    for number, choice in enumerate(rows[: times(SAMPLE, soak=len(rows))]):
        runs.check(number, choice)
    shop.stop()
