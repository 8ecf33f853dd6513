"""First look: by hashes only, which keys may differ. Nothing that grows with the table leaves Spark.

Both sides come down to a few numbers a key, so that a row costs some forty bytes of shuffle; whole rows are read of
candidates only. Unequal hashes need a second look; equal ones are equal rows: that two different ones have the same 60
bits happens once in 10^18 differences.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as fn

from cdc.spark.reconcile.topic_records import NEWER_BIT, TOMBSTONE
from cdc.spark.source.rows import EXCLUDED
from cdc.spark.stored import store

CANDIDATES_DDL: Final = "key_hash bigint, open_ms bigint"
_SURE: Final = 1


class FirstLook(NamedTuple):
    """What the hashes say.

    Attributes:
        source_rows: rows of the database.
        live_keys: keys that the topic holds.
        tombstones: keys whose latest record that counts deletes them.
        candidates: keys whose hashes differ.
        oldest_open_ms: of keys on neither side with records that do not count, the smallest timestamp; None without.
    """

    source_rows: int
    live_keys: int
    tombstones: int
    candidates: int
    oldest_open_ms: int | None

    def is_equal(self, kept_since_ms: int) -> bool:
        """Whether no key needs a second look.

        Args:
            kept_since_ms: see ``verdict.kept_since_ms``.
        """
        return not self.candidates and (self.oldest_open_ms is None or self.oldest_open_ms > kept_since_ms)


def look(source: DataFrame, topic: DataFrame, folder: str, *, trusts_exclusion: bool = True) -> FirstLook:
    """Join both sides of a table and write the candidates to ``folder``.

    Args:
        source: as ``SourceRows.hashes`` returns it.
        topic: as ``topic_records.folded`` returns it.
        folder: Parquet of ``key_hash`` and ``open_ms``: null for a difference; else the key is on neither side, and
            that is sure only if the oldest record that does not count is too young for the cleaner.
        trusts_exclusion: a row that is not to be compared is no candidate, whatever the topic has.
    """
    rule, counts = _Rule.over_both_sides(trusts_exclusion), Observation()
    joined = source.join(topic, "key_hash", "full_outer").observe(counts, *rule.sums())
    store(joined.where(~rule.sure).select("key_hash", rule.open_ms.alias("open_ms")), folder)
    return _first_look(counts.get)


def look_together(source: DataFrame, topics: DataFrame) -> dict[str, FirstLook]:
    """Join both sides of several tables; what is found of each that has a row or a record, by its topic.

    Args:
        source: as ``rows.hashes_of_many`` returns it.
        topics: as ``topic_records.folded`` returns it, by topic.
    """
    joined = source.join(topics, ["topic", "key_hash"], "full_outer")
    sums = joined.groupBy("topic").agg(*_Rule.over_both_sides().sums()).collect()
    return {row["topic"]: _first_look(row.asDict()) for row in sums}


class _Rule(NamedTuple):
    """Columns over the two sides of a key."""

    has_row: Column
    is_live: Column
    is_deleted: Column
    sure: Column
    open_ms: Column

    @classmethod
    def over_both_sides(cls, trusts_exclusion: bool = True) -> _Rule:
        is_excluded = fn.coalesce(fn.col("value_hash") < 0, fn.lit(False))
        value_hash = fn.when(is_excluded, EXCLUDED - fn.col("value_hash")).otherwise(fn.col("value_hash"))
        has_row = fn.col("value_hash").isNotNull()
        is_live = fn.coalesce(fn.col("topic_hash") != TOMBSTONE, fn.lit(False))
        newer = is_live & (fn.col("topic_hash") >= NEWER_BIT)
        topic_hash = fn.when(newer, fn.col("topic_hash") - NEWER_BIT).otherwise(fn.col("topic_hash"))
        # What the bridge cannot have written is looked at again, right or not.
        is_foreign = fn.coalesce(fn.col("is_foreign"), fn.lit(False))
        equal = has_row & is_live & (topic_hash == value_hash) & ~is_foreign
        on_neither = ~has_row & ~is_live
        scattered = fn.coalesce(fn.col("is_scattered"), fn.lit(False))
        open_ms = fn.when(on_neither & fn.col("topic_hash").isNull() & ~scattered, fn.col("oldest_invisible_ms"))
        return cls(
            has_row=has_row & ~is_excluded,
            is_live=is_live,
            is_deleted=fn.coalesce(fn.col("topic_hash") == TOMBSTONE, fn.lit(False)),
            sure=(is_excluded & trusts_exclusion)
            | ~scattered & (fn.coalesce(equal, fn.lit(False)) | (on_neither & open_ms.isNull())),
            open_ms=open_ms,
        )

    def sums(self) -> list[Column]:
        """As ``FirstLook`` names them."""
        return [
            _count(self.has_row).alias("source_rows"),
            _count(self.is_live).alias("live_keys"),
            _count(self.is_deleted).alias("tombstones"),
            _count(~self.sure & self.open_ms.isNull()).alias("candidates"),
            fn.min(self.open_ms).alias("oldest_open_ms"),
        ]


def _first_look(found: Mapping[str, Any]) -> FirstLook:
    return FirstLook(
        source_rows=found["source_rows"] or 0,
        live_keys=found["live_keys"] or 0,
        tombstones=found["tombstones"] or 0,
        candidates=found["candidates"] or 0,
        oldest_open_ms=found["oldest_open_ms"],
    )


def _count(condition: Column) -> Column:
    return fn.sum(fn.when(condition, _SURE).otherwise(0))
