"""One comparison: a database at a held snapshot against a topic at the same moment; findings go to Parquet.

The order of things is what makes it exact (``spark.reconcile.verdict``): what the bridge says of itself → snapshot →
fence → pinned ends → both sides → ends pinned once more, for what came meanwhile.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from cdc.jobspec.deployment import KafkaSettings, PostgresSettings, Table
from cdc.jobspec.keys_file import read_keys
from cdc.jobspec.reconcile import ReconcileJob
from cdc.spark.errors import JobError
from cdc.spark.offsets import Brokers, Extent
from cdc.spark.reconcile import candidates
from cdc.spark.reconcile.candidates import FirstLook
from cdc.spark.reconcile.held_snapshot import HeldSnapshot
from cdc.spark.reconcile.kept_hashes import KeptHashes
from cdc.spark.reconcile.second_look import Rule, findings, sums_by_key
from cdc.spark.reconcile.source_rows import SourceRows
from cdc.spark.reconcile.source_sql import HASH_DIGITS
from cdc.spark.reconcile.topic_records import Moment, folded, hashed, key_hash
from cdc.spark.reconcile.verdict import is_outrun, kept_since_ms
from cdc.spark.snapshot.definitions import definitions_of
from cdc.spark.stored import store
from cdc.spark.topic import read_topic

CLOCK_MARGIN_MS: Final = 10_000
"""How far the clocks of bridge, brokers and this machine may be apart; ten seconds is a broken clock."""

_LISTED_KEYS: Final = 5_000
"""Up to so many keys the database is asked for just those rows; more are sorted out by Spark."""
_CANCEL_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Keys:
    """Which keys to look at: ``frame`` has their ``key_hash``, ``count`` of them; None for both means all keys."""

    frame: DataFrame | None = None
    count: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to look at."""
        return self.count == 0


@dataclass(slots=True)
class Stopwatch:
    """Seconds by part of the run, and rows where a part read some."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timing(self, name: str) -> Iterator[None]:
        """Add what the block takes."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - started


class Sides(NamedTuple):
    """What is compared with what.

    Attributes:
        database: the source, or a replica.
        table: there.
        moment: which records of the topic count.
        compared: the columns that count.
        where: SQL condition on the rows of the database; those outside are compared on neither side.
        side: ``topic`` when the source is compared with it, ``replica`` when a replica is.
    """

    database: PostgresSettings
    table: Table
    moment: Moment
    compared: tuple[str, ...]
    where: str | None
    side: str


