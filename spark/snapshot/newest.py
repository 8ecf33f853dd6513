"""Reads the newest state of tables while they are being written: reads on until a position is proven for all of them.

A later position is easier to prove than an earlier one. After the first pass over a long log little is left to read.
So a partition either did not grow in that time, or has records below the new position that are too young for the
cleaner (the first and the third proof in ``past.py``). The records are kept on the executors' disks, so the position
can be chosen after they were read.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.storagelevel import StorageLevel

from cdc.base.lsn import LSN
from cdc.contract.jobspec.deployment import KafkaSettings
from cdc.contract.jobspec.snapshot import SnapshotJob
from cdc.spark.offsets import Brokers, Extent
from cdc.spark.snapshot.fold import below_lsn, place_of, with_headers
from cdc.spark.snapshot.past import PartitionEvidence, judge
from cdc.spark.snapshot.point import PublishedPoint, wait_published
from cdc.spark.snapshot.proof import reading_of
from cdc.spark.topic import read_topic

ROUNDS: Final = 10
"""How often to read on. Two or three rounds are enough unless ``min.compaction.lag.ms`` is shorter than a round; then
each round is another chance to meet a pause in the writing."""

_COVERED_TIMEOUT_S: Final = 600.0
"""How long to wait for the end of a source transaction that is published in parts; 600 s are about 30 million rows."""


_NONE: Final = LSN(0)


@dataclass(frozen=True, slots=True)
class Log:
    """A topic's records.

    Attributes:
        records: the records, with the columns of ``read_topic``.
        extent: the offsets that were read.
        began_ms: a time before the first record was read.
        newest: the highest LSN among the records.
        is_proven: the records tell the state at the position that is asked for, whatever was erased.
        remedy: what to do when they do not, if the caller knows better than the records tell.
    """

    records: DataFrame
    extent: Extent
    began_ms: int
    newest: LSN = _NONE
    is_proven: bool = False
    remedy: str = ""


def unread(spark: SparkSession, kafka: KafkaSettings, extent: Extent) -> Log:
    """Returns a log whose records are read from Kafka only when they are used."""
    return Log(read_topic(spark, kafka, extent), extent, time.time_ns() // 1_000_000)


def read_on(
    spark: SparkSession, job: SnapshotJob, brokers: Brokers, published: PublishedPoint
) -> tuple[PublishedPoint, Mapping[str, Log]]:
    """Returns the newest position, proven for each table if possible, and what was read from each topic.

    Raises:
        NotCaughtUp: part of a transaction was read, and the rest is not published in time.
    """
    logs: dict[str, Log] = {}
    for count in range(ROUNDS):
        if count:
            # One past the newest record read: everything read so far then lies below the position.
            beyond = LSN(max(each.newest for each in logs.values()) + 1)
            published = wait_published(brokers, job.stream, max(published.lsn, beyond), _COVERED_TIMEOUT_S)
        for table in job.tables:
            logs[table.topic] = _read_to_end(spark, job.kafka, brokers, table.topic, logs.get(table.topic), published)
        if all(each.is_proven for each in logs.values()):
            break
    return published, logs


def keep(records: DataFrame) -> DataFrame:
    """Reads the records now, and only once. A cache would not do: Spark reads a lost one again, from a newer log."""
    return records.localCheckpoint(eager=True, storageLevel=StorageLevel.DISK_ONLY)


def _read_to_end(
    spark: SparkSession, kafka: KafkaSettings, brokers: Brokers, topic: str, log: Log | None, published: PublishedPoint
) -> Log:
    """Reads everything that ``published`` covers: the ends are asked after the progress was read."""
    extent = brokers.extent(topic)
    if log is None:
        began_ms = time.time_ns() // 1_000_000
        records = keep(read_topic(spark, kafka, extent))
    else:
        brokers.refuse_another(log.extent)
        began_ms, records = log.began_ms, log.records
        if extent.ends != log.extent.ends:
            records = records.union(keep(read_topic(spark, kafka, extent.after(log.extent.ends))))
        extent = replace(log.extent, ends=extent.ends)
    ends = brokers.extent(topic).ends
    reading = reading_of(brokers.settings(topic), began_ms)
    below = below_lsn(published.lsn)
    told = with_headers(records).groupBy("partition").agg(
        fn.max(fn.when(below, fn.col("place"))).alias("below"),
        fn.min(fn.when(~below, fn.col("place"))).alias("bound"),
        fn.max("lsn").alias("newest"),
    )  # fmt: skip
    found = {row["partition"]: row for row in told.collect()}
    is_proven = True
    for partition, end in enumerate(extent.ends):
        row = found.get(partition)
        last, first = (None, None) if row is None else (place_of(row["below"]), place_of(row["bound"]))
        quiet = ends[partition] <= end
        is_proven &= judge(PartitionEvidence(partition, quiet, last, first, None, None, None), reading) is None
    newest = max((row["newest"] or 0 for row in found.values()), default=0)
    return Log(records, extent, began_ms, LSN(newest), is_proven)
