"""The audit job: writes the trail as Parquet, ordered by key and position, and a summary as text."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from cdc.contract.jobspec.audit import AuditJob
from cdc.spark.errors import JobError, TopicUnreadable
from cdc.spark.history.trail import trail
from cdc.spark.offsets import Brokers
from cdc.spark.session import open_session
from cdc.spark.topic import header_field, read_topic

_TRAIL: Final = "trail"
_SUMMARY: Final = "summary.txt"
_OPS: Final = {"c": "inserts", "u": "updates", "d": "deletes", "r": "backfilled", "t": "truncated"}
_HOURS: Final = 48


def main(document: str) -> int:
    """Runs the job that ``document`` describes, and returns its exit code."""
    job = AuditJob.model_validate_json(document)
    with open_session(job.spark, "cdc audit") as spark:
        sys.stdout.write(write_audit(spark, job))
    return 0


def write_audit(spark: SparkSession, job: AuditJob) -> str:
    """Writes trail and summary into the job's folder, which appears only when both are there; returns the summary.

    Raises:
        JobError: the table has no history topic, the folder exists, or a record cannot be read.
    """
    folder = Path(job.folder)
    unfinished = folder.with_name(f".unfinished-{folder.name}")
    if folder.exists():
        raise JobError(f"{folder} already exists", remedy="name a new folder")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    try:
        place = (unfinished / _TRAIL).as_uri()
        _changes(spark, job).sort("key", "partition", "offset").write.parquet(place, compression="zstd")
        summary = "\n".join(_summary(spark.read.parquet(place), job)) + "\n"
        (unfinished / _SUMMARY).write_text(summary, encoding="utf-8")
        unfinished.rename(folder)
    except PythonException as error:
        raise TopicUnreadable(
            f"topic {job.table.history_topic} holds a record that cannot be read",
            remedy="find out what wrote it with cdc health",
        ) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return summary


def _changes(spark: SparkSession, job: AuditJob) -> DataFrame:
    topic = job.table.history_topic
    if topic is None:
        raise JobError(
            f"{job.table.qualified_name} keeps no history",
            remedy="add it to topics.history in the configuration",
        )
    brokers = Brokers(job.kafka)
    try:
        records = read_topic(spark, job.kafka, brokers.extent(topic))
    finally:
        brokers.close()
    commit_us = header_field("ts").cast("bigint")
    if job.since_us is not None:
        records = records.where(commit_us >= job.since_us)
    if job.until_us is not None:
        records = records.where(commit_us < job.until_us)
    if job.keys:
        records = records.where(fn.col("key").isin([key.encode() for key in job.keys]))
    return trail(records)


def _summary(changes: DataFrame, job: AuditJob) -> Iterator[str]:
    first, last = changes.agg(fn.min("commit_time"), fn.max("commit_time")).collect()[0]
    yield f"{job.table.qualified_name}: changes {_time(first)} to {_time(last)}" if first else "no change"
    for row in changes.groupBy("op").count().orderBy("op").collect():
        yield f"  {_OPS.get(row['op'], row['op'])}: {row['count']}"
    hours = changes.groupBy(fn.date_trunc("hour", "commit_time").alias("hour")).count()
    yield f"by hour (UTC), the latest {_HOURS}:"
    for row in reversed(hours.orderBy(fn.desc("hour")).limit(_HOURS).collect()):
        yield f"  {_time(row['hour'])}: {row['count']}"
    yield "keys that changed most:"
    for row in changes.groupBy("key").count().orderBy(fn.desc("count"), "key").limit(job.top).collect():
        yield f"  {row['key']}: {row['count']}"


def _time(moment: datetime) -> str:
    # The session's time zone is UTC, but pyspark returns timestamps in the machine's time zone.
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
