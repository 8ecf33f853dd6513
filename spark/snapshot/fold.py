"""Folds a topic at a bound with Spark: finds the record that is each key's state, and evidence of erased records.

Only totals and one row per partition reach the driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn
from pyspark.storagelevel import StorageLevel

from cdc.contract.header import INSERT
from cdc.contract.record import TableSchema
from cdc.spark.snapshot.past import LogPlace, PartitionEvidence
from cdc.spark.topic import header_field, lsn_number
from cdc.spark.values.avro import as_object, need_opening, replaced

_PLACE = ("offset", "lsn", "commit_us", "produced_ms")


@dataclass(frozen=True, slots=True)
class Totals:
    """The totals of a fold.

    Attributes:
        records: how many records lie below the bound.
        rows: how many keys have a row as their state.
        tombstones: how many keys have a tombstone as their state.
        row_bytes: total size of the rows' values.
        newest: the newest record of the state; None when the state is empty.
        newest_schema: the fingerprint of that record's definition.
        sums: the rows' MD5s over key and value, split in two halves and each half summed modulo 2^64.
        late: how many keys have a state record that was appended after newer records of other keys. Such a record may
            have made the cleaner erase a newer one of its own key.
        foreign: how many records have no header of ours, or no key.
    """

    records: int
    rows: int
    tombstones: int
    row_bytes: int
    newest: LogPlace | None
    newest_schema: str | None
    sums: tuple[int, int]
    late: int
    foreign: int


def with_headers(records: DataFrame) -> DataFrame:
    """Adds ``place`` and the header's fields (``op``, ``lsn``, ``seq``, …) to the columns of ``read_topic``."""
    told = records.withColumns(
        {
            "op": header_field("op"),
            "lsn": lsn_number(header_field("lsn")),
            "seq": header_field("seq").cast("bigint"),
            "commit_us": header_field("ts").cast("bigint"),
            "schema": header_field("schema"),
            "produced_ms": fn.col("timestamp_ms"),
        }
    )
    return told.withColumn("place", fn.struct(*_PLACE))


def below_lsn(lsn: int) -> Column:
    """Returns a condition: the record's transaction committed before ``lsn``. False for a foreign record."""
    return fn.coalesce(fn.col("lsn") < fn.lit(int(lsn)), fn.lit(False))


def below_offsets(bounds: Mapping[int, int]) -> Column:
    """Returns a condition: the record lies below its partition's offset. True in partitions that are not named."""
    below: Column = fn.lit(True)
    for partition, offset in bounds.items():
        below = fn.when(fn.col("partition") == partition, fn.col("offset") < offset).otherwise(below)
    return below


def fold(
    records: DataFrame, below: Column, *, may_be_late: bool = False, definitions: Iterable[TableSchema] = ()
) -> DataFrame:
    """Returns one row per key, kept on the executors' disks, so that every later query sees what was read now.

    This is a local checkpoint, not a cache: Spark would read a lost cache again, from a log that has grown since.

    Args:
        records: from ``with_headers``.
        below: the condition for records that belong to the state.
        may_be_late: the newest record of a key is the one with the greatest (lsn, seq), not the last in the log.
        definitions: all definitions of the records; without them, values in other forms stay as they are.
    """
    below_place = fn.when(below, fn.col("offset"))
    standing, is_late = below_place, fn.lit(False)
    if may_be_late:
        records = records.withColumn("is_late", _follows_newer())
        is_late = fn.col("is_late")
        # A record may be there twice, once in order and once late: the one in order counts.
        standing = fn.when(below, fn.struct("lsn", "seq", ~is_late, "offset"))
    newest = fn.struct("lsn", "seq", "schema", "place")
    folded = records.groupBy("key").agg(
        fn.max_by(fn.struct("value", "header"), standing).alias("row"),
        fn.max_by(is_late, standing).alias("late"),
        fn.max(fn.when(below, newest)).alias("newest"),
        fn.count(below_place).alias("records"),
        fn.min(fn.when(~below, fn.col("place"))).alias("after"),
        fn.min_by("place", "offset", 2).alias("lowest"),
        fn.min_by("op", "offset").alias("first_op"),
        fn.min("partition").alias("partition"),
        fn.count(fn.when(fn.col("op").isNull() | fn.col("key").isNull(), 1)).alias("foreign"),
    )
    known = list(definitions)
    if need_opening(known):
        row = fn.struct(as_object(known, "row.value", "row.header").alias("value"), "row.header")
        folded = replaced(folded, "row", fn.when(fn.col("row").isNotNull(), row))
    return folded.localCheckpoint(eager=True, storageLevel=StorageLevel.DISK_ONLY)


