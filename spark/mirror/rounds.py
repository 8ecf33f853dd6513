"""Copies topics into a lake of tables with versions in rounds.

A round reads all topics up to one LSN, and ends with a cut at that LSN.

Spark's streaming keeps offsets of its own and chooses where a batch ends. Here the tables keep the offsets, and a batch
ends where the bridge's progress says that all tables are whole. Records at the progress or after it wait for the next
round: the offset of their partition stays at the first of them, and what lies after it is read again.

A table that is far from the end of its topic gets there in several rounds, which write no cut.
"""

from __future__ import annotations

import math
import threading
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from cdc.base.lsn import LSN
from cdc.contract.jobspec.mirror import MirrorJob
from cdc.contract.naming import schemas_topic
from cdc.spark.added_partitions import refuse_added_partitions
from cdc.spark.errors import JobError, NotCaughtUp
from cdc.spark.mirror.definitions import Definitions
from cdc.spark.mirror.position import LakePosition, MicroBatch
from cdc.spark.mirror.published import CutPoint, PublishedSoFar
from cdc.spark.mirror.records import SPARK_FAILED, are_known, forms_used, latest_of, refusal
from cdc.spark.mirror.topics import SeenEnds, TopicsOfRun, refuse_if_lost
from cdc.spark.mirror.versioned_lake import VersionedLake
from cdc.spark.offsets import Brokers, Extent
from cdc.spark.snapshot.newest import keep
from cdc.spark.topic import header_field, lsn_number, read_topics
from cdc.spark.values.avro import opened

_PAUSE_S: Final = 0.2
_CUT_EVERY_S: Final = 60.0
"""How often to write a cut though no table changed. It notes that the tables are current."""
_STUCK_S: Final = 60.0
_LAG: Final = "min.compaction.lag.ms"


@dataclass(frozen=True, slots=True)
class Reach:
    """How far one topic gets in a round.

    Attributes:
        ends: the first offset of each partition that is not applied after the round.
        count: how many records are to be applied.
    """

    ends: Mapping[int, int]
    count: int


