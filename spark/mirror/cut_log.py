"""``_cdc_cuts``, the table that makes many tables one: which of their versions together are the source at one LSN.

No format has a transaction over several tables. So after the tables a cut is written, last and in one commit: one row
per table, with the version that belongs to it. Its commit also keeps the positions of all tables, because a table that
got no rows has no commit of its own to keep how far its topic was read.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType, TimestampType

from cdc.base.lsn import LSN
from cdc.contract.jobspec.deployment import JobTable
from cdc.spark.errors import JobError
from cdc.spark.mirror.position import LakePosition
from cdc.spark.mirror.versioned import MARKS, OTHER_FOLDER, VersionedFormat

NAME: Final = "_cdc_cuts"
_COLUMNS: Final = StructType(
    [
        StructField("cut", LongType()),
        StructField("lsn", StringType()),
        StructField("lsn_number", LongType()),
        StructField("at", TimestampType()),
        StructField("table", StringType()),
        StructField("folder", StringType()),
        StructField("version", LongType()),
        StructField("is_exact", BooleanType()),
    ]
)
_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS
_MARK: Final = f"{MARKS}cuts"


class CutTable(NamedTuple):
    """One table in a cut: its version, its position, and whether it is proven to equal its source there."""

    table: JobTable
    version: int
    position: LakePosition
    is_exact: bool


class MadeCut(NamedTuple):
    """One cut: when it was made, and whether it is exact for all tables."""

    number: int
    at_ms: int
    is_exact: bool


class CutLog:
    """The cuts of a lake.

    Args:
        spark: a session that knows the format.
        tables: the format.

    Raises:
        JobError: the folder ``_cdc_cuts`` holds something else.
    """

    def __init__(self, spark: SparkSession, tables: VersionedFormat) -> None:
        self._spark = spark
        self._kept = tables.cuts_kept
        self._table = tables.table(NAME)
        self._count = 0
        self._told: dict[str, Any] = {}
        if self._table.exists():
            if _MARK not in self._table.properties():
                raise self._other()
            self._told = next(filter(None, (_parsed(told) for _, told in self._table.commits())), {})
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

    def make(self) -> None:
        """Makes the table if there is none."""
        if not self._table.exists():
            self._table.create(_COLUMNS, {_MARK: "1"}, "{}")

    def write(self, lsn: LSN, at_ms: int, tables: Iterable[CutTable], tended_ms: int) -> None:
        """Appends a cut in one commit.

        Raises:
            JobError: another process wrote a cut since this one read or wrote the last.
        """
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
        self._table.append(self._spark.createDataFrame(rows, _COLUMNS).coalesce(1), json.dumps(told), number)
        self._count, self._told = number, told

    def forget(self, topics: Iterable[str]) -> None:
        """Removes tables from all cuts: their former versions are no longer to be trusted."""
        if self._count == 0:
            return
        gone = set(topics)
        self._told["positions"] = {name: each for name, each in self._told["positions"].items() if name not in gone}
        names = ", ".join(f"'{each}'" for each in sorted(gone))
        # A number that no cut has: another mirror's cut, which may name these versions, cannot come after this commit.
        self._count += 1
        self._told["cut"] = self._count
        self._table.delete(f"folder IN ({names})", json.dumps(self._told), self._count)

    def expire(self, keep_days: int) -> Mapping[str, set[int]]:
        """Removes cuts, except the last one, and packs the rest into few files.

        Returns:
            The versions that the kept cuts need, by the folder of their table.
        """
        told = json.dumps(self._told)
        cuts = [
            MadeCut(row["cut"], row["at_ms"], row["is_exact"])
            for row in self._table.rows()
            .groupBy("cut")
            .agg(fn.min(fn.unix_millis("at")).alias("at_ms"), fn.min("is_exact").alias("is_exact"))
            .collect()
        ]
        if gone := superseded(cuts, time.time_ns() // 1_000_000, keep_days, self._kept):
            self._table.delete(f"cut IN ({', '.join(map(str, sorted(gone)))})", told)
        self._table.compact(told)
        self._table.tend(())
        needed: dict[str, set[int]] = {}
        for row in self._table.rows().select("folder", "version").distinct().collect():
            needed.setdefault(row["folder"], set()).add(row["version"])
        return needed

    def _other(self) -> JobError:
        return JobError(f"{self._table.folder} holds another table", remedy=OTHER_FOLDER)


def superseded(cuts: Iterable[MadeCut], now_ms: int, keep_days: int, kept: int | None) -> set[int]:
    """Returns which cuts to remove, never the newest.

    Args:
        cuts: all cuts.
        now_ms: the present time.
        keep_days: cuts that are older are removed.
        kept: about how many to keep of those that are older than an hour, evenly spread; None for all.
    """
    found = sorted(cuts, key=lambda each: (not each.is_exact, each.number))  # an exact one is kept before another
    gone = {each.number for each in found if each.at_ms < now_ms - keep_days * _DAY_MS}
    if kept is not None:
        step_ms, taken = keep_days * _DAY_MS // kept, set[int]()
        for each in found:
            if each.number in gone or each.at_ms >= now_ms - _HOUR_MS:
                continue
            if each.at_ms // step_ms in taken:
                gone.add(each.number)
            taken.add(each.at_ms // step_ms)
    return gone - {max((each.number for each in found), default=0)}


def _parsed(text: str | None) -> dict[str, Any] | None:
    try:
        found = json.loads(text or "")
    except ValueError:
        return None
    return found if isinstance(found, dict) and "cut" in found else None
