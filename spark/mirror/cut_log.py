"""``_cdc_cuts``, the table that makes many tables one: which of their versions together are the source at one LSN.

Delta has no transaction over several tables. So after the tables a cut is written, last and in one commit: one row per
table, with the version that belongs to it. Its commit also keeps the positions of all tables, because a table that got
no rows has no commit of its own to keep how far its topic was read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql import SparkSession

from cdc.base.lsn import LSN
from cdc.contract.jobspec.deployment import JobTable
from cdc.spark.errors import JobError
from cdc.spark.mirror.delta_sql import DeltaTable
from cdc.spark.mirror.position import LakePosition

NAME: Final = "_cdc_cuts"
_COLUMNS: Final = (
    "cut bigint, lsn string, lsn_number bigint, at timestamp, `table` string, folder string, version bigint,"
    " is_exact boolean"
)
_MARK: Final = "cdc.cuts"


class CutTable(NamedTuple):
    """One table in a cut: its version, its position, and whether it is proven to equal its source there."""

    table: JobTable
    version: int
    position: LakePosition
    is_exact: bool


class CutLog:
    """The cuts of a lake.

    Args:
        spark: a session for Delta.
        root: the lake's folder.

    Raises:
        JobError: the folder ``_cdc_cuts`` holds something else.
    """

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self._spark = spark
        self._table = DeltaTable(spark, root / NAME)
        self._count = 0
        self._told: dict[str, Any] = {}
        if self._table.exists():
            if _MARK not in self._table.properties():
                raise self._other()
            self._told = next(filter(None, map(_parsed, self._table.told())), {})
            self._count = self._told.get("cut", 0)
        elif self._table.is_taken():
            raise self._other()

    @property
    def tended_ms(self) -> int | None:
        """When old versions were last removed; None before the first cut."""
        found: int | None = self._told.get("tended_ms")
        return found

    def position(self, topic: str) -> LakePosition | None:
        """Returns a table's position at the last cut that had it."""
        fields = self._told.get("positions", {}).get(topic)
        return None if fields is None else LakePosition.from_fields(fields)

    def make(self, keep_days: int) -> None:
        """Makes the table if there is none."""
        if self._table.exists():
            return
        with self._table.telling("{}"):
            self._spark.sql(
                f"CREATE TABLE {self._table.name} ({_COLUMNS}) USING delta TBLPROPERTIES ('{_MARK}' = '1',"
                f" 'delta.deletedFileRetentionDuration' = 'interval {keep_days} days')"
            )

    def write(self, lsn: LSN, at_ms: int, tables: Iterable[CutTable], tended_ms: int) -> None:
        """Appends a cut in one commit."""
        chosen, number = list(tables), self._count + 1
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
        rows = [
            (number, str(lsn), int(lsn), at, each.table.qualified_name, each.table.topic, each.version, each.is_exact)
            for each in chosen
        ]
        positions = {each.table.topic: each.position.as_fields() for each in chosen}
        told = {
            "cut": number,
            "positions": {**self._told.get("positions", {}), **positions},
            "tended_ms": tended_ms,
        }
        with self._table.telling(json.dumps(told), number):
            frame = self._spark.createDataFrame(rows, _COLUMNS).coalesce(1)
            frame.write.format("delta").mode("append").save(str(self._table.folder))
        self._count, self._told = number, told

    def forget(self, topics: Iterable[str]) -> None:
        """Removes tables from all cuts: their former versions are no longer to be trusted."""
        if self._count == 0:
            return
        gone = set(topics)
        self._told["positions"] = {name: each for name, each in self._told["positions"].items() if name not in gone}
        names = ", ".join(f"'{each}'" for each in sorted(gone))
        self._table.run(f"DELETE FROM {self._table.name} WHERE folder IN ({names})", json.dumps(self._told))

    def expire(self, keep_days: int) -> None:
        """Removes cuts whose versions may be gone soon, except the last one, and packs the rest into few files."""
        told = json.dumps(self._told)
        self._table.run(
            f"DELETE FROM {self._table.name} WHERE cut < {self._count}"
            f" AND at < current_timestamp() - INTERVAL {keep_days} DAYS",
            told,
        )
        self._table.run(f"OPTIMIZE {self._table.name}", told)
        self._table.run(f"VACUUM {self._table.name}", told)

    def _other(self) -> JobError:
        return JobError(f"{self._table.folder} holds another table", remedy="name another folder")


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) and "cut" in found else None
