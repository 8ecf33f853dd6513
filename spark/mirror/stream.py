"""The streaming query: topics in bounded micro-batches, each handed to the lake table by table."""

from __future__ import annotations

import math
import re
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
from cdc.spark.mirror.topics import SeenEnds, TopicsOfRun
from cdc.spark.offsets import Brokers
from cdc.spark.reconcile.home import is_stray
from cdc.spark.topic import GROUP_PREFIX, header_field

_LOOK_S: Final = 1
_NOTE_EVERY_S: Final = 60
"""A note costs a file per table; tombstones are kept for hours at least."""
_REFUSED: Final = re.compile(r"RecordRefused: (.+)")


class MirrorStream:
    """One run of the mirror.

    Args:
        spark: the session.
        job: what to copy, and how.
        lake: takes the batches.
        brokers: tells offsets and definitions.
        stop: set by a signal: end after the batch under way.
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
        # Held while a batch is applied, and by who stops the query: a batch that is torn in the middle makes Spark
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
        """How many records were copied how fast, for people; the time between batches does not count."""
        rate = f", {self._copied / self._busy_s:,.0f} records/s" if self._copied else ""
        return f"{self._copied:,} records in {self._busy_s:.1f} s of work{rate}"

    def run(self) -> None:
        """Until everything is copied (``once``) or ``stop`` is set.

        Raises:
            JobError: a record, a server or a table stands in the way; or ``once`` was stopped before its end.
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
            # Spark's notes are ahead of the files, which came from a backup, say: the files' offsets count.
            try:
                self._run_query(may_resume=False)
            except NotItsTurn as error:
                raise JobError(
                    f"another process writes into the same folder ({error})", remedy="stop one of the two"
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
                    if seen.are_behind(query.lastProgress):
                        seen = self._note_current(seen, every_s=_NOTE_EVERY_S)
                if self._job.once:
                    self._note_current(seen)
            except PySparkException as error:
                if not self._failures:
                    source.refuse_others()  # what Spark says of offsets that are gone helps nobody
                raise (self._failures or [error])[0] from error
            finally:
                query.stop()

    def _end_early(self) -> None:
        """Stopped: for who follows topics that is the end, but not for who waits for copies that are whole."""
        if self._job.once:
            raise JobError(
                "stopped before everything was copied", remedy="start again: it goes on behind the last whole batch"
            )

    def _choose_generation(self, root: Path, positions: Mapping[str, LakePosition], *, may_resume: bool) -> Path:
        """Go on with Spark's notes where every table was written under them; else begin new ones."""
        prefix = blake2b("\n".join(self._topics).encode(), digest_size=6).hexdigest()
        generations = {positions.get(topic, LakePosition()).generation for topic in self._topics}
        known = generations.pop() if len(generations) == 1 else ""
        if may_resume and known.startswith(f"{prefix}-") and (root / known).is_dir():
            self._generation = known
            return root / known
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
        """One micro-batch; whatever fails ends the query, and nothing of it counts."""
        with self._turn:
            if self._is_stopping:
                raise NotItsTurn(f"batch {number} comes after the stop")
            self._apply_in_turn(records, number)

    def _apply_in_turn(self, records: DataFrame, number: int) -> None:
        records = records.persist()
        started = time.monotonic()
        try:
            ends, count = self._survey(records)
            # Behind the reading: when a topic is still the one that it was, so are the records.
            self._source.refuse_others()
            for topic in self._topics:
                latest = (
                    records.where(fn.col("topic") == topic)
                    .groupBy("key", "partition")
                    .agg(fn.max_by(fn.struct("value", "offset", "header"), "offset").alias("last"))
                    .select("key", "last.value", "partition", "last.offset", "last.header")
                    # What another program wrote elsewhere, and the tombstone that mends it, are no record of the row.
                    .where(~is_stray(fn.col("key"), fn.col("partition"), self._source.partitions(topic)))
                )
                batch = MicroBatch(
                    self._generation,
                    number,
                    self._source.began(topic),
                    self._source.seen.at_ms,
                    self._source.topic_id(topic),
                )
                self._lake.apply(topic, latest, batch, ends.get(topic, {}))
        except (NotItsTurn, JobError) as error:
            self._failures.append(error)
            raise
        except PySparkException as error:
            self._failures.append(_refusal(error))
            raise
        else:
            self._copied += count
            self._busy_s += time.monotonic() - started
        finally:
            records.unpersist()

    def _survey(self, records: DataFrame) -> tuple[dict[str, dict[int, int]], int]:
        """By topic and partition the offset behind the last record, and how many there are.

        Definitions that are new are read before use.
        """
        rows = (
            records.groupBy("topic", "partition")
            .agg(
                (fn.max("offset") + 1).alias("end"),
                fn.count(fn.lit(1)).alias("count"),
                fn.collect_set(fn.when(fn.col("value").isNotNull(), header_field("schema"))).alias("schemas"),
            )
            .collect()
        )
        if not self._definitions.know({each for row in rows for each in row["schemas"]}):
            self._definitions.read()
            self._lake.establish(self._definitions)
        ends: dict[str, dict[int, int]] = {}
        for row in rows:
            ends.setdefault(row["topic"], {})[row["partition"]] = row["end"]
        return ends, sum(row["count"] for row in rows)

    def _note_current(self, seen: SeenEnds, *, every_s: float = 0) -> SeenEnds:
        """Keep that every table has all that was seen, now and then; what is to be seen next."""
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
        """Whether this run wrote the position, or found it: with nothing to read, there was no batch."""
        return position.generation == self._generation or dict(position.offsets) == dict(self._source.began(topic))


def _refusal(error: PySparkException) -> JobError:
    text = str(error)
    if refused := _REFUSED.search(text):
        return JobError(refused[1], remedy="find who wrote it (cdc health), have the row written again, start again")
    line = next((each for each in reversed(text.splitlines()) if "Error:" in each), text.splitlines()[0])
    return JobError(f"a batch could not be applied: {line.strip()}", remedy="start again: nothing of it counts")
