"""Reads a topic as a DataFrame: committed records between pinned offsets, and the fields of their header ``cdc``."""

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
"""Matches every header that the bridge writes, and none with a field that a cast would fail on, because a record that
somebody else wrote must not end a job. Java and Python read this pattern alike."""

GROUP_PREFIX: Final = "cdc-spark"
"""The prefix of every consumer's group id, so that one prefixed ACL covers them; offsets are never committed."""


def read_topic(
    spark: SparkSession, kafka: KafkaSettings, extent: Extent, min_partitions: int | None = None
) -> DataFrame:
    """Reads the committed records of ``extent``.

    Returns:
        ``key`` binary, ``value`` binary (null for a tombstone), ``partition`` int, ``offset`` bigint, ``timestamp_ms``
        bigint (when the record was produced), ``header`` string (the header ``cdc``, null if it is missing or not of
        the contract), ``other_header`` string (a header ``cdc`` that is not of the contract).
    """
    return read_topics(spark, kafka, [extent], min_partitions).drop("topic")


def read_topics(
    spark: SparkSession, kafka: KafkaSettings, extents: Sequence[Extent], min_partitions: int | None = None
) -> DataFrame:
    """Reads the committed records of several topics, in the form of ``read_topic`` with a column ``topic``."""
    reader = (
        spark.read.format("kafka")
        .options(**connector_options(kafka))
        .option("kafka.isolation.level", "read_committed")
        .option("groupIdPrefix", GROUP_PREFIX)
        .option("subscribe", ",".join(each.topic for each in extents))
        .option("includeHeaders", "true")
        # Gaps that compaction left do not count as loss. An offset below the log's start does, and must fail.
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
    """Returns a field of the header as a string, null if it is missing. A regex would take three times as long."""
    text = fn.concat(fn.lit(";"), fn.col("header") if header is None else header)
    marker = f";{name}="
    return fn.when(fn.contains(text, fn.lit(marker)), fn.substring_index(fn.substring_index(text, marker, -1), ";", 1))


def lsn_number(text: Column) -> Column:
    """Turns an LSN's text ``X/Y`` into a bigint, so that positions can be compared."""
    high = fn.conv(fn.substring_index(text, "/", 1), 16, 10).cast("bigint")
    return fn.shiftleft(high, 32) + fn.conv(fn.substring_index(text, "/", -1), 16, 10).cast("bigint")
