"""Turns findings into a report's counts, charts and samples. Spark counts; the driver gets only what a page shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, cast

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as fn

from cdc.contract.jobspec.deployment import JobTable
from cdc.spark.report.model import Bar, ColumnDifferences, DifferenceClass, Example, Histograms, Sample, Side

_DIFFERENCES: Final = ("missing_in_topic", "extra_in_topic", "value_mismatch", "foreign")
_OF_REPLICA: Final[Mapping[str, str]] = {
    # Here the database that was read is the replica: a row that the topic lacks is one too many in the replica.
    "missing_in_topic": "extra_in_replica",
    "extra_in_topic": "missing_in_replica",
}
_SHOWN: Final = (*_DIFFERENCES, "in_flight", "unverifiable")
"""The classes that get samples: first the differences, then what could not be judged."""

_MOST_CAUSES: Final = 20
_MOST_BARS: Final = 256
_DAY_US: Final = 86_400_000_000
_HOUR_US: Final = 3_600_000_000


def differing(findings: DataFrame) -> DataFrame:
    """Keeps only the keys that are proven to differ."""
    return findings.where(fn.col("difference").isin(*_DIFFERENCES))


def counted(findings: DataFrame) -> dict[str, int]:
    """Counts the keys by class; ``with_row`` counts those that have a row in the database and are not identical."""
    rows = findings.groupBy("difference").agg(fn.count("*"), fn.count("source")).collect()
    counts = {row[0]: row[1] for row in rows}
    counts["with_row"] = sum(row[2] for row in rows if row[0] != "identical")
    return counts


def of_side(difference: str, side: Side) -> DifferenceClass:
    """Returns the report's word for a class."""
    return cast("DifferenceClass", _OF_REPLICA.get(difference, difference) if side == "replica" else difference)


def samples(findings: DataFrame, side: Side, limit: int) -> tuple[Sample, ...]:
    """Returns the first keys of each class, up to ``limit``."""
    place = fn.row_number().over(Window.partitionBy("difference").orderBy("key"))
    first = (
        findings.where(fn.col("difference").isin(*_SHOWN)).withColumn("place", place).where(fn.col("place") <= limit)
    )
    chosen = sorted(first.collect(), key=lambda row: (_SHOWN.index(row["difference"]), row["place"]))
    return tuple(_sample(row, side) for row in chosen)


def columns(findings: DataFrame, table: JobTable) -> tuple[ColumnDifferences, ...]:
    """Returns how each column differs, for the columns that differ in some row."""
    mismatches = findings.where(fn.col("difference") == "value_mismatch")
    each = mismatches.select(fn.explode("differing").alias("name"), "source", "other", "cause").select(
        "name",
        fn.col("source")[fn.col("name")].alias("source"),
        fn.col("other")[fn.col("name")].alias("other"),
        fn.substring_index("cause", ":", 1).alias("kind"),
    )
    number = "decimal(38,10)"
    distance = fn.abs(fn.col("source").try_cast(number) - fn.col("other").try_cast(number))
    pair = fn.struct("source", "other")
    rows = (
        each.groupBy("name")
        .agg(
            fn.count("*").alias("mismatches"),
            fn.count(fn.when(fn.col("source").isNull() != fn.col("other").isNull(), 1)).alias("null_or_value"),
            fn.max(distance).alias("distance"),
            fn.min(pair).alias("least"),
            fn.max(pair).alias("most"),
            fn.min("kind").alias("kind"),
            (fn.min("kind") == fn.max("kind")).alias("one_kind"),
        )
        .orderBy(fn.desc("mismatches"), "name")
        .collect()
    )
    types = {column.name: column.sql_type for column in table.columns}
    return tuple(_column(row, types) for row in rows)


def charts(findings: DataFrame) -> tuple[tuple[Bar, ...], Histograms]:
    """Counts the differences by kind of cause, and by commit time, partition and key bucket."""
    found = differing(findings)
    unit_us = _unit_us(found)
    counted_by = {
        "kind": fn.substring_index("cause", ":", 1),
        "slot": fn.floor(fn.col("commit_ts_us") / unit_us),
        "partition": fn.col("partition"),
        "bucket": fn.col("bucket"),
    }
    # One query for all four. grouping_id() has a bit for each column; the one that a row is grouped by has a 0.
    groups = found.select(*[by.alias(name) for name, by in counted_by.items()]).groupingSets(
        [[fn.col(name)] for name in counted_by], *counted_by
    )
    counts: dict[str, dict[Any, int]] = {name: {} for name in counted_by}
    names = dict(zip((0b0111, 0b1011, 0b1101, 0b1110), counted_by, strict=True))
    for row in groups.agg(fn.grouping_id().alias("others"), fn.count("*").alias("count")).collect():
        name = names[row["others"]]
        if row[name] is not None:
            counts[name][row[name]] = row["count"]
    kinds = sorted(counts["kind"].items(), key=lambda each: (-each[1], each[0].encode()))
    return _bars(kinds[:_MOST_CAUSES], str), Histograms(
        by_commit_time=_bars(sorted(counts["slot"].items()), lambda slot: _moment(slot * unit_us)[:16] + "Z"),
        by_partition=_bars(sorted(counts["partition"].items())[:_MOST_BARS], "partition {}".format),
        by_bucket=_bars(sorted(counts["bucket"].items())[:_MOST_BARS], str),
    )


def _unit_us(found: DataFrame) -> int:
    """Chooses the time span of a bar, long enough that there are about 60 bars at most."""
    span = found.agg(fn.min("commit_ts_us").alias("first"), fn.max("commit_ts_us").alias("last")).collect()[0]
    if span["first"] is None:
        return _DAY_US
    units = (60_000_000, _HOUR_US, _DAY_US)
    return next((unit for unit in units if span["last"] - span["first"] <= 60 * unit), 30 * _DAY_US)


def _bars(counts: Iterable[tuple[Any, int]], label: Callable[[Any], str]) -> tuple[Bar, ...]:
    return tuple(Bar(label=label(value), count=count) for value, count in counts)


def _column(row: Row, types: Mapping[str, str]) -> ColumnDifferences:
    pairs: Iterable[Any] = dict.fromkeys((tuple(row["least"]), tuple(row["most"])))
    return ColumnDifferences(
        name=row["name"],
        sql_type=types.get(row["name"], ""),
        mismatches=row["mismatches"],
        null_or_value=row["null_or_value"],
        largest_difference=None if row["distance"] is None else f"{row['distance'].normalize():f}",
        examples=tuple(Example(source=source, other=other) for source, other in pairs),
        hint=f"all of them: {row['kind']}" if row["one_kind"] and row["kind"] and row["mismatches"] > 1 else "",
    )


def _sample(row: Row, side: Side) -> Sample:
    # For a replica the topic takes the source's place, and the database that was read is the other side.
    source, other = (row["other"], row["source"]) if side == "replica" else (row["source"], row["other"])
    return Sample(
        side=side,
        difference=of_side(row["difference"], side),
        key=row["key"],
        source=source,
        other=other,
        differing=tuple(row["differing"] or ()),
        partition=row["partition"],
        offset=row["offset"],
        op=row["op"],
        lsn=row["lsn"],
        seq=row["seq"],
        xid=row["xid"],
        commit_time=None if row["commit_ts_us"] is None else _moment(row["commit_ts_us"]) + "Z",
        cause=row["cause"],
    )


def _moment(microseconds: int) -> str:
    return datetime.fromtimestamp(microseconds / 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")
