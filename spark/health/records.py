"""Reads one narrow row for each record of a topic: everything that the counting needs, but not the value."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as fn

from cdc.contract.jobspec.deployment import KafkaSettings
from cdc.spark.offsets import Extent
from cdc.spark.topic import header_field, read_topic

OURS: Final = "ours"
WITHOUT: Final = "without"
UNKNOWN: Final = "unknown"


def topic_records(spark: SparkSession, kafka: KafkaSettings, extent: Extent) -> DataFrame:
    """Reads the committed records of ``extent``.

    Returns:
        ``key``, ``partition``, ``offset``, ``timestamp_ms``, ``bytes``, ``is_tombstone``, ``is_null_word`` (an empty
        value or the word null), ``header_kind``, ``schema`` and ``superseded_ms``: when the next record of the same key
        in the same partition was produced; null for the latest one and for records without a key.
    """
    narrow = read_topic(spark, kafka, extent).select(
        "key",
        "partition",
        "offset",
        "timestamp_ms",
        (fn.coalesce(fn.octet_length("key"), fn.lit(0)) + fn.coalesce(fn.octet_length("value"), fn.lit(0)))
        .cast("bigint")
        .alias("bytes"),
        fn.col("value").isNull().alias("is_tombstone"),
        fn.coalesce(fn.col("value").isin(bytearray(b""), bytearray(b"null")), fn.lit(False)).alias("is_null_word"),
        fn.when(fn.col("header").isNotNull(), OURS)
        .when(fn.col("other_header").isNotNull(), UNKNOWN)
        .otherwise(WITHOUT)
        .alias("header_kind"),
        header_field("schema").alias("schema"),
    )
    later = fn.lead("timestamp_ms").over(Window.partitionBy("partition", "key").orderBy("offset"))
    return narrow.withColumn("superseded_ms", fn.when(fn.col("key").isNotNull(), later))
