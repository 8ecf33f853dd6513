"""Counts a topic's records. Spark does all the aggregation; the driver gets only what fits on a page."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from cdc.spark.health.key_form import logical_form
from cdc.spark.health.model import AliasKeys, DistributionBar, HotKey, Oddities, PartitionHealth, SchemaUse
from cdc.spark.health.records import UNKNOWN, WITHOUT
from cdc.spark.offsets import Extent

EXAMPLES: Final = 10
_HOUR_MS: Final = 3_600_000
AGES: Final[Mapping[str, int]] = {
    "under 1 h": _HOUR_MS,
    "1 h to 1 day": 24 * _HOUR_MS,
    "1 to 7 days": 7 * 24 * _HOUR_MS,
    "7 to 30 days": 30 * 24 * _HOUR_MS,
    "over 30 days": 1 << 62,
}
"""The upper end (exclusive) of each class of age, by label."""
RECORDS_PER_KEY: Final[Mapping[str, int]] = {
    "1": 2,
    "2 to 3": 4,
    "4 to 9": 10,
    "10 to 99": 100,
    "100 to 999": 1000,
    "1000 or more": 1 << 62,
}

_is_latest: Final = "superseded_ms IS NULL AND key IS NOT NULL"


def partitions(records: DataFrame, extent: Extent) -> tuple[PartitionHealth, ...]:
    """Returns one entry for each partition, including empty ones."""
    latest, superseded = fn.expr(_is_latest), fn.col("superseded_ms").isNotNull()
    rows = records.groupBy("partition").agg(
        fn.count("*").alias("records"),
        fn.sum("bytes").alias("bytes"),
        fn.count_if(latest & ~fn.col("is_tombstone")).alias("live_keys"),
        fn.count_if(latest & fn.col("is_tombstone")).alias("tombstones"),
        fn.count_if(superseded).alias("superseded_records"),
        fn.sum(fn.when(superseded, fn.col("bytes")).otherwise(0)).alias("superseded_bytes"),
        fn.min("timestamp_ms").alias("oldest_ms"),
        fn.max("timestamp_ms").alias("newest_ms"),
    )
    found = {row["partition"]: row.asDict() for row in rows.collect()}
    return tuple(
        PartitionHealth(**{"partition": number, **found.get(number, {})}, start=start, end=end)
        for number, (start, end) in enumerate(zip(extent.starts, extent.ends, strict=True))
    )


class Moments(NamedTuple):
    """The ages of tombstones, and since when the oldest superseded record has been waiting for the cleaner."""

    oldest_tombstone_ms: int | None
    expired_tombstones: int
    superseded_since_ms: int | None
    tombstone_ages: tuple[DistributionBar, ...]


def moments(records: DataFrame, now_ms: int, retention_ms: int) -> Moments:
    """Measures how the cleaner keeps up; ``retention_ms`` is the topic's ``delete.retention.ms``."""
    is_tombstone = fn.expr(_is_latest) & fn.col("is_tombstone")
    age = fn.lit(now_ms) - fn.col("timestamp_ms")
    row = records.agg(
        fn.min(fn.when(is_tombstone, fn.col("timestamp_ms"))).alias("oldest_tombstone_ms"),
        fn.count_if(is_tombstone & (age > retention_ms)).alias("expired_tombstones"),
        fn.min("superseded_ms").alias("superseded_since_ms"),
        *_histogram(age, AGES, is_tombstone),
    ).first()
    assert row is not None
    fields = row.asDict()
    return Moments(
        fields["oldest_tombstone_ms"],
        fields["expired_tombstones"],
        fields["superseded_since_ms"],
        _bars(fields, AGES),
    )


def keys(records: DataFrame, top: int) -> tuple[tuple[DistributionBar, ...], tuple[HotKey, ...]]:
    """Returns how many records keys have, and the keys with the most."""
    by_key = records.where("key IS NOT NULL").groupBy("partition", "key").agg(
        fn.count("*").alias("records"), fn.sum("bytes").alias("bytes")
    )  # fmt: skip
    row = by_key.agg(*_histogram(fn.col("records"), RECORDS_PER_KEY, fn.lit(True))).first()
    hottest = by_key.orderBy(fn.desc("records"), fn.desc("bytes"), "partition", "key").limit(top).collect()
    assert row is not None
    hot = tuple(HotKey(key=_text(each["key"]), **_without(each.asDict(), "key")) for each in hottest)
    return _bars(row.asDict(), RECORDS_PER_KEY), hot


