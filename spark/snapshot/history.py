"""Reads past states from a table's history topic, which keeps every change and is exact since it is complete.

A history tells the table's state at a position if it holds a record of every row from before that position. A backfill
publishes a record of each row that no transaction touches meanwhile. So a history that still holds all records of a
finished backfill of the whole table is complete from that backfill's position on. A backfill that found no rows leaves
no record to show this. The job assumes that the history was kept without a break since then, which no topic can tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

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

_CLOCKS_AGREE_WITHIN_MS: Final = 10_000
"""The record may have its time from a broker or from another bridge, the backfill from this one: as in the sink's cuts,
their clocks are taken to agree within ten seconds."""


def history_log(spark: SparkSession, kafka: KafkaSettings, extent: Extent) -> Log:
    """Returns a history's records in the form of the state topic's.

    Keys and headers are the same in both; the state topic's value is the history's ``new``.
    """
    log = unread(spark, kafka, extent)
    states = log.records.mapInArrow(read_states, log.records.schema)
    return Log(states, extent, log.began_ms, is_proven=True)


def prefer_histories(
    tables: Sequence[JobTable],
    logs: Mapping[str, Log],
    histories: Mapping[str, Log],
    published: PublishedPoint,
    lsn: LSN,
) -> Mapping[str, Log]:
    """Returns ``logs`` with the history in place of each state topic whose history is complete at ``lsn``."""
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
                logs[table.topic], remedy=f"ask for {complete.lsn} or later: its history is complete since {when}"
            )
        )
    return chosen


def complete_since(log: Log, backfills: Sequence[BackfillProgress]) -> BackfillProgress | None:
    """Returns the backfill from whose position on the history tells every state; None when none is proven to.

    Args:
        log: from ``history_log``.
        backfills: the table's backfill records that are left in the progress topic, in order.
    """
    records = with_headers(log.records.select("key", "partition", "offset", "timestamp_ms", "header"))
    for backfill in backfills:
        # A backfill with a condition left rows out, and one without rows left no record that could prove anything.
        if backfill.state != "done" or not backfill.whole or backfill.where is not None or not backfill.rows:
            continue
        # A backfilled record has the time of its backfill in the header: this tells apart those of several backfills.
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
    """Tells whether retention has removed nothing that was written since: each partition still has an older record."""
    oldest = {row["partition"]: row["oldest_ms"] for row in found}
    return all(
        start == 0 or (partition in oldest and oldest[partition] < since_ms - _CLOCKS_AGREE_WITHIN_MS)
        for partition, start in enumerate(extent.starts)
    )


def read_states(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields the history's records with the values that the state topic had. Raises ``DecodeError``."""
    for batch in batches:
        values = pa.array([_state(each) for each in batch.column("value").to_pylist()], pa.binary())
        yield batch.set_column(batch.schema.get_field_index("value"), "value", values)


def _state(value: bytes) -> bytes | None:
    """Returns the value that the state topic had at this change; None for a deletion."""
    try:
        fields = split_object(value.decode())
        if fields["v"] != "1":
            raise DecodeError("unknown version")
        return None if fields["new"] == "null" else fields["new"].encode()
    except (KeyError, UnicodeDecodeError, DecodeError) as error:
        raise DecodeError(f"history record is not of topic contract version 1: {value[:200]!r}") from error
