"""The past out of a table's history topic, which keeps every change: exact for each position since it is complete.

A history tells a table's state at a position when it has a record of every row from before that position. It has when
one backfill, which published a record of each row that no transaction touched meanwhile, went through it from its
first row on, and is in it still; a backfill that found no row leaves nothing to see that by. That the history was kept
without a break since then is assumed: nothing in a topic tells of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as fn

from cdc.base.errors import DecodeError
from cdc.base.lsn import LSN
from cdc.contract.header import BACKFILL
from cdc.contract.jobspec.deployment import JobTable, KafkaSettings
from cdc.contract.record import BackfillProgress
from cdc.spark.offsets import Extent
from cdc.spark.snapshot.fold import with_headers
from cdc.spark.snapshot.newest import Log, unread
from cdc.spark.snapshot.point import PublishedPoint
from cdc.spark.values.objects import split_object


def history_log(spark: SparkSession, kafka: KafkaSettings, extent: Extent) -> Log:
    """A history's records as if they were the state topic's: their keys and headers are, and ``new`` is its value."""
    log = unread(spark, kafka, extent)
    states = log.records.mapInArrow(_states, log.records.schema)
    return Log(states, extent, log.began_ms, is_proven=True)


def prefer_histories(
    tables: Sequence[JobTable],
    logs: Mapping[str, Log],
    histories: Mapping[str, Log],
    published: PublishedPoint,
    lsn: LSN,
) -> Mapping[str, Log]:
    """``logs`` with the history in place of each state topic whose history is complete at ``lsn``."""
    chosen = dict(logs)
    for table in tables:
        backfills = published.backfills.get(table.qualified_name, ())
        history = histories.get(table.topic)
        complete = None if history is None else complete_since(history, backfills)
        if history is None or complete is None:
            continue
        when = datetime.fromtimestamp(complete.updated_at / 1_000_000, UTC).isoformat()
        chosen[table.topic] = (
            history
            if lsn >= complete.lsn
            else replace(
                logs[table.topic], remedy=f"ask for {complete.lsn} or later: its history is whole since {when}"
            )
        )
    return chosen


def complete_since(log: Log, backfills: Sequence[BackfillProgress]) -> BackfillProgress | None:
    """The backfill from whose position on the history tells every state; None when none is known to.

    Args:
        log: from ``history_log``.
        backfills: every record of the table's backfills that is left in the progress topic, in order.
    """
    records = with_headers(log.records.select("key", "partition", "offset", "timestamp_ms", "header"))
    for backfill in backfills:
        if backfill.state != "done" or not backfill.whole or backfill.where is not None or not backfill.rows:
            continue
        during = fn.col("commit_us").between(backfill.started_at, backfill.updated_at)
        found = records.groupBy("partition").agg(
            fn.min("timestamp_ms").alias("oldest_ms"),
            fn.count(fn.when((fn.col("op") == BACKFILL) & during, 1)).alias("backfilled"),
        ).collect()  # fmt: skip
        if _reaches_back(log.extent, found, backfill.started_at // 1000) and (
            sum(row["backfilled"] for row in found) >= backfill.rows
        ):
            return backfill
    return None


def _reaches_back(extent: Extent, found: Sequence[Row], since_ms: int) -> bool:
    """Whether retention has left everything that was written since."""
    oldest = {row["partition"]: row["oldest_ms"] for row in found}
    return all(
        start == 0 or (partition in oldest and oldest[partition] < since_ms)
        for partition, start in enumerate(extent.starts)
    )


def _states(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        values = pa.array([_state(each) for each in batch.column("value").to_pylist()], pa.binary())
        yield batch.set_column(batch.schema.get_field_index("value"), "value", values)


def _state(value: bytes) -> bytes | None:
    """The state topic's value at this change."""
    try:
        fields = split_object(value.decode())
        if fields["v"] != "1":
            raise DecodeError("another version")
        return None if fields["new"] == "null" else fields["new"].encode()
    except (KeyError, UnicodeDecodeError, DecodeError) as error:
        raise DecodeError(f"history record is not of topic contract version 1: {value[:200]!r}") from error
