"""One comparison: a database at a held snapshot against a topic at the same moment; findings go to Parquet.

The order of things is what makes it exact (``spark.reconcile.verdict``): what the bridge says of itself → snapshot →
fence → pinned ends → both sides → ends pinned once more, for what came meanwhile.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as fn

from cdc.contract.jobspec.deployment import JobTable, KafkaSettings, PostgresSettings
from cdc.spark.errors import JobError
from cdc.spark.offsets import Brokers, Extent
from cdc.spark.reconcile import candidates
from cdc.spark.reconcile.candidates import CANDIDATES_DDL, FirstLook
from cdc.spark.reconcile.kept_hashes import KeptHashes
from cdc.spark.reconcile.keys import Keys, keys_in
from cdc.spark.reconcile.origin import Origins, PossibleRecords
from cdc.spark.reconcile.second_look import Rule, findings, sums_by_key
from cdc.spark.reconcile.topic_records import RecordMoment, folded, hashed, key_hash
from cdc.spark.reconcile.verdict import is_outrun, kept_since_ms
from cdc.spark.snapshot.definitions import definitions_of
from cdc.spark.source.held_snapshot import HeldSnapshot
from cdc.spark.source.rows import SourceRows, hashes_of_many
from cdc.spark.stored import store
from cdc.spark.topic import read_topic, read_topics

CLOCK_MARGIN_MS: Final = 10_000
"""How far the clocks of bridge, brokers and this machine may be apart; ten seconds is a broken clock."""

_CANCEL_S: Final = 0.1

_TASKS_TOGETHER: Final = 32
"""Small topics have few records in each of many partitions: a task for each would be mostly start."""


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
        origin: what the bridge can have written, asked when the ends of the topic were pinned. None for a replica: the
            sink is to follow the topic, whoever wrote into it.
    """

    database: PostgresSettings
    table: JobTable
    moment: RecordMoment
    compared: tuple[str, ...]
    where: str | None
    side: str
    origin: PossibleRecords | None = None


class Judged(NamedTuple):
    """Of how many keys a second look has a finding; how many of them have a row in the database, or are in flight.

    ``unsure``: how many were called foreign that may be the bridge's all the same.
    """

    keys: int
    with_row: int
    in_flight: int
    unsure: int = 0


