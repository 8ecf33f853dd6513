"""The description of a mirror job."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import BaseModel, Field

from cdc.contract.jobspec.deployment import STRICT, JobTable, KafkaSettings, SparkSettings, Stream

LakeFormat: TypeAlias = Literal["parquet", "delta", "iceberg"]

RECORDS_PER_BATCH = 200_000
"""A batch of one-kilobyte rows is then 200 MB, spread over the executors, and is written within seconds."""

INTERVAL_S = 5
"""Seconds between two batches: each batch writes a few files per table."""

COMPACT_EVERY = 20
"""A reader of the newest rows merges at most this many small sets of files."""

KEEP_DAYS = 7
"""Days for which a reader can go back to a former version of a table, as Delta's own default."""


QUARANTINE = 0
"""Keys of a table that may stand aside. A mirror that stops is seen; a table that lacks rows may not be."""

MAX_QUARANTINE = 100
"""Each is in each commit of its table, and an Iceberg table writes what its commits say again with every commit."""


class MirrorJob(BaseModel):
    """Copy topics to tables in a lake, and follow them.

    Attributes:
        stream: the bridge that publishes the topics.
        format: what the tables are made of.
        path: a folder that the driver and all executors see; each topic gets a folder in it.
        compact_every: after how many batches of a table its small files are rewritten.
        keep_days: for how many days former versions stay readable, in a format that has versions.
        quarantine: how many keys of each table may stand aside because their newest records cannot be read; only in a
            format that has versions.
        checkpoint: a folder for Spark's own checkpoint; None for none, because the files record their positions.
        once: stop at the present end of the topics, instead of following them.
        rebuild: empty the copies first, and start from the beginning.
    """

    model_config = STRICT

    spark: SparkSettings
    kafka: KafkaSettings
    stream: Stream
    tables: tuple[JobTable, ...] = Field(min_length=1)
    format: LakeFormat = "parquet"
    path: str = Field(min_length=1)
    compact_every: int = Field(default=COMPACT_EVERY, ge=1, le=1000)
    keep_days: int = Field(default=KEEP_DAYS, ge=1, le=3650)
    quarantine: int = Field(default=QUARANTINE, ge=0, le=MAX_QUARANTINE)
    checkpoint: str | None = None
    once: bool = False
    rebuild: bool = False
    records_per_batch: int = Field(default=RECORDS_PER_BATCH, ge=1, le=100_000_000)
    interval_s: int = Field(default=INTERVAL_S, ge=0, le=3600)
