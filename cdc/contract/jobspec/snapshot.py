"""What a snapshot job is told."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, Field

from cdc.contract.jobspec.deployment import STRICT, JobTable, KafkaSettings, SparkSettings, Stream


class AsOfNow(BaseModel):
    """Everything that the bridge has published, at least up to the job's fence."""

    model_config = STRICT

    kind: Literal["now"] = "now"


class AsOfLsn(BaseModel):
    """Everything that committed before a position."""

    model_config = STRICT

    kind: Literal["lsn"] = "lsn"
    lsn: str


class AsOfTime(BaseModel):
    """Everything before the first commit that is later than a time, in µs since 1970."""

    model_config = STRICT

    kind: Literal["time"] = "time"
    time_us: int


class AsOfOffsets(BaseModel):
    """Records below an offset, by topic and partition; all others from their beginning to their end."""

    model_config = STRICT

    kind: Literal["offsets"] = "offsets"
    offsets: dict[str, dict[int, int]]


AsOf: TypeAlias = Annotated[AsOfNow | AsOfLsn | AsOfTime | AsOfOffsets, Field(discriminator="kind")]


class SnapshotJob(BaseModel):
    """The tables, the point, and where to write.

    Attributes:
        tables: all as of the same commit.
        fence: the source's position when the job was described; the bridge has to be there first.
        fence_us: the source's time then, µs since 1970.
        folder: absolute; driver and executors see the same files there.
        keep: how many snapshots stay in the folder, None for all.
    """

    model_config = STRICT

    spark: SparkSettings
    kafka: KafkaSettings
    stream: Stream
    tables: tuple[JobTable, ...] = Field(min_length=1)
    as_of: AsOf = Field(default_factory=AsOfNow)
    fence: str
    fence_us: int
    folder: str
    keep: int | None = Field(default=None, ge=1)