class Comparison:
    """The tools that every comparison of a run shares."""

    def __init__(
        self,
        spark: SparkSession,
        kafka: KafkaSettings,
        brokers: Brokers,
        stream: str,
        connections: int,
        origins: Origins,
    ) -> None:
        self.spark = spark
        self.stream = stream
        self.kafka = kafka
        self.brokers = brokers
        self.connections = connections
        self.origins = origins
        self.watch = Stopwatch()

    def hashes(self, extent: Extent, origin: PossibleRecords | None) -> DataFrame:
        """All of the topic, for ``first_look`` on the side that has this origin."""
        foreign = fn.lit(False) if origin is None else origin.is_foreign(extent.topic)
        lines = hashed(read_topic(self.spark, self.kafka, extent), len(extent.ends), foreign)
        # A sink leaves out what lies in a wrong partition.
        return lines.where(~fn.col("is_stray")) if origin is None else lines

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
            topic = folded(lines, sides.moment, bucket)
            # Of a replica the very column that the condition looks at may be wrong: see ``chosen``.
            looked = candidates.look(rows.hashes(bucket), topic, folder, trusts_exclusion=sides.side == "topic")
        kept_since = self.kept_since(sides.table.topic)
        if looked.is_equal(kept_since):
            return looked, Keys(count=0)
        open_ones = fn.col("open_ms").isNull() | (fn.col("open_ms") <= kept_since)
        return looked, keys_in(self.spark.read.schema(CANDIDATES_DDL).parquet(folder).where(open_ones))

    def first_looks(
        self,
        database: tuple[PostgresSettings, HeldSnapshot, Sequence[JobTable]],
        extents: Sequence[Extent],
        moment: RecordMoment,
        origin: PossibleRecords | None,
    ) -> dict[str, FirstLook]:
        """By hashes, several small tables at once.

        Args:
            database: where the tables are, the snapshot that holds them, and which.
            extents: of all their topics.
            moment: which records count.
            origin: as in ``Sides``.

        Returns:
            The sums of each table, by topic.
        """
        settings, held, tables = database
        by_partitions: dict[int, list[Extent]] = {}
        for each in extents:
            by_partitions.setdefault(len(each.ends), []).append(each)
        foreign = fn.lit(False) if origin is None else origin.is_foreign()
        lines = functools.reduce(
            DataFrame.unionByName,
            [
                hashed(
                    read_topics(self.spark, self.kafka, group).coalesce(_TASKS_TOGETHER), partitions, foreign, "topic"
                )
                for partitions, group in by_partitions.items()
            ],
        )
        rows = hashes_of_many(self.spark, settings, held, tables, self.connections)
        topics = folded(lines.where(~fn.col("is_stray")) if origin is None else lines, moment, (0, 1), "topic")
        return candidates.look_together(rows, topics)

    def second_look(
        self,
        sides: Sides,
        held: HeldSnapshot,
        extent: Extent,
        keys: Keys,
        folder: str,
        kept: KeptHashes | None = None,
    ) -> Judged:
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
            head = extent if kept is None else kept.extent_of(keys, extent)
            records = self._keep(head, keys, f"{folder}/records")
            pinned_ms = int(time.time() * 1000)
            tail = self.brokers.extent(extent.topic).after(extent.ends)
            if not tail.is_empty:
                records = records.unionByName(self._keep(tail, keys, f"{folder}/tail"))
            kept_since = self.kept_since(extent.topic)
            rows = SourceRows(self.spark, sides.database, held, sides.table, sides.where, self.connections)
            source = rows.rows(keys.listed)
            if keys.listed is None:
                source = keys.only(source)
            source, records = keys.together(source), keys.together(records)
            outrun = is_outrun(pinned_ms, kept_since)
            # What was read behind the first ends is younger than what was asked then.
            origin = sides.origin if sides.origin is None or tail.is_empty else self.origins.now()
            while True:
                definitions = (
                    definitions_of(self.brokers, self.stream, sides.table)
                    if origin is None
                    else origin.definitions.get(extent.topic, {})
                )
                rule = Rule(
                    sides.table, len(extent.ends), kept_since, outrun, sides.compared, definitions, sides.side,
                    None if origin is None else replace(origin, definitions={extent.topic: definitions}),
                )  # fmt: skip
                judged = self._stored(findings(source, sums_by_key(records, sides.moment, rule), rule), folder)
                if not judged.unsure:
                    return judged
                origin = self.origins.vouched()

    def _stored(self, judged: DataFrame, folder: str) -> Judged:
        counts = Observation()
        observed = judged.observe(
            counts,
            fn.count(fn.lit(1)).alias("keys"),
            fn.count("source").alias("with_row"),
            fn.count(fn.when(fn.col("difference") == "in_flight", 1)).alias("in_flight"),
            fn.count(fn.when(fn.col("unsure"), 1)).alias("unsure"),
        )
        store(observed, f"{folder}/findings")
        return Judged(**counts.get)

    def kept_since(self, topic: str) -> int:
        """Records younger than this have not been looked at by a cleaner until now, ms since 1970."""
        lag_ms = int(self.brokers.settings(topic)["min.compaction.lag.ms"])
        return kept_since_ms(int(time.time() * 1000), lag_ms, CLOCK_MARGIN_MS)

    def _keep(self, extent: Extent, keys: Keys, path: str) -> DataFrame:
        """Write the records of these keys."""
        return store(keys.only(read_topic(self.spark, self.kafka, extent).withColumn("key_hash", key_hash())), path)


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


Say = Callable[[str], None]
"""Told what happens now, for people."""
