"""Verifies a certificate: computes its digests anew from the topics, and says where that proves nothing any more.

Theory of operation. A certificate says which records make a topic's state: those below its offsets that its snapshot
sees. These records never change. Compaction may only have removed the one of a key that was written again later, at
first or for good. So for each bucket:

* Equal digests mean equal rows, whatever was written since.
* If the topic has more rows than certified, or as many but others, compaction cannot be the reason.
* If rows are missing, each key that was written later and has no record of then left may be one of them. More missing
  rows than such keys are a difference. But a key that was deleted for longer than tombstones are kept leaves no trace,
  so after that time, or if records were removed by another way than compaction, missing rows prove nothing.

While a topic is read, the cleaner may remove a key's newest record after an older one was read. So a topic that seems
to differ is read once more: the older record is gone then, too. The same may have happened to the run that wrote the
certificate. The key was in flight then, and was compared at a later snapshot. So as many buckets may differ without a
proof as keys were in flight.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Final, Literal, NamedTuple, TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.storagelevel import StorageLevel

from cdc.base.words import counted
from cdc.contract.jobspec.certificate import Bucket, CertifiedTable, VerifyJob, as_digest
from cdc.spark.certify.digests import ROW_HASH, bucket, digest_in, sums, with_row_hashes
from cdc.spark.errors import TopicUnreadable
from cdc.spark.offsets import Brokers, Extent
from cdc.spark.reconcile.failures import as_job_errors
from cdc.spark.reconcile.home import is_stray
from cdc.spark.reconcile.topic_records import RecordMoment, key_hash
from cdc.spark.session import open_session
from cdc.spark.snapshot.fold import below_offsets
from cdc.spark.source.visibility import VisibleTransactions
from cdc.spark.topic import read_topic

Answer: TypeAlias = Literal["verified", "different", "cannot be told"]

_CODES: Final[Mapping[Answer, int]] = {"verified": 0, "different": 1, "cannot be told": 2}
_CLOCK_MARGIN_MS: Final = 60_000
_SHOWN_BUCKETS: Final = 8
_SHOWN_CHARACTERS: Final = 200


class FoundBucket(NamedTuple):
    """A bucket as the topic has it now.

    Attributes:
        rows, digest: as certified.
        open: keys that were written later and have no record of then left.
    """

    rows: int
    digest: str
    open: int


class BucketAnswers(NamedTuple):
    """The buckets that differ, those of which nothing can be told, and how many rows are missing in these."""

    different: tuple[int, ...] = ()
    unknown: tuple[int, ...] = ()
    missing: int = 0


class VerifiedTable(NamedTuple):
    """The answer for a table, in words, with the keys that cannot be checked."""

    table: str
    answer: Answer
    text: str
    keys: tuple[str, ...] = ()


def main(document: str) -> int:
    """Runs the job that ``document`` describes, and returns 1 if a topic differs, 2 if that cannot be told."""
    job = VerifyJob.model_validate_json(document)
    answers = verify(job, open_session(job.spark, f"cdc reconcile --verify {job.certificate.name}"))
    for each in answers:
        sys.stdout.write(f"{each.answer.upper()} {each.table}: {each.text}\n")
        sys.stdout.writelines(f"  {key}\n" for key in each.keys)
    codes = {_CODES[each.answer] for each in answers}
    return 1 if 1 in codes else max(codes, default=0)


def verify(job: VerifyJob, session: AbstractContextManager[SparkSession]) -> list[VerifiedTable]:
    """Returns the answer for each table of the certificate.

    Raises:
        JobError: Kafka does not answer.
    """
    brokers = Brokers(job.kafka)
    try:
        with session as spark, as_job_errors():
            return [_verified(spark, job, brokers, each) for each in job.certificate.tables]
    finally:
        brokers.close()


def answers_of(
    certified: Sequence[Bucket], found: Mapping[int, FoundBucket], *, traceless: bool, in_flight: int = 0
) -> BucketAnswers:
    """Compares the buckets of a table.

    Args:
        certified: as the certificate has them.
        found: as the topic has them now.
        traceless: rows may be missing without a trace.
        in_flight: how many keys were in flight at the certificate's snapshot.
    """
    then = {each.number: each for each in certified}
    different, unknown, missing = [], [], 0
    for number in sorted({*then, *found}):
        before = then.get(number, Bucket(number, 0, as_digest(0)))
        now = found.get(number, FoundBucket(0, as_digest(0), 0))
        if (before.rows, before.digest) == (now.rows, now.digest):
            continue
        lost = before.rows - now.rows
        if lost <= 0 or (lost > now.open and not traceless):
            different.append(number)
        else:
            unknown.append(number)
            missing += lost
    if len(different) <= in_flight:
        different, unknown = [], sorted([*different, *unknown])
    return BucketAnswers(tuple(different), tuple(unknown), missing)


def _verified(spark: SparkSession, job: VerifyJob, brokers: Brokers, table: CertifiedTable) -> VerifiedTable:
    try:
        extent = brokers.extent(table.topic)
    except TopicUnreadable as error:
        return VerifiedTable(table.table, "cannot be told", error.message)
    if why := _why_not(table, extent):
        return VerifiedTable(table.table, *why)
    traceless = _is_traceless(job, brokers, table, extent)
    in_flight = sum(each.keys for each in table.rounds[1:2])
    state, found = _read(spark, job, table, extent)
    answers = answers_of(table.fold.buckets, found, traceless=traceless, in_flight=in_flight)
    if answers.different:
        state, again = _read(spark, job, table, brokers.extent(table.topic))
        answers = answers_of(table.fold.buckets, again, traceless=traceless, in_flight=in_flight)
    brokers.refuse_another(extent)
    if answers.different:
        return VerifiedTable(
            table.table,
            "different",
            f"the topic {table.topic} does not hold the rows that were certified in {_named(answers.different)}, and"
            " compaction cannot be the reason",
        )
    if answers.unknown:
        keys = () if job.redact else _open_keys(state, answers.unknown, job.samples)
        return VerifiedTable(table.table, "cannot be told", _told_unknown(answers, table, traceless=traceless), keys)
    return VerifiedTable(table.table, "verified", f"{counted(table.rows, 'row')} at {table.fold.lsn}; {_then(table)}")


def _why_not(table: CertifiedTable, extent: Extent) -> tuple[Answer, str] | None:
    """Returns why it makes no sense to read the topic; None if it does."""
    if extent.topic_id != table.fold.topic_id:
        return "cannot be told", f"topic {table.topic} was deleted and created anew since"
    if len(extent.ends) != len(table.fold.offsets):
        then, now = len(table.fold.offsets), len(extent.ends)
        return "cannot be told", f"topic {table.topic} had {then} partitions, and has {now} now"
    for partition, ((_, then), now) in enumerate(zip(table.fold.offsets, extent.ends, strict=True)):
        if now < then:
            return "different", (
                f"{table.topic}, partition {partition}, ends at offset {now}, and held records up to {then} then: the"
                " cluster has lost them"
            )
    return None


def _is_traceless(job: VerifyJob, brokers: Brokers, table: CertifiedTable, extent: Extent) -> bool:
    """Tells whether a key may be gone with its tombstone, or records of the certificate by another way."""
    kept_ms = int(brokers.settings(table.topic)["delete.retention.ms"])
    since_ms = int(datetime.fromisoformat(job.certificate.began).timestamp() * 1000)
    is_old = time.time_ns() // 1_000_000 - since_ms > kept_ms - _CLOCK_MARGIN_MS
    return is_old or any(now > then for now, (then, _) in zip(extent.starts, table.fold.offsets, strict=True))


def _read(
    spark: SparkSession, job: VerifyJob, table: CertifiedTable, extent: Extent
) -> tuple[DataFrame, dict[int, FoundBucket]]:
    """Reads a topic from the certificate's first offsets on.

    Returns:
        One row per key, kept on the executors' disks, and the buckets.
    """
    moment = RecordMoment(snapshot=VisibleTransactions.parse(table.fold.snapshot))
    ends = {partition: end for partition, (_, end) in enumerate(table.fold.offsets)}
    records = with_row_hashes(
        read_topic(spark, job.kafka, extent.after(tuple(start for start, _ in table.fold.offsets)))
    )
    at_home = records.where(~is_stray(fn.col("key"), fn.col("partition"), len(ends)) & fn.col("key").isNotNull())
    standing = fn.when(below_offsets(ends) & moment.counts(), fn.col("offset"))
    lines = at_home.select("key", *ROW_HASH, standing.alias("home_at"))
    state = lines.groupBy("key").agg(
        *(fn.max_by(each, "home_at").alias(each) for each in ROW_HASH),
        (fn.max("home_at").isNull()).alias("is_open"),
    )
    kept = state.withColumn("key_hash", key_hash()).localCheckpoint(eager=True, storageLevel=StorageLevel.DISK_ONLY)
    counts = kept.groupBy(bucket().alias("bucket")).agg(*sums(), fn.count_if("is_open").alias("open")).collect()
    found = {each["bucket"]: FoundBucket(each["rows"], digest_in(each.asDict()), each["open"]) for each in counts}
    return kept, found


def _open_keys(state: DataFrame, buckets: Sequence[int], limit: int) -> tuple[str, ...]:
    chosen = state.where(fn.col("is_open") & bucket().isin(*buckets)).select("key").orderBy("key").limit(limit)
    return tuple(bytes(row["key"]).decode(errors="replace")[:_SHOWN_CHARACTERS] for row in chosen.collect())


def _told_unknown(answers: BucketAnswers, table: CertifiedTable, *, traceless: bool) -> str:
    if not answers.missing:
        return (
            f"{_named(answers.unknown)} of {table.topic} cannot be checked: keys were in flight when the topic was"
            " certified, and compaction may have removed records while it was read"
        )
    deleted = " or deleted" if traceless else ""
    return (
        f"{counted(answers.missing, 'row')} of {table.rows:,} cannot be checked in {_named(answers.unknown)} of"
        f" {table.topic}: compaction has removed them, because their keys were written again{deleted} since"
    )


def _then(table: CertifiedTable) -> str:
    beside = table.replica_differences
    replica = "" if beside is None else f", {counted(beside, 'difference')} from the replica"
    return f"the run found {counted(table.differences, 'difference')} from the source{replica}"


def _named(buckets: Sequence[int]) -> str:
    shown = ", ".join(map(str, buckets[:_SHOWN_BUCKETS]))
    more = f" and {len(buckets) - _SHOWN_BUCKETS} more" if len(buckets) > _SHOWN_BUCKETS else ""
    return f"bucket{'s' if len(buckets) > 1 else ''} {shown}{more}"
