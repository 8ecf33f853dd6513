"""The first look: finds by hashes alone which keys may differ. Nothing that grows with the table leaves Spark.

Both sides are reduced to a few numbers per key, so a row costs about forty bytes of shuffle, and whole rows are read
for candidates only. Unequal hashes need a second look. Equal hashes mean equal rows: two different rows share the same
60 bits once in 10^18 differences.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as fn

from cdc.contract.jobspec.certificate import Bucket
from cdc.spark.reconcile.topic_records import NEWER_BIT, TOMBSTONE
from cdc.spark.source.rows import EXCLUDED
from cdc.spark.stored import store

CANDIDATES_DDL: Final = "key_hash bigint, open_ms bigint"
_SURE: Final = 1


class FirstLook(NamedTuple):
    """The counts of a first look.

    Attributes:
        source_rows: rows of the database.
        live_keys: keys that the topic holds.
        tombstones: keys whose latest record that counts is a tombstone.
        candidates: keys whose hashes differ.
        oldest_open_ms: the smallest timestamp of the records that do not count, of keys that are on neither side; None
            if there are no such keys.
        buckets: the digests of the topic, if they were asked for.
    """

    source_rows: int
    live_keys: int
    tombstones: int
    candidates: int
    oldest_open_ms: int | None
    buckets: tuple[Bucket, ...] = ()

    def is_equal(self, kept_since_ms: int) -> bool:
        """Tells whether no key needs a second look.

        Args:
            kept_since_ms: the result of ``verdict.kept_since_ms``.
        """
        return not self.candidates and (self.oldest_open_ms is None or self.oldest_open_ms > kept_since_ms)


def look(source: DataFrame, topic: DataFrame, folder: str, *, trusts_exclusion: bool = True) -> FirstLook:
    """Joins both sides of a table and writes the candidates to ``folder``.

    Args:
        source: from ``SourceRows.hashes``.
        topic: from ``topic_records.folded``.
        folder: where to write Parquet of ``key_hash`` and ``open_ms``. ``open_ms`` is null for a difference. Otherwise
            the key is on neither side, which is certain only if its oldest record that does not count (produced at
            ``open_ms``) is too young for the cleaner.
        trusts_exclusion: leave out a row that ``--where`` excludes, whatever the topic has.
    """
    rule, counts = _Rule.over_both_sides(trusts_exclusion), Observation()
    joined = source.join(topic, "key_hash", "full_outer").observe(counts, *rule.sums())
    store(joined.where(~rule.sure).select("key_hash", rule.open_ms.alias("open_ms")), folder)
    return _first_look(counts.get)


def look_together(source: DataFrame, topics: DataFrame) -> dict[str, FirstLook]:
    """Joins both sides of several tables, and returns the counts of each table with a row or a record, by topic.

    Args:
        source: from ``rows.hashes_of_many``.
        topics: from ``topic_records.folded``, with a column ``topic``.
    """
    joined = source.join(topics, ["topic", "key_hash"], "full_outer")
    sums = joined.groupBy("topic").agg(*_Rule.over_both_sides().sums()).collect()
    return {row["topic"]: _first_look(row.asDict()) for row in sums}


class _Rule(NamedTuple):
    """The rule of the first look, as columns over the two sides of a key."""

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
        # Foreign records always get a second look, even with the right value.
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
        """Returns the counts, under the names of ``FirstLook``'s attributes."""
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
