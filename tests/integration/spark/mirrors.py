"""Mirrors as tests run and read them, in the session's Spark."""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet
from pyspark.sql import SparkSession

from cdc.base.config import load
from cdc.contract.jobspec.deployment import SparkSettings
from cdc.contract.jobspec.mirror import MirrorJob
from cdc.lab.proof.comparison import Key, Row, Rows, TableShape, describe, difference, pinned, table_rows, topic_rows
from cdc.lab.proof.topic_side import read_topics
from cdc.ops.jobs.describe import describe_deployment
from cdc.spark.mirror import manifest as manifests
from cdc.spark.mirror.main import mirror
from tests.support.deployment import Deployment

COMPACT_EVERY = 3
"""Both kinds of folders, state and changes, are then read by most tests."""


def job_for(
    deployment: Deployment,
    lake: Path,
    tables: Sequence[str] = (),
    spark: SparkSettings | None = None,
    **changes: object,
) -> MirrorJob:
    seen = describe_deployment(load(deployment.config, os.environ), tables)
    job = MirrorJob(
        spark=spark or SparkSettings(),
        kafka=seen.kafka,
        stream=seen.stream,
        tables=seen.tables,
        path=str(lake),
        compact_every=COMPACT_EVERY,
        once=True,
    )
    return job.model_copy(update=changes)


def run(spark: SparkSession, job: MirrorJob) -> None:
    mirror(spark, job, threading.Event())


def assert_equal(deployment: Deployment, job: MirrorJob, tables: Sequence[str]) -> None:
    """Source = folded topic = lake, every row and column."""
    deployment.wait_published()
    with pinned(deployment.source.dsn) as source:
        for name in tables:
            shape = describe(source, name)
            rows = table_rows(source, shape)
            topic = deployment.topic(name)
            live = read_topics(deployment.bootstrap, [topic], deployment.fields())[topic].live
            found = [
                difference("topic", rows, topic_rows(live, shape), shape),
                difference("lake", typed(rows, shape, job), lake_rows(job, topic, shape), shape),
            ]
            assert found == [None, None], f"{name}: {found}"


def lake_rows(job: MirrorJob, topic: str, shape: TableShape) -> Rows:
    """The table by its manifest alone: the state, and the changes on top."""
    folder = Path(job.path) / topic
    manifest = manifests.read(folder, topic)
    by_key: dict[str, dict[str, object]] = {}
    for part in (manifest.state, *manifest.changes):
        for file in sorted((folder / part).glob("*.parquet")):
            for row in pyarrow.parquet.read_table(file).to_pylist():
                if row["cdc_deleted"]:
                    by_key.pop(row["cdc_key"], None)
                else:
                    by_key[row["cdc_key"]] = row
    rows: Rows = {}
    for row in by_key.values():
        texts: Row = tuple(canonical(row[column.name]) for column in shape.columns)
        rows[shape.key_of(texts)] = texts
    assert len(rows) == len(by_key)
    return rows


def typed(rows: Rows, shape: TableShape, job: MirrorJob) -> Rows:
    """The source's rows with floats as Python prints them: the lake holds them as numbers."""
    table = next(each for each in job.tables if each.qualified_name == shape.table)
    types = {each.name: each.sql_type for each in table.columns}
    changed: dict[Key, Row] = {}
    for row in rows.values():
        texts: Row = tuple(
            canonical(number(text, types[column.name]))
            if text is not None and types[column.name] in ("float4", "float8")
            else text
            for column, text in zip(shape.columns, row, strict=True)
        )
        changed[shape.key_of(texts)] = texts
    return changed


def number(text: bytes, sql_type: str) -> float:
    precision = "f" if sql_type == "float4" else "d"
    value: float = struct.unpack(precision, struct.pack(precision, float(text)))[0]
    return value


def canonical(value: object) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return b"t" if value else b"f"
    return repr(value).encode() if isinstance(value, float) else str(value).encode()
