"""The description of a snapshot job."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, Field

from cdc.contract.jobspec.deployment import STRICT, JobTable, KafkaSettings, SparkSettings, Stream


class AsOfNow(BaseModel):
    """The tables with everything that the bridge has published, at least up to the job's fence."""

    model_config = STRICT

    kind: Literal["now"] = "now"


class AsOfLsn(BaseModel):
    """The tables with everything that committed before an LSN."""

    model_config = STRICT

    kind: Literal["lsn"] = "lsn"
    lsn: str


class AsOfTime(BaseModel):
    """The tables with everything before the first commit that is later than a time, in µs since 1970."""

    model_config = STRICT

    kind: Literal["time"] = "time"
    time_us: int


class AsOfOffsets(BaseModel):
    """The tables up to given offsets, by topic and partition; other partitions count to their end."""

    model_config = STRICT

    kind: Literal["offsets"] = "offsets"
    offsets: dict[str, dict[int, int]]


AsOf: TypeAlias = Annotated[AsOfNow | AsOfLsn | AsOfTime | AsOfOffsets, Field(discriminator="kind")]


class SnapshotJob(BaseModel):
    """Write tables as they were at one point to files.

    Attributes:
        tables: the tables, all as of the same commit.
        as_of: the point.
        fence: the source's WAL position when the job was described; the job waits until the bridge has reached it.
        fence_us: the source's time then, µs since 1970.
        folder: where to write: an absolute path, under which driver and executors see the same files.
        keep: how many snapshots to keep in the folder, None for all.
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
