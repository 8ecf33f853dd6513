"""The topic's side: which records count at a moment, and what they make of each key. All in Spark's own expressions.

The rule is ``spark.reconcile.verdict``; what is computed here are its sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from cdc.base.lsn import LSN
from cdc.spark.reconcile.home import is_stray
from cdc.spark.source.sql import HASH_DIGITS
from cdc.spark.source.visibility import VisibleTransactions
from cdc.spark.topic import header_field, lsn_number

TOMBSTONE: Final = -1
"""In place of ``topic_hash``: no hash is negative."""

NEWER_BIT: Final = 1 << (4 * HASH_DIGITS)
"""Added to ``topic_hash`` of a record that is marked ``toast=newer``; a hash has fewer bits."""


@dataclass(frozen=True, slots=True)
class RecordMoment:
    """When a record counts: at a snapshot of the source, or before a WAL position (a replica's). One of the two.

    Attributes:
        by_position: of a key's records the one with the greatest (lsn, seq) is the latest, as for a sink, which leaves
            out what comes late; else the one with the greatest offset, as for any other reader.
    """

    snapshot: VisibleTransactions | None = None
    lsn: LSN | None = None
    by_position: bool = False

    def counts(self) -> Column:
        """Boolean column over a topic's records; one without a header of ours counts always, as its readers see it."""
        if self.lsn is not None:
            return fn.coalesce(lsn_number(header_field("lsn")) < fn.lit(int(self.lsn)), fn.lit(True))
        assert self.snapshot is not None
        xid = header_field("xid").cast("bigint")
        return (
            fn.when(xid.isNotNull(), sees(self.snapshot, xid))
            .when(fn.contains("header", fn.lit(";snap=")), covers(self.snapshot, header_field("snap")))
            .otherwise(fn.lit(True))
        )

    def order(self) -> Column:
        """Column over a topic's records of one key and partition: the latest has the greatest."""
        if not self.by_position:
            return fn.col("offset")
        return fn.struct(lsn_number(header_field("lsn")), header_field("seq").cast("bigint"), "offset")


def key_hash() -> Column:
    """60 bits of the md5 of the record key, as ``source.sql`` computes them in PostgreSQL."""
    return _bits(fn.md5("key"))


def hashed(records: DataFrame, partitions: int, is_foreign: Column, *also: str) -> DataFrame:
    """Each record with hashes in place of its key and value.

    Args:
        records: as ``read_topic`` returns them.
        partitions: of the topic.
        is_foreign: over the records: see ``origin``.
        also: columns to hand through.

    Returns:
        ``key_hash``; ``partition``, ``offset``, ``timestamp_ms``, ``header`` as they are; ``is_stray``: whether its key
        belongs in another partition; ``is_foreign``; ``topic_hash``: of the value (``TOMBSTONE``, ``NEWER_BIT``).
    """
    marked = fn.concat_ws("", fn.col("value").cast("string"), _null_documents())
    value = fn.when(fn.contains("header", fn.lit(";json_null=")), marked.cast("binary")).otherwise(fn.col("value"))
    is_newer = fn.coalesce(fn.contains("header", fn.lit(";toast=newer")), fn.lit(False))
    place = (*also, "partition", "offset", "timestamp_ms", "header")
    digest = fn.when(fn.col("value").isNotNull(), fn.md5(value))
    rows = records.select(
        key_hash().alias("key_hash"),
        *place,
        is_stray(fn.col("key"), fn.col("partition"), partitions).alias("is_stray"),
        is_foreign.alias("is_foreign"),
        digest.alias("digest"),
        is_newer.alias("is_newer"),
    )
    value_hash = _bits(fn.col("digest")) + fn.when(fn.col("is_newer"), fn.lit(NEWER_BIT)).otherwise(fn.lit(0))
    return rows.select(
        "key_hash",
        *place,
        "is_stray",
        "is_foreign",
        fn.coalesce(value_hash, fn.lit(TOMBSTONE)).alias("topic_hash"),
    )


def folded(lines: DataFrame, moment: RecordMoment, bucket: tuple[int, int] = (0, 1), *also: str) -> DataFrame:
    """One row per key: the sums that the verdict needs.

    Args:
        lines: as ``hashed`` returns them.
        moment: which of them count.
        bucket: number and count of key buckets: only keys of that one.
        also: columns that tell keys apart besides ``key_hash``.

    Returns:
        ``key_hash``; ``topic_hash`` of the latest record that counts, null when none does, and ``is_foreign`` of that
        one; ``oldest_invisible_ms``; ``is_scattered``: whether it has a record outside of its partition, or records in
        several.
    """
    number, count = bucket
    if count > 1:
        lines = lines.where(fn.col("key_hash") % count == number)
    rows = lines.select(
        *also,
        "key_hash",
        "partition",
        "is_stray",
        "topic_hash",
        "is_foreign",
        fn.when(moment.counts() | fn.col("is_foreign"), moment.order()).alias("visible_at"),
        "timestamp_ms",
    ).withColumn("invisible_ms", fn.when(fn.col("visible_at").isNull(), fn.col("timestamp_ms")))
    return rows.groupBy(*also, "key_hash").agg(
        fn.max_by("topic_hash", "visible_at").alias("topic_hash"),
        fn.max_by("is_foreign", "visible_at").alias("is_foreign"),
        fn.min("invisible_ms").alias("oldest_invisible_ms"),
        (fn.max("is_stray") | (fn.min("partition") != fn.max("partition"))).alias("is_scattered"),
    )


def _null_documents() -> Column:
    """The header's list as ``source.sql.value_json`` writes it: each index with a comma behind it."""
    return fn.concat(header_field("json_null"), fn.lit(","))


def _bits(digest: Column) -> Column:
    return fn.conv(fn.substring(digest, 1, HASH_DIGITS), 16, 10).cast("bigint")


def sees(snapshot: VisibleTransactions, xid: Column) -> Column:
    """``VisibleTransactions.sees``."""
    seen = xid < fn.lit(snapshot.xmax)
    return seen & ~xid.isin(*snapshot.in_progress) if snapshot.in_progress else seen


def covers(snapshot: VisibleTransactions, text: Column) -> Column:
    """Say of the snapshot that a backfill record names what ``VisibleTransactions.covers`` does.

    Most are older than ours as a whole.
    """
    parts = fn.split(text, ":")
    xmax = fn.get(parts, 1).cast("bigint")
    listed = fn.filter(fn.split(fn.get(parts, 2), ","), lambda each: each != "")
    in_progress = fn.transform(listed, lambda each: each.cast("bigint"))
    beyond = fn.greatest(xmax - fn.lit(snapshot.xmax), fn.lit(0))
    none_beyond = beyond == fn.size(fn.filter(in_progress, lambda each: each >= fn.lit(snapshot.xmax)))
    found = none_beyond
    for running in sorted(snapshot.in_progress):
        found = found & ((fn.lit(running) >= xmax) | fn.array_contains(in_progress, fn.lit(running)))
    return fn.when(xmax <= fn.lit(snapshot.xmin), fn.lit(True)).otherwise(found)
