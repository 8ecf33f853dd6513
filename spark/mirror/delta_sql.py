"""Delta tables in folders, as Spark's SQL takes them: names, positions in commits, one commit at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

SESSION: Final[Mapping[str, str]] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # The log of a mirrored table has a few files. By default each look at it would start 50 tasks.
    "spark.databricks.delta.snapshotPartitions": "2",
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


def quoted(name: str) -> str:
    """Quotes a name for Spark's SQL."""
    return "`" + name.replace("`", "``") + "`"


def columns_of(schema: StructType) -> str:
    """Returns the columns as a CREATE TABLE names them."""
    return ", ".join(f"{quoted(field.name)} {field.dataType.simpleString()}" for field in schema)


class DeltaTable:
    """One table in its folder.

    Args:
        spark: a session with ``SESSION``.
        folder: where the table is, or will be.
    """

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self.folder = folder
        self.name = f"delta.{quoted(str(folder))}"

    def exists(self) -> bool:
        """Tells whether the folder holds a table; one that was killed while it made its first commit holds none."""
        return any((self.folder / _LOG).glob("*.json"))

    def is_taken(self) -> bool:
        """Tells whether the folder holds something that is not a table."""
        return self.folder.exists() and any(each.name != _LOG for each in self.folder.iterdir())

    def schema(self) -> StructType:
        """Returns the table's columns."""
        return self._spark.read.format("delta").load(str(self.folder)).schema

    def properties(self) -> Mapping[str, str]:
        """Returns the table's properties."""
        return {row["key"]: row["value"] for row in self._spark.sql(f"SHOW TBLPROPERTIES {self.name}").collect()}

    def last_commit(self) -> tuple[int, str | None]:
        """Returns the newest version and what its commit tells."""
        (row,) = self._spark.sql(f"DESCRIBE HISTORY {self.name} LIMIT 1").collect()
        return row["version"], row["userMetadata"]

    def told(self) -> Iterator[str]:
        """Yields what commits tell, newest first."""
        for row in self._spark.sql(f"DESCRIBE HISTORY {self.name}").select("userMetadata").collect():
            if row["userMetadata"] is not None:
                yield row["userMetadata"]

    def run(self, statement: str, tells: str, number: int | None = None) -> None:
        """Runs a statement whose commits tell ``tells``; Delta does nothing if the table has one of this number."""
        with self.telling(tells, number):
            self._spark.sql(statement).collect()

    @contextmanager
    def telling(self, tells: str, number: int | None = None) -> Iterator[None]:
        """Makes commits in the block tell ``tells``."""
        settings = {_TOLD: tells} | ({} if number is None else {_APP: _APP_NAME, _NUMBER: str(number)})
        for name, value in settings.items():
            self._spark.conf.set(name, value)
        try:
            yield
        finally:
            for name in settings:
                self._spark.conf.unset(name)