class CutRounds:
    """One run of the mirror into a lake of tables with versions.

    Args:
        spark: the session.
        job: what to copy, and how.
        lake: applies the batches.
        brokers: the cluster, for offsets and definitions.
        stop: set by a signal; the run then ends after the present round.
    """

    def __init__(
        self, spark: SparkSession, job: MirrorJob, lake: VersionedLake, brokers: Brokers, stop: threading.Event
    ) -> None:
        self._spark = spark
        self._job = job
        self._lake = lake
        self._brokers = brokers
        self._stop = stop
        self._topics = sorted(table.topic for table in job.tables)
        self._names = {table.topic: table.qualified_name for table in job.tables}
        self._definitions = Definitions(brokers, schemas_topic(job.stream.name), self._topics)
        self._progress = PublishedSoFar(brokers, job.stream)
        self._lags = {topic: int(each[_LAG]) for topic, each in brokers.settings_of(self._topics).items()}
        self._run = uuid.uuid4().hex
        self._published = LSN(0)
        self._source: TopicsOfRun
        self._cut_versions: Mapping[str, int] = {}
        self._cut_s = -math.inf
        self._copied = 0
        self._busy_s = 0.0

    @property
    def throughput(self) -> str:
        """How many records were copied and how fast, in words. The time between rounds does not count."""
        rate = f", {self._copied / self._busy_s:,.0f} records/s" if self._copied else ""
        return f"{self._copied:,} records in {self._busy_s:.1f} s of work{rate}"

    def run(self) -> None:
        """Copies until everything is copied (with ``once``) or until ``stop`` is set.

        Raises:
            JobError: a record, a server or a table is in the way, or a run with ``once`` was stopped too early.
        """
        if self._job.rebuild and not self._stop.is_set():
            self._lake.forget()
        if not self._stop.is_set():
            self._lake.establish(self._definitions)
            self._source = TopicsOfRun(self._brokers, self._topics, self._lake.positions())
            refuse_added_partitions(self._brokers, self._job.stream.name, self._source.seen.extents.values())
        moved_s, before = time.monotonic(), self._offsets()
        while not self._stop.is_set():
            try:
                is_at_end = self._round()
            except SPARK_FAILED as error:
                raise refusal(error) from error
            now = self._offsets()
            if self._job.once and is_at_end and self._holds_all(self._source.seen):
                return
            if now != before:
                moved_s, before = time.monotonic(), now
            elif self._job.once and time.monotonic() - moved_s > _STUCK_S:
                raise self._stuck()
            if is_at_end:
                self._stop.wait(_PAUSE_S if self._job.once else max(_PAUSE_S, self._job.interval_s))
        if self._job.once:
            raise JobError(
                "stopped before everything was copied", remedy="start again; it continues after the last whole batch"
            )

    def _round(self) -> bool:
        """Applies what lies below the bridge's progress; tells whether the topics were read to their ends."""
        cut = self._progress.look()
        self._published = cut.lsn
        seen = self._source.look()
        started = time.monotonic()
        positions = self._lake.positions()
        for topic, extent in seen.extents.items():
            refuse_if_lost(positions[topic], extent)
        unread = [_after(extent, positions[topic].offsets) for topic, extent in seen.extents.items()]
        chunks = capped(unread, self._job.records_per_batch)
        read = [each for each in chunks if not each.is_empty]
        if read:
            records = keep(
                read_topics(self._spark, self._job.kafka, read).withColumn("lsn", lsn_number(header_field("lsn")))
            )
            read_ms = time.time_ns() // 1_000_000
            # After the records were read: if the topics are still the same now, the records are theirs.
            self._source.refuse_others()
            self._apply(records, cut, {each.topic: each for each in read})
        else:
            read_ms = time.time_ns() // 1_000_000
        for topic, extent in seen.extents.items():
            position = self._lake.positions()[topic]
            if _reaches(position, extent):
                self._lake.move(topic, position.current(dict(enumerate(extent.ends)), seen.at_ms))
        is_at_end = chunks == unread
        if is_at_end and cut.lsn:
            self._write_cut(cut, read_ms)
        self._busy_s += time.monotonic() - started if read else 0
        return is_at_end

    def _apply(self, records: DataFrame, cut: CutPoint, read: Mapping[str, Extent]) -> None:
        # A record without an LSN is another program's: the table is told, and refuses or takes it.
        below = fn.coalesce(fn.col("lsn") < fn.lit(int(cut.lsn)), fn.lit(True))
        reaches = self._survey(records, below, read)
        positions = self._lake.positions()
        for topic, reached in reaches.items():
            batch = MicroBatch(
                self._run,
                positions[topic].batch + bool(reached.count),
                self._source.began(topic),
                self._source.seen.at_ms,
                self._source.topic_id(topic),
            )
            position = positions[topic].after(batch, reached.ends)
            if reached.count:
                of_topic = records.where((fn.col("topic") == topic) & below)
                latest = latest_of(of_topic, self._source.partitions(topic))
                self._lake.apply(topic, opened(latest, self._definitions.of(topic)), position)
            else:
                self._lake.move(topic, position)
            self._copied += reached.count

    def _survey(self, records: DataFrame, below: Any, read: Mapping[str, Extent]) -> Mapping[str, Reach]:
        """Returns how far each topic gets. If the definitions do not tell how a record is read, reads them again."""
        rows = (
            records.groupBy("topic", "partition")
            .agg(
                fn.min(fn.when(~below, fn.col("offset"))).alias("held"),
                fn.count(fn.when(below, 1)).alias("count"),
                *forms_used(),
            )
            .collect()
        )
        if not are_known(self._definitions, rows):
            self._definitions.read()
            self._lake.establish(self._definitions)
        found = {(row["topic"], row["partition"]): row for row in rows}
        reaches = {}
        for topic, extent in read.items():
            ends, count = dict(enumerate(extent.ends)), 0
            for partition in ends:
                row = found.get((topic, partition))
                if row is not None:
                    ends[partition] = ends[partition] if row["held"] is None else row["held"]
                    count += row["count"]
            reaches[topic] = Reach(ends, count)
        return reaches

    def _write_cut(self, cut: CutPoint, read_ms: int) -> None:
        versions = self._lake.versions()
        if versions == self._cut_versions and time.monotonic() - self._cut_s < _CUT_EVERY_S:
            return
        exact = {
            topic: cut.is_whole(name) and cut.is_proven(read_ms, self._lags[topic])
            for topic, name in self._names.items()
        }
        self._lake.cut(cut.lsn, cut.at_ms, exact)
        self._cut_versions, self._cut_s = self._lake.versions(), time.monotonic()

    def _holds_all(self, seen: SeenEnds) -> bool:
        positions = self._lake.positions()
        return self._cut_s > 0 and all(_reaches(positions[topic], each) for topic, each in seen.extents.items())

    def _offsets(self) -> Mapping[str, Mapping[int, int]]:
        return {topic: position.offsets for topic, position in self._lake.positions().items()}

    def _stuck(self) -> NotCaughtUp:
        positions = self._lake.positions()
        waiting = [
            f"topic {topic}, partition {partition}, offset {positions[topic].offsets.get(partition, 0)}"
            for topic, extent in self._source.seen.extents.items()
            for partition, end in enumerate(extent.ends)
            if positions[topic].offsets.get(partition, 0) < end
        ]
        return NotCaughtUp(
            f"the bridge's progress is {self._published}, and for {_STUCK_S:.0f} s nothing below it has come; what is "
            f"after it waits ({'; '.join(waiting) or 'the topics are empty'})",
            remedy="check with cdc status whether the bridge runs, then start again",
        )


def _reaches(position: LakePosition, extent: Extent) -> bool:
    return all(position.offsets.get(partition, 0) >= end for partition, end in enumerate(extent.ends))


def _after(extent: Extent, offsets: Mapping[int, int]) -> Extent:
    return extent.after(tuple(offsets.get(partition, 0) for partition in range(len(extent.ends))))


def capped(extents: Iterable[Extent], records: int) -> list[Extent]:
    """Returns what one round reads of these ranges: all, or of each partition a part of the same proportion."""
    ranges = list(extents)
    size = sum(end - start for each in ranges for start, end in zip(each.starts, each.ends, strict=True))
    if size <= records:
        return ranges
    return [
        replace(
            each,
            ends=tuple(
                start + math.ceil(max(0, end - start) * records / size)
                for start, end in zip(each.starts, each.ends, strict=True)
            ),
        )
        for each in ranges
    ]
