"""Proves that a fold is the state at its bound: reads what was written meanwhile, sees each pair again, and judges."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition
from pyspark.sql import DataFrame, SparkSession

from cdc.base.lsn import LSN
from cdc.contract.jobspec.deployment import JobTable, KafkaSettings
from cdc.spark.errors import PastErased, TopicUnreadable
from cdc.spark.kafka_options import client_options
from cdc.spark.offsets import Brokers, Extent
from cdc.spark.snapshot.fold import evidence, with_headers
from cdc.spark.snapshot.past import Erased, LogPlace, LogReading, PartitionEvidence, answerable_since, judge
from cdc.spark.topic import read_topic

_TIMEOUT_S: Final = 30.0


def is_there(kafka: KafkaSettings, topic: str, partition: int, offset: int) -> bool:
    """Tells whether the record that was at ``offset`` is still there.

    Raises:
        TopicUnreadable: no record came in time.
    """
    consumer = Consumer(
        {
            **client_options(kafka),
            "group.id": "cdc-spark-driver",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_uncommitted",
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, offset)])
        deadline = time.monotonic() + _TIMEOUT_S
        while time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                # Kafka answers with the next record that is left, at a higher offset if this one was erased.
                return bool(message.offset() == offset)
    except KafkaException as error:
        raise TopicUnreadable(f"topic {topic}: {error.args[0].str()}", remedy="check the brokers") from error
    finally:
        consumer.close()
    raise TopicUnreadable(
        f"topic {topic}, partition {partition}: no record came from offset {offset}",
        remedy="check the brokers, then try again",
    )


_LAG: Final = "min.compaction.lag.ms"
_RETENTION: Final = "delete.retention.ms"


def refuse_unless_exact(
    spark: SparkSession,
    kafka: KafkaSettings,
    brokers: Brokers,
    table: JobTable,
    extent: Extent,
    folded: DataFrame,
    began_ms: int,
    *,
    newest: bool,
) -> None:
    """Stops the job unless ``folded``, read from ``extent`` since ``began_ms``, is proven to be the state at its bound.

    Args:
        newest: the bound is the newest state, so a partition that did not grow proves itself.

    Raises:
        PastErased: the state is not proven; says from when on the topic can answer, where that is known.
        TopicChanged: the topic was recreated meanwhile.
    """  # fmt: skip
    tail = brokers.extent(table.topic).after(extent.ends)
    brokers.refuse_another(extent)
    written_meanwhile = any(start < end for start, end in zip(tail.starts, tail.ends, strict=True))
    records = with_headers(read_topic(spark, kafka, tail)) if written_meanwhile else None
    seen = [
        replace(
            _seen_again(kafka, table.topic, each),
            quiet=newest and tail.starts[each.partition] >= tail.ends[each.partition],
        )
        for each in _of_all_partitions(evidence(folded, records), tail)
    ]
    settings = brokers.settings(table.topic)
    reading = reading_of(settings, began_ms)
    erased = [found for each in seen if (found := judge(each, reading)) is not None]
    if erased:
        raise _refusal(table, settings, erased)


def reading_of(settings: Mapping[str, str], began_ms: int) -> LogReading:
    """Describes the reading of a topic with these settings, from ``began_ms`` until now."""
    now_ms = time.time_ns() // 1_000_000
    return LogReading(now_ms, now_ms - began_ms, int(settings[_LAG]), int(settings[_RETENTION]))


def _of_all_partitions(found: list[PartitionEvidence], tail: Extent) -> list[PartitionEvidence]:
    """Adds the partitions that once held records and have none left."""
    seen = {each.partition for each in found}
    unseen = [each for each, end in enumerate(tail.ends) if end > 0 and each not in seen]
    return [*found, *(PartitionEvidence(each, False, None, None, None, None, None) for each in unseen)]


def _seen_again(kafka: KafkaSettings, topic: str, found: PartitionEvidence) -> PartitionEvidence:
    if found.superseded is None:
        return found
    if is_there(kafka, topic, found.partition, found.superseded):
        return found
    return replace(found, superseded=None, superseding=None)


def _refusal(table: JobTable, settings: Mapping[str, str], erased: list[Erased]) -> PastErased:
    since = answerable_since(erased)
    if since is not None:
        remedy = f"ask for {LSN(since.lsn + 1)} or later, which is after the commit of {commit_time(since)}"
    else:
        remedy = (
            f"ask for a later point; to keep more of the past, raise topics.min_compaction_lag_ms ({_LAG} is "
            f"{settings[_LAG]} now)"
        )
    reasons = "; ".join(sorted({each.reason for each in erased}))
    return PastErased(
        f"{table.qualified_name}: compaction may have erased records that this needs: {reasons}", remedy=remedy
    )


def commit_time(place: LogPlace) -> str:
    """Returns the record's commit time, ISO 8601 in UTC."""
    return datetime.fromtimestamp(place.commit_us / 1_000_000, UTC).isoformat()
