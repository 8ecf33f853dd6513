"""First look: by hashes only, which keys may differ. Nothing that grows with the table leaves Spark.

Both sides come down to a few numbers a key, so that a row costs some forty bytes of shuffle; whole rows are read of
candidates only. Unequal hashes need a second look; equal ones are equal rows: that two different ones have the same 60
bits happens once in 10^18 differences.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as fn

from cdc.spark.reconcile.source_rows import EXCLUDED
from cdc.spark.reconcile.topic_records import NEWER_BIT, TOMBSTONE
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


def look(source: DataFrame, topic: DataFrame, folder: str) -> FirstLook:
    """Join both sides and write the candidates to ``folder``.

    Args:
        source: as ``SourceRows.hashes`` returns it.
        topic: as ``topic_records.folded`` returns it.
        folder: Parquet of ``key_hash`` and ``open_ms``: null for a difference; else the key is on neither side, and
            that is sure only if the oldest record that does not count is too young for the cleaner.
    """
    is_excluded = fn.coalesce(fn.col("value_hash") == EXCLUDED, fn.lit(False))
    has_row, is_live = fn.col("value_hash").isNotNull(), fn.coalesce(fn.col("topic_hash") != TOMBSTONE, fn.lit(False))
    newer = is_live & (fn.col("topic_hash") >= NEWER_BIT)
    topic_hash = fn.when(newer, fn.col("topic_hash") - NEWER_BIT).otherwise(fn.col("topic_hash"))
    equal = has_row & is_live & (topic_hash == fn.col("value_hash"))
    on_neither = ~has_row & ~is_live
    scattered = fn.coalesce(fn.col("is_scattered"), fn.lit(False))
    open_ms = fn.when(on_neither & fn.col("topic_hash").isNull() & ~scattered, fn.col("oldest_invisible_ms"))
    sure = is_excluded | ~scattered & (fn.coalesce(equal, fn.lit(False)) | (on_neither & open_ms.isNull()))
    counts = Observation()
    joined = source.join(topic, "key_hash", "full_outer").observe(
        counts,
        _count(has_row & ~is_excluded).alias("source_rows"),
        _count(is_live).alias("live_keys"),
        _count(fn.coalesce(fn.col("topic_hash") == TOMBSTONE, fn.lit(False))).alias("tombstones"),
        _count(~sure & open_ms.isNull()).alias("candidates"),
        fn.min(open_ms).alias("oldest_open_ms"),
    )
    store(joined.where(~sure).select("key_hash", open_ms.alias("open_ms")), folder)
    found = counts.get
    return FirstLook(
        source_rows=found["source_rows"] or 0,
        live_keys=found["live_keys"] or 0,
        tombstones=found["tombstones"] or 0,
        candidates=found["candidates"] or 0,
        oldest_open_ms=found["oldest_open_ms"],
    )


def _count(condition: Column) -> Column:
    return fn.sum(fn.when(condition, _SURE).otherwise(0))
