"""A lake that ``cdc mirror`` writes, read at its own cut: each table at the version that belongs to an LSN.

A version never changes, so nothing has to be held while Spark reads it, and the mirror goes on. A row is found by its
``cdc_key``, as the mirror finds it. So a key that does not belong to its row is a difference: the row is then missing
under its own key, or has other key columns than the topic has for this key.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import MapType

from cdc.base.lsn import LSN
from cdc.contract.jobspec.deployment import JobTable, LakeSettings
from cdc.contract.jobspec.reconcile import ReconcileJob
from cdc.spark.errors import JobError, NotCaughtUp, SourceUnreadable
from cdc.spark.mirror.cut_log import NAME, CutLog
from cdc.spark.mirror.formats import format_of, looks_like_table
from cdc.spark.mirror.typed_rows import KEY, quoted
from cdc.spark.mirror.versioned import VersionedFormat, VersionedTable
from cdc.spark.replicas.lake_texts import HASHED_DDL, WHOLE_DDL, hashes_of, whole_rows
from cdc.spark.replicas.side import ComparedPlace
from cdc.spark.source.rows import TableRows
from cdc.spark.source.sql import HASH_DIGITS

_CLOCKS_DIFFER_S: Final = 10.0
_PAUSE_S: Final = 1.0
_SEVERAL: Final = 1 << 62
"""The ``value_hash`` of a key with several rows: it lies above the bits of a hash, so no record equals it."""

_SHOWN: Final = 5
_CALLED: Final = MappingProxyType({"delta": "a Delta lake", "iceberg": "an Iceberg lake"})


@dataclass(frozen=True, slots=True)
class ExactVersion:
    """The newest version of a table that is proven to equal the source.

    Attributes:
        folder: the table's.
        lsn: everything that committed before this position is in it, and nothing else.
        at_s: when nothing at this position or after it had been published yet, in seconds since 1970.
        version: the version.
    """

    folder: Path
    lsn: LSN
    at_s: float
    version: int


def refuse_no_lake(lake: LakeSettings, tables: Sequence[JobTable]) -> None:
    """Stops a run, before anything is started, whose lake cannot have its tables.

    Args:
        lake: the lake.
        tables: the tables of the run.

    Raises:
        JobError: the folder is not a lake, or has none of these tables.
    """
    root = Path(lake.path)
    if not looks_like_table(root / NAME, lake.system):
        raise JobError(
            f"{root} is not {_CALLED[lake.system]} of cdc mirror: it has no table {NAME}",
            remedy=f"name the folder that cdc mirror --to {lake.system}: writes, as --lake {lake.system}:DIR",
        )
    held = sorted(each.name for each in root.iterdir() if each.name != NAME and looks_like_table(each, lake.system))
    if not {each.topic for each in tables} & {*held}:
        listed = ", ".join(held[:_SHOWN]) + (", …" if len(held) > _SHOWN else "")
        raise JobError(
            f"the lake {root} has none of these tables; it has {listed or 'no tables at all'}",
            remedy="name the lake of this bridge, or mirror these tables into it first (cdc mirror)",
        )


class LakeSide:
    """Implements ``ReplicaSide``.

    Args:
        spark: a session for the lake's format.
        job: the run.
        lake: the lake.

    Raises:
        JobError: the folder's cuts are not those of a mirror.
    """

    def __init__(self, spark: SparkSession, job: ReconcileJob, lake: LakeSettings) -> None:
        self._spark = spark
        self._job = job
        self._lake = lake
        self._root = Path(lake.path)
        with self._opened() as tables:
            CutLog(spark, tables)  # refuses another table in its place

    def why_not(self, table: JobTable) -> str:
        """Returns why this table cannot be compared, before anything is held; empty if it can."""
        if looks_like_table(self._root / table.topic, self._lake.system):
            return ""
        return f"{self._root} does not have this table; run cdc mirror"

    def wait_for(self, lsn: LSN, deadline: float) -> None:
        """Waits until a cut with all tables of the run is exact at this LSN or a later one."""
        topics = {each.topic for each in self._job.tables}
        while True:
            exact = self._exact()
            if all((found := exact.get(each)) is not None and found.lsn >= lsn for each in topics):
                return
            if time.monotonic() > deadline:
                aside = "".join(f"; {_why_none(each, count)}" for each, count in self._aside().items())
                raise NotCaughtUp(
                    f"the lake did not get a cut at {lsn} or after it within {self._job.fence_timeout_s:.0f} s{aside}",
                    remedy="start cdc mirror, or allow more time with --fence-timeout",
                )
            time.sleep(_PAUSE_S)

    @contextmanager
    def hold(self, tables: Sequence[tuple[str, str]], folder: Path) -> Iterator[HeldLake]:  # noqa: ARG002
        """Chooses the newest exact version of each table.

        Raises:
            SourceUnreadable: a version was removed while it was read.
        """
        topics = {each.replica: each.topic for each in self._job.tables}
        exact, found = self._exact(), {}
        for name in tables:
            found[name] = exact.get(topics[name])
        aside = {} if all(found.values()) else self._aside()
        newest_s = max((each.at_s for each in found.values() if each is not None), default=time.time())
        age_s = time.time() - newest_s + _CLOCKS_DIFFER_S
        try:
            yield HeldLake(self._read, found, time.monotonic() - age_s, aside)
        except (PySparkException, Py4JError):
            for each in filter(None, found.values()):
                self._read(each)  # says so if its files were removed while Spark read them
            raise

    def _aside(self) -> Mapping[str, int]:
        """Returns how many keys stand aside, by topic, of each table of which some do."""
        with self._opened() as tables:
            cuts = CutLog(self._spark, tables)
            positions = {each.topic: cuts.position(each.topic) for each in self._job.tables}
        return {topic: len(each.aside) for topic, each in positions.items() if each is not None and each.aside}

    def _exact(self) -> Mapping[str, ExactVersion | None]:
        """Returns the newest exact version of each table, by topic; None if no cut of it is exact."""
        newest = fn.max_by(
            fn.struct("lsn", fn.unix_millis("at").alias("at_ms"), "version"), fn.when(fn.col("is_exact"), fn.col("cut"))
        )
        with self._opened() as tables:
            rows = _there(tables, NAME).rows().groupBy("folder").agg(newest.alias("found")).collect()
        return {
            row["folder"]: row["found"]
            and ExactVersion(
                self._root / row["folder"],
                LSN.parse(row["found"]["lsn"]),
                row["found"]["at_ms"] / 1000,
                row["found"]["version"],
            )
            for row in rows
        }

    def _read(self, exact: ExactVersion) -> DataFrame:
        """Returns the rows of a version.

        Raises:
            SourceUnreadable: the version, or a file of it, was removed.
        """
        try:
            with self._opened() as tables:
                return _there(tables, exact.folder.name).rows_at(exact.version)
        except (PySparkException, ValueError, FileNotFoundError) as error:
            raise SourceUnreadable(
                f"version {exact.version} of {exact.folder}, which the newest exact cut names, cannot be read: old "
                f"versions or their files were removed ({str(error).splitlines()[0]})",
                remedy="start cdc mirror anew, so that its next cut names the newest version, and compare again; let "
                "only the mirror remove old versions (--keep-days)",
            ) from error

    @contextmanager
    def _opened(self) -> Iterator[VersionedFormat]:
        """Opens the lake anew, so that what a mirror has committed meanwhile is seen."""
        with closing(format_of(self._spark, self._lake.system, self._root)) as tables:
            yield tables


@dataclass(frozen=True, slots=True)
class HeldLake:
    """Implements ``HeldReplica`` with versions.

    Args:
        read: returns the rows of a version.
        exact: the newest exact version of each table, by schema and name; None if there is none.
        taken_at: when the newest of them was cut, in seconds of the monotonic clock.
        aside: how many keys stand aside, by topic, if a table has no exact version.
    """

    read: Callable[[ExactVersion], DataFrame]
    exact: Mapping[tuple[str, str], ExactVersion | None]
    taken_at: float
    aside: Mapping[str, int] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """Empty: each table has a version of its own, which is its place's."""
        return ""

    @property
    def tables(self) -> Sequence[tuple[str, str]]:
        """Schema and name of each table."""
        return list(self.exact)

    def recorded(self, table: JobTable) -> tuple[LSN, str]:
        """Returns the LSN at which the lake equals the source, or why this table cannot be compared."""
        found = self._of(table)
        if found is None and (count := self.aside.get(table.topic)):
            return LSN(0), _why_none(table.topic, count)
        if found is None:
            return LSN(0), "the lake has no exact cut of this table yet; compare again when cdc mirror has gone on"
        return found.lsn, ""

    def place(self, table: JobTable) -> ComparedPlace:
        """Returns the table's folder and version."""
        found = self._of(table)
        assert found is not None
        return ComparedPlace("lake", str(found.folder), found.version)

    def rows(self, table: JobTable, where: str | None) -> TableRows:
        """Returns a reader of a table's rows."""
        assert where is None  # selection.refuse_unknown
        found = self._of(table)
        assert found is not None
        return LakeTableRows(self.read(found), table)

    def sizes(self, tables: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], int]:
        """Returns how many bytes the files of these tables have, those of former versions included.

        Tables whose newest exact cut is an older one are left out.
        """
        exact = {name: found for name in tables if (found := self.exact[name]) is not None}
        newest = max((each.lsn for each in exact.values()), default=None)
        return {name: _bytes_in(each.folder) for name, each in exact.items() if each.lsn == newest}

    def hashes_of_many(self, tables: Sequence[JobTable]) -> DataFrame:
        """Reads every row of several small tables."""
        frames = [self.rows(each, None).hashes((0, 1)).withColumn("topic", fn.lit(each.topic)) for each in tables]
        return functools.reduce(DataFrame.unionByName, frames)

    def _of(self, table: JobTable) -> ExactVersion | None:
        return self.exact[table.namespace, table.name]


