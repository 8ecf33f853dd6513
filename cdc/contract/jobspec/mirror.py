"""What the mirror job is told."""

from __future__ import annotations

from pydantic import BaseModel, Field

from cdc.contract.jobspec.deployment import STRICT, JobTable, KafkaSettings, SparkSettings, Stream

RECORDS_PER_BATCH = 200_000
"""A batch of rows of a kilobyte is then 200 MB spread over the executors, and is written within seconds."""

INTERVAL_S = 5
"""Between two batches: each costs a few files per table."""

COMPACT_EVERY = 20
"""A reader that wants the newest rows merges at most this many small sets of files."""


class MirrorJob(BaseModel):
    """Copy topics into a lake of Parquet files, and follow them.

    Attributes:
        stream: the bridge that publishes the topics.
        path: a folder that the driver and all executors see; each topic gets a folder in it.
        compact_every: after how many batches the files are rewritten to one row per key.
        checkpoint: Spark's own notes, kept from run to run; None for none: the files know where they stand.
        once: end with what is there now, instead of following.
        rebuild: empty the copies first, and begin at the beginning.
    """

    model_config = STRICT

    spark: SparkSettings
    kafka: KafkaSettings
    stream: Stream
    tables: tuple[JobTable, ...] = Field(min_length=1)
    path: str = Field(min_length=1)
    compact_every: int = Field(default=COMPACT_EVERY, ge=1, le=1000)
    checkpoint: str | None = None
    once: bool = False
    rebuild: bool = False
    records_per_batch: int = Field(default=RECORDS_PER_BATCH, ge=1, le=100_000_000)
    interval_s: int = Field(default=INTERVAL_S, ge=0, le=3600)
