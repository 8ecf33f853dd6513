"""The topic's side of a comparison: which records count at a moment, and the state that they give each key.

This module computes what the rule (``verdict``) needs to know, in Spark's own expressions only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from cdc.base.lsn import LSN
from cdc.spark.certify.digests import ROW_HASH, has_row_hashes
from cdc.spark.reconcile.home import is_stray
from cdc.spark.source.sql import HASH_DIGITS
from cdc.spark.source.visibility import VisibleTransactions
from cdc.spark.topic import header_field, lsn_number

TOMBSTONE: Final = -1
"""The ``topic_hash`` of a tombstone; hashes are never negative."""

NEWER_BIT: Final = 1 << (4 * HASH_DIGITS)
"""Is added to the ``topic_hash`` of a record that is marked ``toast=newer``; it lies above the bits of a hash."""


@dataclass(frozen=True, slots=True)
class RecordMoment:
    """The moment at which a topic is compared: a snapshot of the source, or the LSN of a replica; exactly one of them.

    Attributes:
        snapshot: a record counts if this snapshot of the source sees it.
        lsn: a record counts if it committed before this LSN.
        by_position: the latest record of a key is the one with the greatest (lsn, seq). A sink sees it so, because it
            ignores records that come late. For any other reader it is the one with the greatest offset.
    """

    snapshot: VisibleTransactions | None = None
    lsn: LSN | None = None
    by_position: bool = False

    def counts(self) -> Column:
        """Returns a boolean column over records. A record without our header always counts, because readers see it."""
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
        """Returns a column that orders a key's records within a partition: the latest record has the greatest value."""
        if not self.by_position:
            return fn.col("offset")
        return fn.struct(lsn_number(header_field("lsn")), header_field("seq").cast("bigint"), "offset")


def key_hash() -> Column:
    """Returns 60 bits of the record key's MD5, the same that ``source.sql`` computes in PostgreSQL."""
    return _bits(fn.md5("key"))


def hashed(records: DataFrame, partitions: int, is_foreign: Column, *also: str) -> DataFrame:
    """Replaces each record's key and value with hashes.

    Args:
        records: from ``read_topic``.
        partitions: how many partitions the topic has.
        is_foreign: a boolean column over the records (see ``origin``).
        also: columns to keep.

    Returns:
        ``key_hash``; ``partition``, ``offset``, ``timestamp_ms`` and ``header`` unchanged; ``is_stray``, true if the
        key belongs in another partition; ``is_foreign``; ``topic_hash`` of the value (see ``TOMBSTONE``,
        ``NEWER_BIT``).
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
    """Reduces records to one row per key, with what the verdict needs.

    Args:
        lines: from ``hashed``; with ``digests.ROW_HASH`` or without.
        moment: decides which records count.
        bucket: the number of a key bucket and how many there are; other keys are left out.
        also: columns that tell keys apart besides ``key_hash``.

    Returns:
        ``key_hash``; ``topic_hash`` and ``is_foreign`` of the latest record that counts, null if none does;
        ``oldest_invisible_ms``; ``is_scattered``, true if a record lies outside of the key's own partition, or if
        several partitions have records. ``digests.ROW_HASH`` of the latest record that counts in the key's own
        partition, if the lines have it.
    """
    number, count = bucket
    row_hash = ROW_HASH if has_row_hashes(lines) else ()
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
        # Whether a record is foreign depends on when the source is asked, and a certificate must not.
        *([fn.when(moment.counts() & ~fn.col("is_stray"), fn.col("offset")).alias("home_at")] if row_hash else []),
        *row_hash,
        "timestamp_ms",
    ).withColumn("invisible_ms", fn.when(fn.col("visible_at").isNull(), fn.col("timestamp_ms")))
    return rows.groupBy(*also, "key_hash").agg(
        fn.max_by("topic_hash", "visible_at").alias("topic_hash"),
        fn.max_by("is_foreign", "visible_at").alias("is_foreign"),
        fn.min("invisible_ms").alias("oldest_invisible_ms"),
        (fn.max("is_stray") | (fn.min("partition") != fn.max("partition"))).alias("is_scattered"),
        *(fn.max_by(each, "home_at").alias(each) for each in row_hash),
    )


def _null_documents() -> Column:
    """Returns the header's list in the form of ``source.sql.value_json``: each index followed by a comma."""
    return fn.concat(header_field("json_null"), fn.lit(","))


def _bits(digest: Column) -> Column:
    return fn.conv(fn.substring(digest, 1, HASH_DIGITS), 16, 10).cast("bigint")


def sees(snapshot: VisibleTransactions, xid: Column) -> Column:
    """Computes ``VisibleTransactions.sees`` for a column of transaction ids."""
    seen = xid < fn.lit(snapshot.xmax)
    return seen & ~xid.isin(*snapshot.in_progress) if snapshot.in_progress else seen


def covers(snapshot: VisibleTransactions, text: Column) -> Column:
    """Computes ``VisibleTransactions.covers`` for a column of snapshots, as backfilled records name them.

    Most of them are older than ours as a whole (their xmax is not above our xmin), so that case is checked first.
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
