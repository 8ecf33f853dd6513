"""Which keys a second look is about: all, some that can be listed, or many that only Spark can hold."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from cdc.contract.jobspec.deployment import JobTable
from cdc.contract.jobspec.keys_file import read_keys
from cdc.contract.jobspec.reconcile import ReconcileJob
from cdc.spark.source.rows import listed
from cdc.spark.source.sql import HASH_DIGITS

_LISTED: Final = 5_000
"""Up to so many keys the database is asked for just those rows; more are sorted out by Spark."""

_ONE_TASKS: Final = 200
"""Up to so many keys are one task's work: to divide them costs more than it saves."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys by their ``key_hash``; all keys, unless told which.

    Attributes:
        count: how many; None for all.
        listed: the hashes, if these are few.
        frame: has the hashes, if these are many.
    """

    count: int | None = None
    listed: tuple[int, ...] | None = None
    frame: DataFrame | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to look at."""
        return self.count == 0

    def only(self, rows: DataFrame) -> DataFrame:
        """Those with one of these keys, by their column ``key_hash``."""
        if self.listed is not None:
            return rows.where(f"key_hash IN ({listed(self.listed)})")
        return rows if self.frame is None else rows.join(self.frame, "key_hash", "left_semi")

    def together(self, rows: DataFrame) -> DataFrame:
        """Rows of these keys, in one partition when the keys are so few that nothing should be shuffled for them."""
        return rows.coalesce(1) if self.count is not None and self.count <= _ONE_TASKS else rows


def keys_in(rows: DataFrame) -> Keys:
    """The different ones in the column ``key_hash``."""
    hashes = rows.select("key_hash")
    some = hashes.limit(_LISTED + 1).collect()
    if len(some) <= _LISTED:
        return _listing({row["key_hash"] for row in some})
    different = hashes.distinct()
    return Keys(different.count(), frame=different)


def keys_asked_for(spark: SparkSession, job: ReconcileJob, table: JobTable) -> Keys | None:
    """The keys that the job names for a table, None when it wants all."""
    path = job.keys.get(table.qualified_name)
    if path is None:
        return None
    hashes = {int(hashlib.md5(each.key).hexdigest()[:HASH_DIGITS], 16) for each in read_keys(Path(path))}
    if len(hashes) <= _LISTED:
        return _listing(hashes)
    return Keys(len(hashes), frame=spark.createDataFrame([(each,) for each in sorted(hashes)], "key_hash bigint"))


def _listing(hashes: set[int]) -> Keys:
    return Keys(len(hashes), listed=tuple(sorted(hashes)))
