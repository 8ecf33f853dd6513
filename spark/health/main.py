"""The health job: reads topics, counts, judges, and writes the report."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyspark
from pyspark import StorageLevel
from pyspark.sql import SparkSession

from cdc.base.errors import DecodeError
from cdc.contract.jobspec.deployment import JobTable
from cdc.contract.jobspec.health import HealthJob, HealthTopic
from cdc.contract.kinds import FLOATS, INTEGERS, Kind, kind_of
from cdc.contract.schema import parse_schema
from cdc.spark.errors import JobError, TopicUnreadable
from cdc.spark.health import measure
from cdc.spark.health.findings import findings
from cdc.spark.health.model import HealthReport, Settings, TopicHealth
from cdc.spark.health.page import as_html
from cdc.spark.health.records import topic_records
from cdc.spark.health.text import as_text
from cdc.spark.offsets import Brokers
from cdc.spark.session import open_session

HEALTHY: Final = 0
NOT_HEALTHY: Final = 1
_NUMERIC: Final = INTEGERS | FLOATS | {Kind.DECIMAL}


def main(document: str) -> int:
    """Runs the job that ``document`` describes, and returns 1 if any finding is an error."""
    job = HealthJob.model_validate_json(document)
    with open_session(job.spark, "cdc health") as spark:
        report = check(spark, job)
    sys.stdout.write(as_text(report))
    _write(job.json_path, report.model_dump_json(indent=2) + "\n")
    _write(job.html_path, as_html(report))
    return HEALTHY if report.healthy else NOT_HEALTHY


def check(spark: SparkSession, job: HealthJob) -> HealthReport:
    """Checks every topic of the job.

    Raises:
        JobError: a topic cannot be read.
    """
    now_ms = time.time_ns() // 1_000_000
    brokers = Brokers(job.kafka)
    try:
        definitions = _definitions(brokers, job.schemas_topic)
        topics = [_topic(spark, job, brokers, each, definitions, now_ms) for each in job.topics]
    finally:
        brokers.close()
    return HealthReport(
        measured_ms=now_ms,
        kafka=job.kafka.options["bootstrap.servers"],
        spark_version=pyspark.__version__,
        healthy=not any(each.severity == "error" for topic in topics for each in topic.findings),
        topics=tuple(topics),
    )


def _topic(
    spark: SparkSession,
    job: HealthJob,
    brokers: Brokers,
    asked: HealthTopic,
    definitions: Mapping[str, int],
    now_ms: int,
) -> TopicHealth:
    began = time.monotonic()
    settings = _settings(brokers.settings(asked.topic))
    extent = brokers.extent(asked.topic)
    # Read each topic once: without this, every count would read it from Kafka again.
    records = topic_records(spark, job.kafka, extent).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        moments = measure.moments(records, now_ms, settings.delete_retention_ms)
        records_per_key, hot_keys = measure.keys(records, job.top)
        oddities, aliases, split_examples = measure.oddities(records, _numeric_members(asked.table))
        schemas = measure.schemas(records, definitions)
        topic = TopicHealth(
            topic=asked.topic,
            table=asked.table.qualified_name if asked.table is not None else None,
            settings=settings,
            partitions=measure.partitions(records, extent),
            **moments._asdict(),
            records_per_key=records_per_key,
            hot_keys=hot_keys,
            aliases=aliases,
            split_examples=split_examples,
            schemas=schemas,
            oldest_schema=next((each.fingerprint for each in schemas if each.live_keys), None),
            oddities=oddities,
            seconds=round(time.monotonic() - began, 3),
        )
    finally:
        records.unpersist()
    return topic.model_copy(update={"findings": findings(topic, now_ms)})


def _definitions(brokers: Brokers, topic: str | None) -> Mapping[str, int]:
    """Returns each definition's number of columns by fingerprint, in the order in which they were first written."""
    if topic is None:
        return {}
    found: dict[str, int] = {}
    try:
        for _, value in brokers.read_all(topic):
            if value is not None:
                schema = parse_schema(value)
                found.setdefault(schema.fingerprint, len(schema.columns))
    except DecodeError as error:
        raise TopicUnreadable(f"topic {topic}: {error}", remedy="find out who else writes into it") from error
    return found


def _settings(found: Mapping[str, str]) -> Settings:
    def value(name: str) -> Any:
        return found[name]

    return Settings(
        cleanup_policy=value("cleanup.policy"),
        delete_retention_ms=value("delete.retention.ms"),
        max_compaction_lag_ms=value("max.compaction.lag.ms"),
        min_compaction_lag_ms=value("min.compaction.lag.ms"),
        segment_ms=value("segment.ms"),
        min_cleanable_dirty_ratio=value("min.cleanable.dirty.ratio"),
    )


def _numeric_members(table: JobTable | None) -> frozenset[str]:
    if table is None:
        return frozenset()
    return frozenset(
        each.name
        for each in table.columns
        if each.name in table.key and not each.is_array and kind_of(each.sql_type).kind in _NUMERIC
    )


def _write(path: str | None, text: str) -> None:
    if path is None:
        return
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise JobError(
            f"cannot write {path}: {error.strerror}", remedy="name a file in an existing, writable folder"
        ) from error
