"""The description of a health job."""

from __future__ import annotations

from pydantic import BaseModel, Field

from cdc.contract.jobspec.deployment import STRICT, JobTable, KafkaSettings, SparkSettings

TOP_KEYS = 10
"""Enough to see a pattern; for more, write a query."""


class HealthTopic(BaseModel):
    """A topic to examine; ``table`` is the table that the bridge publishes to it, None if it is not the bridge's."""

    model_config = STRICT

    topic: str
    table: JobTable | None = None


class HealthJob(BaseModel):
    """Read topics from beginning to end, and report on their health.

    Attributes:
        topics: the topics to read.
        schemas_topic: the topic with the definitions of the bridge's tables; None if no topic is the bridge's.
        json_path, html_path: files for the report, in addition to standard output; None for no file.
        top: how many of the keys with the most records the report names.
    """

    model_config = STRICT

    spark: SparkSettings
    kafka: KafkaSettings
    topics: tuple[HealthTopic, ...] = Field(min_length=1)
    schemas_topic: str | None = None
    json_path: str | None = None
    html_path: str | None = None
    top: int = Field(default=TOP_KEYS, ge=1, le=1000)
