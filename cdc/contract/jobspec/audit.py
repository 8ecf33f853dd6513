"""The description of an audit job."""

from __future__ import annotations

from pydantic import BaseModel, Field

from cdc.contract.jobspec.deployment import STRICT, JobTable, KafkaSettings, SparkSettings


class AuditJob(BaseModel):
    """List the changes of a table, from its history.

    Attributes:
        table: a table with a history topic.
        keys: list only these keys, spelled as in the topic; empty for all.
        since_us, until_us: commit times in µs since 1970, the first included, the second not; None for no limit.
        folder: where to write: an absolute path that does not exist yet; driver and executors see the same files there.
        top: how many of the most changed keys the summary names.
    """

    model_config = STRICT

    spark: SparkSettings
    kafka: KafkaSettings
    table: JobTable
    keys: tuple[str, ...] = ()
    since_us: int | None = None
    until_us: int | None = None
    folder: str
    top: int = Field(default=10, ge=1, le=1000)