class Comparison:
    """The tools that every comparison of a run shares."""

    def __init__(
        self, spark: SparkSession, kafka: KafkaSettings, brokers: Brokers, stream: str, connections: int
    ) -> None:
        self.spark = spark
        self.stream = stream
        self.kafka = kafka
        self.brokers = brokers
        self.connections = connections
        self.watch = Stopwatch()

    def hashes(self, extent: Extent, side: str) -> DataFrame:
        """All of the topic, for ``first_look`` on this side."""
        # A sink takes what it reads, wherever that lies: only the source tells a record in a wrong partition.
        partitions = len(extent.ends) if side == "topic" else 1
        return hashed(read_topic(self.spark, self.kafka, extent), partitions)

    def first_look(
        self,
        sides: Sides,
        held: HeldSnapshot,
        lines: DataFrame,
        bucket: tuple[int, int],
        folder: str,
    ) -> tuple[FirstLook, Keys]:
        """By hashes.

        Args:
            sides: what to compare.
            held: the database's snapshot.
            lines: the topic's hashes as ``topic_records.hashed`` returns them, to ends pinned after the fence.
            bucket: number and count of key buckets.
            folder: for the candidates.

        Returns:
            The sums, and the keys that need a second look.
        """
        with self.watch.timing("hashes"):
            rows = SourceRows(self.spark, sides.database, held, sides.table, sides.where, self.connections)
            looked = candidates.look(rows.hashes(bucket), folded(lines, sides.moment, bucket), folder)
        kept_since = self.kept_since(sides.table.topic)
        if not looked.candidates and (looked.oldest_open_ms is None or looked.oldest_open_ms > kept_since):
            return looked, Keys(count=0)
        open_ones = fn.col("open_ms").isNull() | (fn.col("open_ms") <= kept_since)
        keys = self.spark.read.parquet(folder).where(open_ones).select("key_hash").distinct()
        return looked, Keys(keys, keys.count())

    def second_look(
        self,
        sides: Sides,
        held: HeldSnapshot,
        extent: Extent,
        keys: Keys,
        folder: str,
        kept: KeptHashes | None = None,
    ) -> None:
        """By whole rows; writes ``{folder}/findings``.

        Args:
            sides: what to compare.
            held: the database's snapshot, the one of the first look.
            extent: the topic, the one of the first look.
            keys: whose rows.
            folder: for what is found.
            kept: knows from where on the topic has to be read.
        """
        with self.watch.timing("whole rows"):
            # What came since the ends were pinned counts as not visible, and may be why a predecessor is gone: read on.
            head = extent if kept is None else kept.extent_of(keys.frame, extent)
            self._keep(read_topic(self.spark, self.kafka, head), keys, f"{folder}/records")
            pinned_ms = int(time.time() * 1000)
            tail = self.brokers.extent(extent.topic).after(extent.ends)
            self._keep(read_topic(self.spark, self.kafka, tail), keys, f"{folder}/tail")
            kept_since = self.kept_since(extent.topic)
            records = self.spark.read.parquet(f"{folder}/records", f"{folder}/tail")
            rows = SourceRows(self.spark, sides.database, held, sides.table, sides.where, self.connections)
            listed = None
            if keys.frame is not None and keys.count is not None and keys.count <= _LISTED_KEYS:
                listed = [row["key_hash"] for row in keys.frame.collect()]
            source = rows.rows(listed)
            if listed is None and keys.frame is not None:
                source = source.join(keys.frame, "key_hash", "left_semi")
            outrun = is_outrun(pinned_ms, kept_since)
            definitions = definitions_of(self.brokers, self.stream, sides.table)
            rule = Rule(sides.table, len(extent.ends), kept_since, outrun, sides.compared, definitions, sides.side)
            judged = findings(source, sums_by_key(records, sides.moment), rule)
            store(judged, f"{folder}/findings")

    def kept_since(self, topic: str) -> int:
        """Records younger than this have not been looked at by a cleaner until now, ms since 1970."""
        lag_ms = int(self.brokers.settings(topic)["min.compaction.lag.ms"])
        return kept_since_ms(int(time.time() * 1000), lag_ms, CLOCK_MARGIN_MS)

    def _keep(self, records: DataFrame, keys: Keys, path: str) -> None:
        """Write the records of these keys."""
        hashed = records.withColumn("key_hash", key_hash())
        chosen = hashed if keys.frame is None else hashed.join(keys.frame, "key_hash", "left_semi")
        store(chosen, path)


@contextmanager
def limited(spark: SparkSession, seconds: float, remedy: str) -> Iterator[None]:
    """End what Spark does in the block after so long.

    Raises:
        JobError: it took longer.
    """
    over, left = threading.Event(), threading.Event()

    def stop() -> None:
        if left.wait(seconds):
            return
        over.set()
        while not left.wait(_CANCEL_S):  # again and again: the block may be between two of Spark's jobs
            spark.sparkContext.cancelAllJobs()

    watch = threading.Thread(target=stop, name="snapshot limit", daemon=True)
    watch.start()
    try:
        yield
    except Exception as error:
        if over.is_set() and not isinstance(error, JobError):
            raise JobError(f"the snapshot was held for {seconds:.0f} s, the most allowed", remedy=remedy) from error
        raise
    finally:
        left.set()
        watch.join()


def keys_asked_for(spark: SparkSession, job: ReconcileJob, table: Table) -> Keys | None:
    """The keys that the job names for a table, None when it wants all."""
    path = job.keys.get(table.qualified_name)
    if path is None:
        return None
    hashes = sorted({int(hashlib.md5(each.key).hexdigest()[:HASH_DIGITS], 16) for each in read_keys(Path(path))})
    return Keys(spark.createDataFrame([(each,) for each in hashes], "key_hash bigint"), len(hashes))


Say = Callable[[str], None]
"""Told what happens now, for people."""
