"""A topic as a DataFrame: committed records between pinned offsets, and what the one header ``cdc`` says of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from cdc.contract.header import HEADER_NAME
from cdc.contract.jobspec.deployment import KafkaSettings
from cdc.spark.kafka_options import connector_options
from cdc.spark.offsets import Extent, offsets_json

HEADER_SHAPE: Final = (
    r"v=1;op=[cudrt];lsn=[0-9A-F]{1,8}/[0-9A-F]{1,8};seq=[0-9]{1,18}"
    r";(?:xid=[0-9]{1,18}|snap=[0-9]{1,18}:[0-9]{1,18}:(?:[0-9]{1,18}(?:,[0-9]{1,18})*)?)"
    r";ts=-?[0-9]{1,16};schema=[0-9a-f]{1,16}"
    r"(?:;(?!(?:v|op|lsn|seq|xid|snap|ts|schema)=)[a-z_]+=[^;\n]*)*"
)
"""All that the bridge writes, and nothing that a cast of a member would fail on: one record that somebody else wrote
must not end a job. Java and Python read this pattern alike."""

GROUP_PREFIX: Final = "cdc-spark"
"""Begins the group id of every consumer, for an ACL on the prefix; offsets are never committed."""


def read_topic(
    spark: SparkSession, kafka: KafkaSettings, extent: Extent, min_partitions: int | None = None
) -> DataFrame:
    """The committed records of ``extent``.

    Returns:
        ``key`` binary, ``value`` binary (null = tombstone), ``partition`` int, ``offset`` bigint, ``timestamp_ms``
        bigint (when it was produced), ``header`` string (null when there is none of ours), ``other_header`` string (one
        of our name that is none of ours).
    """
    return read_topics(spark, kafka, [extent], min_partitions).drop("topic")


def read_topics(
    spark: SparkSession, kafka: KafkaSettings, extents: Sequence[Extent], min_partitions: int | None = None
) -> DataFrame:
    """The committed records of several topics: as of one, and ``topic`` string."""
    reader = (
        spark.read.format("kafka")
        .options(**connector_options(kafka))
        .option("kafka.isolation.level", "read_committed")
        .option("groupIdPrefix", GROUP_PREFIX)
        .option("subscribe", ",".join(each.topic for each in extents))
        .option("includeHeaders", "true")
        # A gap that compaction left is no loss; an offset below the log's start is, and must fail.
        .option("failOnDataLoss", "true")
        .option("startingOffsets", offsets_json({each.topic: each.starts for each in extents}))
        .option("endingOffsets", offsets_json({each.topic: each.ends for each in extents}))
    )
    if min_partitions is not None:
        reader = reader.option("minPartitions", str(min_partitions))
    ours = fn.get(fn.filter("headers", lambda header: header["key"] == HEADER_NAME), 0)["value"]
    text = fn.col("text")
    is_ours = text.rlike(rf"^{HEADER_SHAPE}\z")
    records = reader.load().select("*", ours.cast("string").alias("text"))
    return records.select(
        "topic",
        "key",
        "value",
        "partition",
        "offset",
        fn.unix_millis("timestamp").alias("timestamp_ms"),
        fn.when(is_ours, text).alias("header"),
        fn.when(~is_ours, fn.make_valid_utf8(text)).alias("other_header"),
    )


def header_field(name: str, header: Column | None = None) -> Column:
    """A field of the header as a string, null where it is not there (no regex: a third of its time)."""
    text = fn.concat(fn.lit(";"), fn.col("header") if header is None else header)
    marker = f";{name}="
    return fn.when(fn.contains(text, fn.lit(marker)), fn.substring_index(fn.substring_index(text, marker, -1), ";", 1))


def lsn_number(text: Column) -> Column:
    """``X/Y`` as one bigint, so that positions compare."""
    high = fn.conv(fn.substring_index(text, "/", 1), 16, 10).cast("bigint")
    return fn.shiftleft(high, 32) + fn.conv(fn.substring_index(text, "/", -1), 16, 10).cast("bigint")
