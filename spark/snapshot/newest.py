"""The newest state of tables, which may be written all the while: read on until a position is proven for all of them.

A later position is proven more easily than an earlier one. Behind the first look at a long log little is left to read,
so that a partition either did not grow in that time, or has records below the new position that are too young for the
cleaner (``past.py``, the first and the third proof). Records are kept on the executors' disks, so that the
position can be chosen when they are read.
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
"""Two or three do unless ``min.compaction.lag.ms`` is shorter than a round; then each is another chance of a pause."""

_COVERED_TIMEOUT_S: Final = 600.0
"""For the end of a source transaction so big that it is published in parts; 600 s are some 30 million rows."""


_NONE: Final = LSN(0)


@dataclass(frozen=True, slots=True)
class Log:
    """A topic's records.

    Attributes:
        records: as from ``read_topic``.
        extent: where they lie.
        began_ms: not after the first was read.
        newest: the highest LSN among them.
        is_proven: they tell the state at the position that is asked for, whatever was erased.
        remedy: what to do when they do not, if it is known better than from the records.
    """

    records: DataFrame
    extent: Extent
    began_ms: int
    newest: LSN = _NONE
    is_proven: bool = False
    remedy: str = ""


def unread(spark: SparkSession, kafka: KafkaSettings, extent: Extent) -> Log:
    """The log as Kafka has it, read when it is used."""
    return Log(read_topic(spark, kafka, extent), extent, time.time_ns() // 1_000_000)


def read_on(
    spark: SparkSession, job: SnapshotJob, brokers: Brokers, published: PublishedPoint
) -> tuple[PublishedPoint, Mapping[str, Log]]:
    """The newest position that is proven for each table, or at least the newest; and by topic what was read.

    Raises:
        NotCaughtUp: a transaction of which a part was read is not published whole in time.
    """
    logs: dict[str, Log] = {}
    for count in range(ROUNDS):
        if count:
            beyond = LSN(max(each.newest for each in logs.values()) + 1)
            published = wait_published(brokers, job.stream, max(published.lsn, beyond), _COVERED_TIMEOUT_S)
        for table in job.tables:
            logs[table.topic] = _read_to_end(spark, job.kafka, brokers, table.topic, logs.get(table.topic), published)
        if all(each.is_proven for each in logs.values()):
            break
    return published, logs


def keep(records: DataFrame) -> DataFrame:
    """Read them now, and once. Not a cache: a lost cache would be read again from a log that went on."""
    return records.localCheckpoint(eager=True, storageLevel=StorageLevel.DISK_ONLY)


def _read_to_end(
    spark: SparkSession, kafka: KafkaSettings, brokers: Brokers, topic: str, log: Log | None, published: PublishedPoint
) -> Log:
    """All that ``published`` speaks of, for the ends are asked after it was read."""
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
