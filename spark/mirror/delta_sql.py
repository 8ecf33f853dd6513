"""Delta tables in folders, as Spark's SQL takes them: names, positions in commits, one commit at a time.

What a commit tells is in its ``userMetadata``. A commit that tells something has a number, as Delta's ``txnVersion``:
Delta takes each number once, whoever writes. So what the newest of these commits tells is true of the rows. If a commit
that only packs files told it once more, another process could have changed rows in between.

Which version a commit made, Delta itself says in the session. Whoever looked for the newest version afterwards might
find another's.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from cdc.spark.errors import JobError
from cdc.spark.mirror.typed_rows import DELETED, KEY, needs_mapping, quoted

SESSION: Final[Mapping[str, str]] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # The log of a mirrored table has a few files. By default each look at it would start 50 tasks.
    "spark.databricks.delta.snapshotPartitions": "2",
    # VACUUM would list even the smallest table in 10,000 tasks, which takes half a minute.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
    # OPTIMIZE would write everything anew that is smaller than 1 GB.
    "spark.databricks.delta.optimize.minFileSize": str(64 * 2**20),
    "spark.databricks.delta.optimize.maxFileSize": str(256 * 2**20),
}
"""What a session needs for Delta tables."""

_LOG: Final = "_delta_log"
_TOLD: Final = "spark.databricks.delta.commitInfo.userMetadata"
_APP: Final = "spark.databricks.delta.write.txnAppId"
_NUMBER: Final = "spark.databricks.delta.write.txnVersion"
_APP_NAME: Final = "cdc mirror"
_MADE: Final = "spark.databricks.delta.lastCommitVersionInSession"
_BATCH: Final = "cdc_batch"
_WITHOUT_ZONE: Final = "timestamp_ntz"
_CONFLICTS: Final = "io.delta.exceptions."
_MAPPING: Final = "delta.columnMapping.mode"
_LOG_DAYS: Final = 30


class DeltaLake:
    """The Delta tables in a folder.

    Args:
        spark: a session with ``SESSION``.
        root: the folder.
        keep_days: for how many days a version stays readable.
    """

    name: Final = "Delta"
    tend_every_ms: Final = 86_400_000
    cuts_kept: Final = None

    def __init__(self, spark: SparkSession, root: Path, keep_days: int) -> None:
        self._spark = spark
        self._root = root
        self._keep_days = keep_days

    def table(self, name: str) -> DeltaTable:
        """Returns the table of this name."""
        return DeltaTable(self._spark, self._root / name, self._keep_days)

    def open(self) -> None:
        """Does nothing: each table is on its own."""

    def close(self) -> None:
        """Does nothing."""


def columns_of(schema: StructType) -> str:
    """Returns the columns as a CREATE TABLE names them."""
    return ", ".join(f"{quoted(field.name)} {field.dataType.simpleString()}" for field in schema)


class DeltaTable:
    """One table in its folder.

    Args:
        spark: a session with ``SESSION``.
        folder: where the table is, or will be.
        keep_days: for how many days a version stays readable.
    """

    def __init__(self, spark: SparkSession, folder: Path, keep_days: int) -> None:
        self._spark = spark
        self.folder = folder
        self._keep_days = keep_days
        self._name = f"delta.{quoted(str(folder))}"
        self._given: Mapping[str, str] = {}
        self._made: int | None = None
        self._number: int | None = None

    def exists(self) -> bool:
        """Tells whether the folder holds a table; one that was killed while it made its first commit holds none."""
        return any((self.folder / _LOG).glob("*.json"))

    def is_taken(self) -> bool:
        """Tells whether the folder holds something that is not a table."""
        return self.folder.exists() and any(each.name != _LOG for each in self.folder.iterdir())

    def properties(self) -> Mapping[str, str]:
        """Returns the table's properties."""
        self._given = {
            row["key"]: row["value"] for row in self._spark.sql(f"SHOW TBLPROPERTIES {self._name}").collect()
        }
        return self._given

    def columns(self) -> Mapping[str, str]:
        """Returns the type of each column."""
        return self.types_of(self.rows().schema)

    def types_of(self, schema: StructType) -> Mapping[str, str]:
        """Returns the same for other columns."""
        return {field.name: field.dataType.simpleString() for field in schema}

    def rows(self) -> DataFrame:
        """Returns the newest rows."""
        return self._spark.read.format("delta").load(str(self.folder))

    def rows_at(self, version: int) -> DataFrame:
        """Returns the rows of a version."""
        rows = self._spark.read.format("delta").option("versionAsOf", version).load(str(self.folder))
        held = {each.name for each in self.folder.rglob("*")}
        gone = [each for each in rows.inputFiles() if each.rpartition("/")[2] not in held]
        if gone:
            raise FileNotFoundError(f"{gone[0]} is gone")
        return rows

    def commits(self) -> Iterator[tuple[int, str | None]]:
        """Yields each version that the log still has, newest first, and what its commit tells."""
        files = (each for each in (self.folder / _LOG).glob("*.json") if each.stem.isdigit())
        for file in sorted(files, reverse=True):
            told = (each["commitInfo"].get("userMetadata") for each in _actions(file) if "commitInfo" in each)
            yield int(file.stem), next(told, None)

    def committed(self, since: int) -> int:
        """Returns the version that this process's last change made, or ``since`` if it had nothing to do.

        Raises:
            JobError: the version has rows that another mirror changed after ``since``.
        """
        if self._made is None:
            return since
        for version in range(since + 1, self._made):
            for action in _actions(self.folder / _LOG / f"{version:020}.json"):
                done = action.get("txn", {})
                if done.get("appId") == _APP_NAME and done["version"] != self._number:
                    raise self._another()
        return self._made

    def changes_of_others(self) -> Collection[str]:
        """Returns nothing: what tools run on Delta tables has many names."""
        return ()

    def create(self, schema: StructType, properties: Mapping[str, str], tells: str) -> None:
        """Makes the table, without rows."""
        self._given = {**properties, **self._properties()}
        if any(map(needs_mapping, schema.fieldNames())):
            self._given[_MAPPING] = "name"
        self._run(
            f"CREATE TABLE {self._name} ({columns_of(schema)}) USING delta TBLPROPERTIES ({_listed(self._given)})",
            tells,
        )
        if self._made is None:
            raise self._another()

    def alter(self, schema: StructType, tells: str) -> bool:  # noqa: ARG002
        """Adds the columns that the table lacks, and sets its properties; tells whether that made a commit."""
        held, wanted = self.columns(), self.types_of(schema)
        other = {name: value for name, value in self._properties().items() if self._given.get(name) != value}
        added = [name for name in wanted if name not in held]
        if any(map(needs_mapping, added)) and _MAPPING not in self._given:
            other[_MAPPING] = "name"
        if _WITHOUT_ZONE in wanted.values() and _WITHOUT_ZONE not in held.values():
            other["delta.feature.timestampNtz"] = "supported"
        if other:
            self._run(f"ALTER TABLE {self._name} SET TBLPROPERTIES ({_listed(other)})")
            self._given = {**self._given, **other}
        if added:
            columns = ", ".join(f"{quoted(name)} {wanted[name]}" for name in added)
            self._run(f"ALTER TABLE {self._name} ADD COLUMNS ({columns})")
        return bool(other or added)

    def append(self, rows: DataFrame, tells: str, number: int) -> None:
        """Adds rows."""
        rows.createOrReplaceTempView(_BATCH)
        columns = ", ".join(map(quoted, rows.columns))
        self._run(f"INSERT INTO {self._name} ({columns}) SELECT {columns} FROM {_BATCH}", tells, number)

    def merge(self, changes: DataFrame, tells: str, number: int) -> None:
        """Replaces the rows of some keys."""
        changes.createOrReplaceTempView(_BATCH)
        self._run(
            f"MERGE INTO {self._name} held USING {_BATCH} batch ON held.{KEY} = batch.{KEY}"
            f" WHEN MATCHED AND batch.{DELETED} THEN DELETE WHEN MATCHED THEN UPDATE SET *"
            f" WHEN NOT MATCHED AND NOT batch.{DELETED} THEN INSERT *",
            tells,
            number,
        )

    def replace(self, rows: DataFrame, tells: str, number: int) -> None:
        """Puts these rows and columns in the place of all that the table has."""
        with self._committing(tells, number):
            rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(str(self.folder))
        self._refuse_if_used()

    def delete(self, condition: str, tells: str, number: int | None = None) -> None:
        """Removes the rows that meet a condition; without a number, the commit tells nothing."""
        statement = f"DELETE FROM {self._name} WHERE {condition}"
        if number is None:
            self._run(statement)
        else:
            with self._committing(tells, number):
                self._spark.sql(statement).collect()
            # If there were none, Delta makes no commit, either
            if self._made is None and not self.rows().where(condition).isEmpty():
                raise self._another()

    def compact(self, tells: str) -> None:  # noqa: ARG002
        """Packs small files into few."""
        self._run(f"OPTIMIZE {self._name}")

    def tell(self, tells: str, number: int) -> bool:
        """Makes a commit without rows, because Delta forgets commits that are older than the log is kept."""
        self._run(f"INSERT INTO {self._name} SELECT * FROM {self._name} WHERE false", tells, number)
        return True

    def tend(self, needed: Collection[int]) -> None:  # noqa: ARG002
        """Removes files that only versions from before the last days need; Delta itself knows which."""
        self._run(f"VACUUM {self._name}")

    def _run(self, statement: str, tells: str | None = None, number: int | None = None) -> None:
        with self._committing(tells, number):
            self._spark.sql(statement).collect()
        if number is not None:
            self._refuse_if_used()

    def _properties(self) -> Mapping[str, str]:
        return {
            # Many readers do not know deletion vectors.
            "delta.enableDeletionVectors": "false",
            "delta.deletedFileRetentionDuration": f"interval {self._keep_days} days",
            "delta.logRetentionDuration": f"interval {max(self._keep_days, _LOG_DAYS)} days",
        }

    @contextmanager
    def _committing(self, tells: str | None, number: int | None) -> Iterator[None]:
        """Gives commits in the block text and number, and notes the version that they made.

        Raises:
            JobError: another program committed in the same moment, and Delta took its commit.
        """
        settings = {} if tells is None else {_TOLD: tells}
        if number is not None:
            settings |= {_APP: _APP_NAME, _NUMBER: str(number)}
        for name, value in settings.items():
            self._spark.conf.set(name, value)
        self._spark.conf.unset(_MADE)
        try:
            yield
        except Py4JJavaError as error:  # pyspark knows Spark's errors only
            if not error.java_exception.getClass().getName().startswith(_CONFLICTS):
                raise
            raise self._another() from error
        finally:
            for name in settings:
                self._spark.conf.unset(name)
        made = self._spark.conf.get(_MADE, None)
        self._made, self._number = None if made is None else int(made), number

    def _refuse_if_used(self) -> None:
        """Refuses to go on if Delta left out the last change, because the table had a commit of its number."""
        if self._made is None:
            raise self._another()

    def _another(self) -> JobError:
        return JobError(
            f"another process writes into {self.folder}",
            remedy="stop one of the two, then start again; each table continues where it stands",
        )


def _actions(file: Path) -> Iterator[Mapping[str, Any]]:
    """Yields what one commit did.

    Raises:
        JobError: the file is not there any longer, or is damaged.
    """
    try:
        with file.open(encoding="utf-8") as lines:
            yield from map(json.loads, lines)
    except (OSError, ValueError) as error:
        raise JobError(
            f"the commit {file} of the Delta table cannot be read: {error}",
            remedy="start again; if this comes again, bring back the whole lake from a backup, or rebuild the copies "
            "with the same command and --rebuild",
        ) from error


def _listed(properties: Mapping[str, str]) -> str:
    return ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
