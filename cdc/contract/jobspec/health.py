"""What the health job is told."""

from __future__ import annotations

from pydantic import BaseModel, Field

from cdc.contract.jobspec.deployment import STRICT, JobTable, KafkaSettings, SparkSettings

TOP_KEYS = 10
"""Enough to see a pattern; more belongs into a query of one's own."""


class HealthTopic(BaseModel):
    """A topic to look at; ``table`` is what the bridge keeps in it, None for a topic that is not ours."""

    model_config = STRICT

    topic: str
    table: JobTable | None = None


class HealthJob(BaseModel):
    """Read topics from beginning to end and say how they are.

    Attributes:
        schemas_topic: where the definitions of our topics are; None when there is none of ours.
        json_path, html_path: where the report goes beside standard output; None for nowhere.
        top: how many keys with the most records are named.
    """

    model_config = STRICT

    spark: SparkSettings
    kafka: KafkaSettings
    topics: tuple[HealthTopic, ...] = Field(min_length=1)
    schemas_topic: str | None = None
    json_path: str | None = None
    html_path: str | None = None
    top: int = Field(default=TOP_KEYS, ge=1, le=1000)