def oddities(records: DataFrame, numeric: Collection[str]) -> tuple[Oddities, tuple[AliasKeys, ...], tuple[str, ...]]:
    """Counts what a state topic should not hold, and returns examples of alias keys and of keys in two partitions."""
    latest = fn.expr(_is_latest)
    counts = records.agg(
        fn.count_if(fn.col("header_kind") == WITHOUT).alias("without_header"),
        fn.count_if(fn.col("header_kind") == UNKNOWN).alias("unknown_version"),
        fn.count_if(fn.col("key").isNull()).alias("without_key"),
        fn.count_if(latest & fn.col("is_null_word")).alias("null_values"),
    ).first()
    assert counts is not None
    by_key = (
        records.where(latest)
        .groupBy("key")
        .agg(fn.count("*").alias("places"), fn.bool_or(~fn.col("is_tombstone")).alias("live"))
    )
    split = by_key.where("places > 1")
    members = frozenset(numeric)
    form = fn.udf(lambda key: logical_form(bytes(key), members), "string", useArrow=True)
    formed = by_key.withColumn("form", form("key"))
    groups = (
        formed.where("form IS NOT NULL")
        .groupBy("form")
        .agg(
            fn.count("*").alias("spellings"),
            fn.count_if("live").alias("live"),
            # Two spellings are enough: a list of all of them could be of any length.
            fn.array(fn.min("key"), fn.max("key")).alias("keys"),
        )
        .where("spellings > 1")
    )
    totals = groups.agg(fn.count("*").alias("groups"), fn.count_if(fn.col("live") > 1).alias("live")).first()
    assert totals is not None
    examples = groups.orderBy(fn.desc("live"), "form").limit(EXAMPLES).collect()
    return (
        Oddities(
            **counts.asDict(),
            not_json_keys=formed.where("form IS NULL").count(),
            alias_groups=totals["groups"],
            live_alias_groups=totals["live"],
            split_keys=split.count(),
        ),
        tuple(AliasKeys(keys=tuple(map(_text, each["keys"])), live=each["live"]) for each in examples),
        tuple(_text(each["key"]) for each in split.orderBy("key").limit(EXAMPLES).collect()),
    )


def schemas(records: DataFrame, columns: Mapping[str, int]) -> tuple[SchemaUse, ...]:
    """Returns at most 1,000 definitions that records refer to: unknown ones first, then in the schemas topic's order.

    Args:
        columns: the number of columns by fingerprint, in the order of the schemas topic.
    """
    rows = (
        records.where("schema IS NOT NULL")
        .groupBy("schema")
        .agg(
            fn.count("*").alias("records"),
            fn.count_if(fn.expr(_is_latest) & ~fn.col("is_tombstone")).alias("live_keys"),
            fn.min("timestamp_ms").alias("oldest_ms"),
            fn.max("timestamp_ms").alias("newest_ms"),
        )
        .orderBy("oldest_ms", "schema")
        .limit(1000)
        .collect()
    )
    place = {fingerprint: number for number, fingerprint in enumerate(columns)}
    used = [
        SchemaUse(fingerprint=row["schema"], columns=columns.get(row["schema"]), **_without(row.asDict(), "schema"))
        for row in rows
    ]
    return tuple(sorted(used, key=lambda each: place.get(each.fingerprint, -1)))


def _histogram(value: Column, bounds: Mapping[str, int], where: Column) -> Iterable[Column]:
    lower = -(1 << 62)
    for label, upper in bounds.items():
        yield fn.count_if(where & (value >= lower) & (value < upper)).alias(label)
        lower = upper


def _bars(row: Mapping[str, int], bounds: Mapping[str, int]) -> tuple[DistributionBar, ...]:
    return tuple(DistributionBar(label=label, count=row[label]) for label in bounds)


def _text(key: bytes) -> str:
    return bytes(key).decode("utf-8", "backslashreplace")


def _without(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {each: value for each, value in fields.items() if each != name}
