"""What the mirror job is told."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from cdc.contract.jobspec.deployment import STRICT, KafkaSettings, PostgresSettings, SparkSettings, Stream, Table

RECORDS_PER_BATCH = 200_000
"""A batch of rows of a kilobyte is then 200 MB spread over the executors, and is written within seconds."""

INTERVAL_S = 5
"""Between two batches: each costs a transaction per table, or a few files."""

COMPACT_EVERY = 20
"""A reader that wants the newest rows merges at most this many small sets of files."""


class PostgresTarget(BaseModel):
    """Replica tables ``namespace.<table>`` in a database."""

    model_config = STRICT

    kind: Literal["postgres"] = "postgres"
    database: PostgresSettings
    namespace: str = Field(min_length=1, max_length=63)


class ParquetTarget(BaseModel):
    """A folder per topic under ``path``, which the driver and all executors see."""

    model_config = STRICT

    kind: Literal["parquet"] = "parquet"
    path: str = Field(min_length=1)
    compact_every: int = Field(default=COMPACT_EVERY, ge=1, le=1000)


class MirrorJob(BaseModel):
    """Copy topics into a target, and follow them.

    Attributes:
        stream: the bridge that publishes the topics.
        checkpoint: Spark's own notes, kept from run to run; None for none: the target knows where it stands.
        once: end with what is there now, instead of following.
        rebuild: empty the target's tables first, and begin at the beginning.
    """

    model_config = STRICT

    spark: SparkSettings
    kafka: KafkaSettings
    stream: Stream
    tables: tuple[Table, ...] = Field(min_length=1)
    target: PostgresTarget | ParquetTarget = Field(discriminator="kind")
    checkpoint: str | None = None
    once: bool = False
    rebuild: bool = False
    records_per_batch: int = Field(default=RECORDS_PER_BATCH, ge=1, le=100_000_000)
    interval_s: int = Field(default=INTERVAL_S, ge=0, le=3600)
