"""The streaming query: reads topics in bounded micro-batches and hands each one to the lake, table by table."""

from __future__ import annotations

import math
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from hashlib import blake2b
from pathlib import Path
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery

from cdc.contract.header import HEADER_NAME
from cdc.contract.jobspec.mirror import MirrorJob
from cdc.contract.naming import schemas_topic
from cdc.spark.added_partitions import refuse_added_partitions
from cdc.spark.errors import JobError
from cdc.spark.kafka_options import connector_options
from cdc.spark.mirror.definitions import Definitions
from cdc.spark.mirror.parquet import ParquetMirror
from cdc.spark.mirror.position import LakePosition, MicroBatch, NotItsTurn
from cdc.spark.mirror.records import SPARK_FAILED, are_known, forms_used, latest_of, refusal
from cdc.spark.mirror.topics import SeenEnds, TopicsOfRun
from cdc.spark.offsets import Brokers
from cdc.spark.topic import GROUP_PREFIX
from cdc.spark.values.avro import opened

_LOOK_S: Final = 1
_NOTE_EVERY_S: Final = 60
"""How often to note that the copies are current. A note writes a file per table; tombstones are kept for hours."""


class MirrorStream:
    """One run of the mirror.

    Args:
        spark: the session.
        job: what to copy, and how.
        lake: applies the batches.
        brokers: the cluster, for offsets and definitions.
        stop: set by a signal; the run then ends after the current batch.
    """

    def __init__(
        self, spark: SparkSession, job: MirrorJob, lake: ParquetMirror, brokers: Brokers, stop: threading.Event
    ) -> None:
        self._spark = spark
        self._job = job
        self._lake = lake
        self._stop = stop
        self._brokers = brokers
        self._topics = sorted(table.topic for table in job.tables)
        self._definitions = Definitions(brokers, schemas_topic(job.stream.name), self._topics)
        # Held while a batch is applied and while the query is stopped. If a batch were torn in the middle, Spark would
        # search the traceback with a pattern that overflows the stack, and print a thousand lines.
        self._turn = threading.Lock()
        self._is_stopping = False
        self._noted_s = -math.inf
        self._failures: list[Exception] = []
        self._generation = ""
        self._source: TopicsOfRun
        self._copied = 0
        self._busy_s = 0.0

    @property
    def throughput(self) -> str:
        """How many records were copied and how fast, in words. The time between batches does not count."""
        rate = f", {self._copied / self._busy_s:,.0f} records/s" if self._copied else ""
        return f"{self._copied:,} records in {self._busy_s:.1f} s of work{rate}"

    def run(self) -> None:
        """Copies until everything is copied (with ``once``) or until ``stop`` is set.

        Raises:
            JobError: a record, a server or a table is in the way, or a run with ``once`` was stopped too early.
        """
        if self._stop.is_set():
            self._end_early()
            return
        if self._job.rebuild:
            self._lake.forget()
        self._lake.establish(self._definitions)
        try:
            self._run_query(may_resume=True)
        except NotItsTurn:
            # Spark's checkpoint does not fit the files, which may come from a backup. The files' offsets count, so
            # start again from them with a new checkpoint.
            try:
                self._run_query(may_resume=False)
            except NotItsTurn as error:
                raise JobError(
                    f"another process writes into the same folder: {error}", remedy="stop one of the two"
                ) from error
        if self._job.once:
            self._lake.finish()

    def _run_query(self, *, may_resume: bool) -> None:
        positions = self._lake.positions()
        self._source = source = TopicsOfRun(self._brokers, self._topics, positions)
        refuse_added_partitions(self._brokers, self._job.stream.name, source.seen.extents.values())
        self._failures.clear()
        with ExitStack() as cleanup:
            if self._job.checkpoint is None:
                root = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="cdc-mirror-")))
            else:
                root = Path(self._job.checkpoint).absolute()
            checkpoint = self._choose_generation(root, positions, may_resume=may_resume)
            query = self._start(checkpoint, source.starts())
            seen = source.seen
            try:
                while not query.awaitTermination(_LOOK_S):
                    if self._stop.is_set():
                        with self._turn:
                            self._is_stopping = True
                        query.stop()
                        self._end_early()
                        return
                    if seen.are_reached_by(query.lastProgress):
                        seen = self._note_current(seen, every_s=_NOTE_EVERY_S)
                if self._job.once:
                    self._note_current(seen)
            except PySparkException as error:
                if not self._failures:
                    source.refuse_others()  # our error about lost offsets is clearer than Spark's
                raise (self._failures or [error])[0] from error
            finally:
                query.stop()

    def _end_early(self) -> None:
        """Ends a run that was stopped. That is an error only with ``once``, where the caller waits for whole copies."""
        if self._job.once:
            raise JobError(
                "stopped before everything was copied", remedy="start again; it continues after the last whole batch"
            )

    def _choose_generation(self, root: Path, positions: Mapping[str, LakePosition], *, may_resume: bool) -> Path:
        """Returns Spark's checkpoint if every table was written under it, or else the folder for a new one."""
        prefix = blake2b("\n".join(self._topics).encode(), digest_size=6).hexdigest()
        generations = {positions.get(topic, LakePosition()).generation for topic in self._topics}
        known = generations.pop() if len(generations) == 1 else ""
        if may_resume and known.startswith(f"{prefix}-") and (root / known).is_dir():
            self._generation = known
            return root / known
        # The prefix stands for this set of topics. Its older checkpoints fit no table any longer.
        for former in root.glob(f"{prefix}-*"):
            shutil.rmtree(former)
        self._generation = f"{prefix}-{uuid.uuid4().hex}"
        return root / self._generation

    def _start(self, checkpoint: Path, starts: str) -> StreamingQuery:
        job = self._job
        reader = (
            self._spark.readStream.format("kafka")
            .options(**connector_options(job.kafka))
            .option("kafka.isolation.level", "read_committed")
            .option("groupIdPrefix", GROUP_PREFIX)
            .option("subscribe", ",".join(self._topics))
            .option("includeHeaders", "true")
            .option("failOnDataLoss", "true")
            .option("startingOffsets", starts)
            .option("maxOffsetsPerTrigger", str(job.records_per_batch))
        )
        ours = fn.filter("headers", lambda header: header["key"] == HEADER_NAME)
        records = reader.load().select(
            "topic", "key", "value", "partition", "offset", fn.get(ours, 0)["value"].cast("string").alias("header")
        )
        writer = records.writeStream.foreachBatch(self._apply).option("checkpointLocation", str(checkpoint))
        if job.once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{job.interval_s} seconds").start()

    def _apply(self, records: DataFrame, number: int) -> None:
        """Applies one micro-batch. Any failure ends the query; Spark offers the batch again at the next start."""
        with self._turn:
            if self._is_stopping:
                raise NotItsTurn(f"batch {number} comes after the stop")
            self._apply_in_turn(records, number)

    def _apply_in_turn(self, records: DataFrame, number: int) -> None:
        records = records.persist()
        started = time.monotonic()
        try:
            ends, count = self._survey(records)
            # After the records were read: if the topics are still the same now, the records are theirs.
            self._source.refuse_others()
            for topic in self._topics:
                latest = latest_of(records.where(fn.col("topic") == topic), self._source.partitions(topic))
                batch = MicroBatch(
                    self._generation,
                    number,
                    self._source.began(topic),
                    self._source.seen.at_ms,
                    self._source.topic_id(topic),
                )
                self._lake.apply(topic, opened(latest, self._definitions.of(topic)), batch, ends.get(topic, {}))
        except (NotItsTurn, JobError) as error:
            self._failures.append(error)
            raise
        except SPARK_FAILED as error:
            self._failures.append(refusal(error))
            raise
        else:
            self._copied += count
            self._busy_s += time.monotonic() - started
        finally:
            records.unpersist()

    def _survey(self, records: DataFrame) -> tuple[dict[str, dict[int, int]], int]:
        """Returns the offset after the last record, by topic and partition, and the number of records.

        If the definitions do not tell yet how a record is read, reads them again.
        """
        rows = (
            records.groupBy("topic", "partition")
            .agg(
                (fn.max("offset") + 1).alias("end"),
                fn.count(fn.lit(1)).alias("count"),
                *forms_used(),
            )
            .collect()
        )
        if not are_known(self._definitions, rows):
            self._definitions.read()
            self._lake.establish(self._definitions)
        ends: dict[str, dict[int, int]] = {}
        for row in rows:
            ends.setdefault(row["topic"], {})[row["partition"]] = row["end"]
        return ends, sum(row["count"] for row in rows)

    def _note_current(self, seen: SeenEnds, *, every_s: float = 0) -> SeenEnds:
        """Notes that the tables hold everything up to ``seen``, but not too often; returns the next ends to reach."""
        if time.monotonic() - self._noted_s < every_s:
            return seen
        self._source.refuse_others()
        with self._turn:
            positions = self._lake.positions()
            for topic, extent in seen.extents.items():
                position = positions.get(topic, LakePosition())
                if self._is_ours(topic, position):
                    self._lake.note_current(topic, position, dict(enumerate(extent.ends)), seen.at_ms)
        self._noted_s = time.monotonic()
        return self._source.look()

    def _is_ours(self, topic: str, position: LakePosition) -> bool:
        """Tells whether this run wrote the position, or found it and had nothing to read since."""
        return position.generation == self._generation or dict(position.offsets) == dict(self._source.began(topic))