def _follows_newer() -> Column:
    before = Window.partitionBy("partition").orderBy("offset").rowsBetween(Window.unboundedPreceding, -1)
    position = fn.struct("lsn", "seq")
    return fn.coalesce(fn.max(position).over(before) > position, fn.lit(False))


def totals(folded: DataFrame) -> Totals:
    """Computes the totals of a fold."""
    is_row = fn.col("row.value").isNotNull()
    is_tombstone = fn.col("row").isNotNull() & fn.col("row.value").isNull()
    digest = fn.when(is_row, fn.md5(fn.concat("key", fn.lit(b"\0"), "row.value")))
    # The hash is made of sums, so the order of rows does not matter. Half an MD5 is an unsigned 64-bit number, which
    # only a decimal holds.
    halves = [fn.conv(fn.substring(digest, 1 + 16 * n, 16), 16, 10).cast("decimal(20,0)") for n in (0, 1)]
    found = folded.agg(
        fn.sum("records").alias("records"),
        fn.count(fn.when(is_row, 1)).alias("rows"),
        fn.count(fn.when(is_tombstone, 1)).alias("tombstones"),
        fn.sum(fn.when(is_row, fn.length("row.value"))).alias("row_bytes"),
        fn.max("newest").alias("newest"),
        fn.sum(halves[0]).alias("high"),
        fn.sum(halves[1]).alias("low"),
        fn.count(fn.when(fn.col("late"), 1)).alias("late"),
        fn.sum("foreign").alias("foreign"),
    ).collect()[0]
    newest = found["newest"]
    return Totals(
        records=found["records"] or 0,
        rows=found["rows"],
        tombstones=found["tombstones"],
        row_bytes=found["row_bytes"] or 0,
        newest=None if newest is None else place_of(newest["place"]),
        newest_schema=None if newest is None else newest["schema"],
        sums=(int(found["high"] or 0) % 2**64, int(found["low"] or 0) % 2**64),
        late=found["late"],
        foreign=found["foreign"] or 0,
    )


def state_rows(folded: DataFrame) -> DataFrame:
    """Returns ``value`` and ``header`` of each row of the state."""
    return folded.where(fn.col("row.value").isNotNull()).select("row.value", "row.header")


def evidence(folded: DataFrame, tail: DataFrame | None) -> list[PartitionEvidence]:
    """Returns what log and tail prove about each partition.

    Args:
        folded: from ``fold``.
        tail: the records written since the reading ended, with headers; None when there are none.
    """
    pair = fn.struct(fn.get("lowest", 1).alias("y"), fn.get("lowest", 0).alias("x"))
    is_pair, is_orphan = fn.size("lowest") > 1, fn.col("first_op") != INSERT
    of_log = folded.groupBy("partition").agg(
        fn.max("newest.place").alias("below"),
        fn.min("after").alias("bound"),
        fn.min(fn.when(is_pair, pair)).alias("pair"),
        fn.max(fn.when(is_orphan, fn.get("lowest", 0))).alias("orphan"),
    )
    found = {row["partition"]: _evidence(row) for row in of_log.collect()}
    if tail is None:
        return list(found.values())
    firsts = tail.groupBy("key").agg(
        fn.min("place").alias("first"), fn.min_by("op", "offset").alias("op"), fn.min("partition").alias("partition")
    )
    unknown = firsts.join(folded.select("key", fn.lit(True).alias("known")), "key", "left")
    of_tail = unknown.groupBy("partition").agg(
        fn.min("first").alias("bound"),
        fn.max(fn.when(fn.col("known").isNull() & (fn.col("op") != INSERT), fn.col("first"))).alias("orphan"),
    )
    for row in of_tail.collect():
        found[row["partition"]] = _with_tail(found.get(row["partition"]), row)
    return list(found.values())


def _evidence(row: Any) -> PartitionEvidence:
    pair = row["pair"]
    return PartitionEvidence(
        partition=row["partition"],
        quiet=False,
        below=place_of(row["below"]),
        bound=place_of(row["bound"]),
        superseded=None if pair is None else pair["x"]["offset"],
        superseding=None if pair is None else place_of(pair["y"]),
        orphan=place_of(row["orphan"]),
    )


def _with_tail(log: PartitionEvidence | None, tail: Any) -> PartitionEvidence:
    if log is None:
        log = PartitionEvidence(tail["partition"], False, None, None, None, None, None)
    return PartitionEvidence(
        partition=log.partition,
        quiet=False,
        below=log.below,
        bound=log.bound or place_of(tail["bound"]),
        superseded=log.superseded,
        superseding=log.superseding,
        orphan=place_of(tail["orphan"]) or log.orphan,
    )


def place_of(row: Any) -> LogPlace | None:
    """Turns a collected ``place`` into a ``LogPlace``."""
    return None if row is None else LogPlace(*(row[name] for name in _PLACE))
