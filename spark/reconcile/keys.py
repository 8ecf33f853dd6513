"""The keys of a second look: all keys, a few that can be listed, or many that only Spark can hold."""

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
"""Up to this many keys are named in the query to the database; for more, Spark picks the rows."""

_ONE_TASKS: Final = 200
"""Up to this many keys are left to one task: dividing them costs more than it saves."""


@dataclass(frozen=True, slots=True)
class Keys:
    """A set of keys by their ``key_hash``; by default all keys.

    Attributes:
        count: how many keys; None for all.
        listed: the hashes, if they are few.
        frame: a DataFrame of the hashes, if they are many.
    """

    count: int | None = None
    listed: tuple[int, ...] | None = None
    frame: DataFrame | None = None

    @property
    def is_empty(self) -> bool:
        """True if there are no keys."""
        return self.count == 0

    def only(self, rows: DataFrame) -> DataFrame:
        """Keeps the rows that have one of these keys in their column ``key_hash``."""
        if self.listed is not None:
            return rows.where(f"key_hash IN ({listed(self.listed)})")
        return rows if self.frame is None else rows.join(self.frame, "key_hash", "left_semi")

    def together(self, rows: DataFrame) -> DataFrame:
        """Puts the rows of these keys into one Spark partition if they are so few that a shuffle would not pay."""
        return rows.coalesce(1) if self.count is not None and self.count <= _ONE_TASKS else rows


def keys_in(rows: DataFrame) -> Keys:
    """Returns the distinct keys in the column ``key_hash``."""
    hashes = rows.select("key_hash")
    some = hashes.limit(_LISTED + 1).collect()
    if len(some) <= _LISTED:
        return _listing({row["key_hash"] for row in some})
    different = hashes.distinct()
    return Keys(different.count(), frame=different)


def keys_asked_for(spark: SparkSession, job: ReconcileJob, table: JobTable) -> Keys | None:
    """Returns the keys that the job names for a table; None if it wants all."""
    path = job.keys.get(table.qualified_name)
    if path is None:
        return None
    hashes = {int(hashlib.md5(each.key).hexdigest()[:HASH_DIGITS], 16) for each in read_keys(Path(path))}
    if len(hashes) <= _LISTED:
        return _listing(hashes)
    return Keys(len(hashes), frame=spark.createDataFrame([(each,) for each in sorted(hashes)], "key_hash bigint"))


def _listing(hashes: set[int]) -> Keys:
    return Keys(len(hashes), listed=tuple(sorted(hashes)))
