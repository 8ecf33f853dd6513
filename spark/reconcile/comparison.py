"""Compares a database at a held snapshot with a topic at the same moment; the findings go to Parquet.

The order of steps makes it exact (see ``verdict``): ask the bridge for its state → take the snapshot → wait for the
fence → pin the topic's ends → read both sides → pin the ends once more and read what came meanwhile.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as fn

from cdc.contract.jobspec.deployment import JobTable, KafkaSettings
from cdc.contract.record import TableSchema
from cdc.spark.certify.digests import (
    ROW_HASH,
    bucket_digests,
    digests_by_topic,
    has_row_hashes,
    with_row_hashes,
)
from cdc.spark.errors import JobError
from cdc.spark.offsets import Brokers, Extent
from cdc.spark.reconcile import candidates
from cdc.spark.reconcile.candidates import CANDIDATES_DDL, FirstLook
from cdc.spark.reconcile.kept_hashes import KeptHashes
from cdc.spark.reconcile.keys import Keys, keys_in
from cdc.spark.reconcile.origin import Origins, PossibleRecords
from cdc.spark.reconcile.second_look import Rule, findings, latest_by_key
from cdc.spark.reconcile.topic_records import RecordMoment, folded, hashed, key_hash
from cdc.spark.reconcile.verdict import is_outrun, kept_since_ms
from cdc.spark.replicas.side import ReplicaSide
from cdc.spark.snapshot.definitions import definitions_by_topic, definitions_of
from cdc.spark.source.rows import TableRows
from cdc.spark.stored import store
from cdc.spark.topic import read_topic, read_topics
from cdc.spark.values.avro import opened, opened_of_many

CLOCK_MARGIN_MS: Final = 10_000
"""How far apart the clocks of bridge, brokers and this machine may be. Ten seconds is a broken clock."""

_CANCEL_S: Final = 0.1

_TASKS_TOGETHER: Final = 32
"""How many tasks read small topics. With one task per partition, most of the time would go into starting tasks."""


@dataclass(slots=True)
class Stopwatch:
    """Measures the seconds that each part of a run takes."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timing(self, name: str) -> Iterator[None]:
        """Adds the time that the block takes to the part ``name``."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - started


class Sides(NamedTuple):
    """The two sides of a comparison.

    Attributes:
        rows: reads the database's rows, those of the source or of a replica, at the moment that is held.
        table: the table in that database.
        moment: decides which records of the topic count.
        compared: the columns that count.
        side: ``topic`` if the source is compared with the topic; ``replica`` or ``lake`` if one of these is.
        origin: what the bridge can have written, asked after the ends of the topic were pinned. None for a replica,
            because a sink has to follow the topic, whoever wrote into it.
    """

    rows: TableRows
    table: JobTable
    moment: RecordMoment
    compared: tuple[str, ...]
    side: Literal["topic", "replica", "lake"]
    origin: PossibleRecords | None = None


class Judged(NamedTuple):
    """The counts of a second look.

    Attributes:
        keys: how many keys it has a finding for.
        with_row: how many of them have a row in the database.
        in_flight: how many of them are in flight.
        unsure: how many of them show a foreign record that may be the bridge's after all.
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
        origins: Origins,
        replica: ReplicaSide | None,
    ) -> None:
        self.spark = spark
        self.stream = stream
        self.kafka = kafka
        self.brokers = brokers
        self.origins = origins
        self.replica = replica
        self.watch = Stopwatch()

    def hashes(self, extent: Extent, origin: PossibleRecords | None, *, digested: bool = False) -> DataFrame:
        """Returns the hashes of the whole topic for ``first_look``. Without ``origin`` they are for a replica.

        Args:
            extent: the topic's extent.
            origin: as in ``Sides``.
            digested: adds ``digests.ROW_HASH``, so that ``first_look`` computes digests.
        """
        foreign = fn.lit(False) if origin is None else origin.is_foreign(extent.topic)
        read = read_topic(self.spark, self.kafka, extent)
        records = opened(with_row_hashes(read) if digested else read, self._definitions(extent.topic, origin))
        lines = hashed(records, len(extent.ends), foreign, *(ROW_HASH if digested else ()))
        # The sink ignores records in a wrong partition, so a replica is compared without them.
        return lines.where(~fn.col("is_stray")) if origin is None else lines

    def first_look(
        self,
        sides: Sides,
        lines: DataFrame,
        bucket: tuple[int, int],
        folder: str,
    ) -> tuple[FirstLook, Keys]:
        """Compares the two sides by hashes.

        Args:
            sides: what to compare.
            lines: the topic's hashes, from ``topic_records.hashed``, up to ends pinned after the fence.
            bucket: the number of the key bucket to compare, and how many there are.
            folder: where to write the candidates.

        Returns:
            The counts, and the keys that need a second look.
        """
        with self.watch.timing("hashes"):
            rows, topic = sides.rows.hashes(bucket), folded(lines, sides.moment, bucket)
            if is_digested := has_row_hashes(topic):
                # Stored, so that what is certified is what was compared: read again, the topic might hold less.
                topic = store(topic, f"{folder}-fold")
            # In a replica, the column that --where looks at may itself be wrong: see ``chosen``.
            looked = candidates.look(rows, topic, folder, trusts_exclusion=sides.side == "topic")
            if is_digested:
                looked = looked._replace(buckets=bucket_digests(topic))
        kept_since = self.kept_since(sides.table.topic)
        if looked.is_equal(kept_since):
            return looked, Keys(count=0)
        open_ones = fn.col("open_ms").isNull() | (fn.col("open_ms") <= kept_since)
        return looked, keys_in(self.spark.read.schema(CANDIDATES_DDL).parquet(folder).where(open_ones))

    def first_looks(
        self,
        rows: DataFrame,
        extents: Sequence[Extent],
        moment: RecordMoment,
        origin: PossibleRecords | None,
        fold: str | None = None,
    ) -> dict[str, FirstLook]:
        """Compares several small tables with their topics by hashes, all at once.

        Args:
            rows: the hashes of the tables' rows, from ``rows.hashes_of_many`` or ``HeldReplica.hashes_of_many``.
            extents: the extents of their topics.
            moment: decides which records count.
            origin: as in ``Sides``.
            fold: where to store the topics' state, so that it can be digested; None to compute no digests.

        Returns:
            The counts of each table, by topic.
        """
        row_hash = () if fold is None else ROW_HASH
        definitions = definitions_by_topic(self.brokers, self.stream) if origin is None else origin.definitions
        foreign = fn.lit(False) if origin is None else origin.is_foreign()
        lines = functools.reduce(
            DataFrame.unionByName,
            [
                hashed(
                    opened_of_many(
                        self._read_together(group, digested=fold is not None),
                        {each.topic: definitions.get(each.topic, {}).values() for each in group},
                    ),
                    partitions,
                    foreign,
                    "topic",
                    *row_hash,
                )
                for partitions, group in _by_partitions(extents).items()
            ],
        )
        topics = folded(lines.where(~fn.col("is_stray")) if origin is None else lines, moment, (0, 1), "topic")
        if fold is None:
            return candidates.look_together(rows, topics)
        topics = store(topics, fold)
        looks, digests = candidates.look_together(rows, topics), digests_by_topic(topics)
        return {topic: look._replace(buckets=digests.get(topic, ())) for topic, look in looks.items()}

    def second_look(
        self,
        sides: Sides,
        extent: Extent,
        keys: Keys,
        folder: str,
        kept: KeptHashes | None = None,
    ) -> Judged:
        """Compares the rows of some keys column by column, and writes ``{folder}/findings``.

        Args:
            sides: what to compare, at the same moment as in the first look.
            extent: the topic's extent, the same as in the first look.
            keys: the keys to compare.
            folder: where to write the findings.
            kept: hashes of an earlier run, which tell how much of the topic has to be read.
        """
        with self.watch.timing("whole rows"):
            # Also read past the pinned ends: a record from there is invisible, but the cleaner may have used it.
            head = extent if kept is None else kept.extent_of(keys, extent)
            records = self._keep(head, keys, f"{folder}/records", sides.origin)
            pinned_ms = int(time.time() * 1000)
            tail = self.brokers.extent(extent.topic).after(extent.ends)
            # Records from past the first ends may be younger than the source's answer about what can exist: ask again.
            origin = sides.origin if sides.origin is None or tail.is_empty else self.origins.now()
            if not tail.is_empty:
                records = records.unionByName(self._keep(tail, keys, f"{folder}/tail", origin))
            kept_since = self.kept_since(extent.topic)
            source = sides.rows.rows(keys.listed)
            if keys.listed is None:
                source = keys.only(source)
            source, records = keys.together(source), keys.together(records)
            outrun = is_outrun(pinned_ms, kept_since)
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
                judged = self._stored(findings(source, latest_by_key(records, sides.moment, rule), rule), folder)
                if not judged.unsure:
                    return judged
                # Only now wait for the bridge's word: it is seldom needed, and it ends the loop (is_vouched).
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
        """Returns the time (ms since 1970) since which records have been too young for the cleaner until now."""
        lag_ms = int(self.brokers.settings(topic)["min.compaction.lag.ms"])
        return kept_since_ms(int(time.time() * 1000), lag_ms, CLOCK_MARGIN_MS)

    def _read_together(self, extents: Sequence[Extent], *, digested: bool) -> DataFrame:
        read = read_topics(self.spark, self.kafka, extents).coalesce(_TASKS_TOGETHER)
        return with_row_hashes(read) if digested else read

    def _keep(self, extent: Extent, keys: Keys, path: str, origin: PossibleRecords | None) -> DataFrame:
        """Stores the records of these keys."""
        records = keys.only(read_topic(self.spark, self.kafka, extent).withColumn("key_hash", key_hash()))
        return store(opened(records, self._definitions(extent.topic, origin)), path)

    def _definitions(self, topic: str, origin: PossibleRecords | None) -> Iterable[TableSchema]:
        """Returns all definitions of records up to ends that were pinned before ``origin`` was asked, or before now."""
        found = definitions_by_topic(self.brokers, self.stream) if origin is None else origin.definitions
        return found.get(topic, {}).values()


def _by_partitions(extents: Sequence[Extent]) -> Mapping[int, Sequence[Extent]]:
    found: dict[int, list[Extent]] = {}
    for each in extents:
        found.setdefault(len(each.ends), []).append(each)
    return found


@contextmanager
def limited(spark: SparkSession, seconds: float, remedy: str) -> Iterator[None]:
    """Cancels Spark's jobs if the block takes longer than ``seconds``.

    Raises:
        JobError: the block took longer.
    """
    over, left = threading.Event(), threading.Event()

    def stop() -> None:
        if left.wait(seconds):
            return
        over.set()
        while not left.wait(_CANCEL_S):  # repeatedly: the block may be between two of Spark's jobs
            spark.sparkContext.cancelAllJobs()

    watch = threading.Thread(target=stop, name="snapshot limit", daemon=True)
    watch.start()
    try:
        yield
    except Exception as error:
        if over.is_set() and not isinstance(error, JobError):
            raise JobError(f"the snapshot was held for {seconds:.0f} s, the longest allowed", remedy=remedy) from error
        raise
    finally:
        left.set()
        watch.join()


Say = Callable[[str], None]
"""Receives progress messages for the terminal."""
