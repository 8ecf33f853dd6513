"""The records of a batch, whatever they are written to: the last one of each key, and the forms that they use."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from cdc.spark.errors import JobError
from cdc.spark.mirror.definitions import Definitions
from cdc.spark.mirror.position import KeyAside
from cdc.spark.reconcile.home import is_stray
from cdc.spark.topic import header_field
from cdc.spark.values.avro import ids_in

FIND_WRITER: Final = "find who wrote it with cdc health, have the row published again, then start again"
SPARK_FAILED: Final = (PySparkException, Py4JJavaError)
"""What ends a batch. Whoever writes a file gets an error of Java when a task of his fails: pyspark does not know it."""

_REFUSED: Final = re.compile(r"RecordRefused: (.+)")


def latest_of(records: DataFrame, partitions: int) -> DataFrame:
    """Returns the last record of each key: ``key``, ``value``, ``partition``, ``offset``, ``header``.

    Args:
        records: records of one topic.
        partitions: how many partitions the topic has.
    """
    return (
        records.groupBy("key", "partition")
        .agg(fn.max_by(fn.struct("value", "offset", "header"), "offset").alias("last"))
        .select("key", "last.value", "partition", "last.offset", "last.header")
        # A key in the wrong partition was put there by another program; neither it nor the tombstone that repairs it is
        # the row's record.
        .where(~is_stray(fn.col("key"), fn.col("partition"), partitions))
    )


def forms_used() -> Sequence[Column]:
    """Returns aggregates over records that tell in which forms their values are written."""
    return (
        fn.collect_set(fn.when(fn.col("value").isNotNull(), header_field("schema"))).alias("schemas"),
        fn.collect_set(ids_in("value")).alias("written"),
        fn.max(header_field("envelope").isNotNull()).alias("enveloped"),
    )


def are_known(definitions: Definitions, rows: Sequence[Any]) -> bool:
    """Tells whether the definitions say how to read all records; ``rows`` have ``topic`` and ``forms_used``."""
    return (
        definitions.know({each for row in rows for each in row["schemas"]})
        and definitions.know_written((row["topic"], each) for row in rows for each in row["written"])
        and definitions.know_enveloped(row["topic"] for row in rows if row["enveloped"])
    )


def came_again(latest: DataFrame, aside: Collection[KeyAside]) -> Mapping[tuple[int, str], int]:
    """Returns the offset of the last record of each key that stands aside, if the batch has one, by its identity."""
    digest = fn.coalesce(fn.sha2("key", 256), fn.lit(""))
    rows = latest.where(digest.isin([each.digest for each in aside])).select("partition", digest, "offset").collect()
    return {(partition, key): offset for partition, key, offset in rows}


def without(latest: DataFrame, aside: Collection[KeyAside]) -> DataFrame:
    """Returns the records with tombstones in the place of these, so that no older row passes for the newest."""
    offsets: dict[int, list[int]] = {}
    for each in aside:
        offsets.setdefault(each.partition, []).append(each.offset)
    is_aside = fn.lit(False)
    for partition, found in offsets.items():
        is_aside |= (fn.col("partition") == partition) & fn.col("offset").isin(found)
    return latest.withColumn("value", fn.when(~is_aside, fn.col("value")))


def is_refusal(error: Exception) -> bool:
    """Tells whether Spark could not apply a batch because a record cannot be read."""
    return _REFUSED.search(str(error)) is not None


def refusal(error: Exception) -> JobError:
    """Returns the error to end with when Spark could not apply a batch; ``error`` is one of ``SPARK_FAILED``."""
    text = str(error)
    if isinstance(error, Py4JJavaError):
        text = text.partition("\n: ")[2] or text  # what comes before is about the call
    if refused := _REFUSED.search(text):
        return JobError(refused[1], remedy=FIND_WRITER)
    line = next((each for each in reversed(text.splitlines()) if "Error:" in each), text.splitlines()[0])
    return JobError(
        f"a batch could not be applied: {line.strip()}", remedy="start again; each table continues where it stands"
    )