class LakeTableRows:
    """Implements ``TableRows``.

    Args:
        rows: the rows of one version.
        table: the table.
    """

    def __init__(self, rows: DataFrame, table: JobTable) -> None:
        self._table = table
        held = {field.name: field.dataType for field in rows.schema}
        # A column that the table had not got yet is NULL in the lake, as in the topic.
        columns = [_column(each.name, each.name in held, "string") for each in table.columns]
        beyond = next((name for name, kind in held.items() if isinstance(kind, MapType)), "")
        columns.append(_column(beyond, bool(beyond), "map<string,string>"))
        key = fn.coalesce(fn.col(KEY), fn.lit(""))  # a row without a key is one too many, under this one
        named = [each.alias(f"c{place}") for place, each in enumerate(columns)]
        key_hash = fn.conv(fn.substring(fn.md5(key), 1, HASH_DIGITS), 16, 10).cast("bigint")
        self._rows = rows.select(key_hash.alias("key_hash"), key.alias("key"), *named)

    def hashes(self, bucket: tuple[int, int]) -> DataFrame:
        """Reads every row as two numbers."""
        number, count = bucket
        rows = self._rows.drop("key")
        if count > 1:
            rows = rows.where(fn.col("key_hash") % count == number)
        value_hash = fn.when(fn.count("*") > 1, fn.lit(_SEVERAL)).otherwise(fn.min("value_hash"))
        found = rows.mapInArrow(hashes_of(self._table), HASHED_DDL)
        return found.groupBy("key_hash").agg(value_hash.alias("value_hash"))

    def rows(self, key_hashes: Sequence[int] | None) -> DataFrame:
        """Reads whole rows."""
        rows = self._rows if key_hashes is None else self._rows.where(fn.col("key_hash").isin(*key_hashes))
        found = rows.mapInArrow(whole_rows(self._table), WHOLE_DDL)
        return found.groupBy("key_hash", "key").agg(
            fn.min("source_columns").alias("source_columns"),
            fn.lit(True).alias("chosen"),
            fn.count("*").cast("int").alias("copies"),
        )


def _column(name: str, is_held: bool, kind: str) -> Column:
    return fn.col(quoted(name)) if is_held else fn.lit(None).cast(kind)


def _why_none(topic: str, aside: int) -> str:
    return (
        f"keys of {topic} stand aside ({aside}), so no cut of it is exact; cdc mirror says which when it starts: have "
        "their rows published again"
    )


def _there(tables: VersionedFormat, name: str) -> VersionedTable:
    table = tables.table(name)
    if not table.exists():
        raise SourceUnreadable(f"the table {name} of the lake is gone", remedy="run cdc mirror, then compare again")
    return table


def _bytes_in(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.rglob("*.parquet"))
