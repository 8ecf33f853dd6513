"""What a health check found, as one typed document: text, JSON and HTML are views of it.

The JSON form is a contract (``SCHEMA_VERSION``): fields may be added in a minor version, never change their meaning.
Times are milliseconds since 1970, bytes are those of keys and values before compression.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict

SCHEMA_VERSION: Final = "1.0"

Severity: TypeAlias = Literal["error", "warning", "note"]

_STRICT = ConfigDict(extra="forbid", frozen=True)


class HealthFinding(BaseModel):
    """Something that is not as it should be; ``code`` is stable, for programs."""

    model_config = _STRICT

    severity: Severity
    code: str
    text: str
    remedy: str


class Settings(BaseModel):
    """The topic's configuration, as far as compaction depends on it."""

    model_config = _STRICT

    cleanup_policy: str
    delete_retention_ms: int
    max_compaction_lag_ms: int
    min_compaction_lag_ms: int
    segment_ms: int
    min_cleanable_dirty_ratio: float


class PartitionHealth(BaseModel):
    """One partition, between its first and its last stable offset.

    Attributes:
        superseded_records: records with a later one of the same key: what compaction would take away.
        live_keys: keys whose latest record has a value.
        tombstones: keys whose latest record has none.
    """

    model_config = _STRICT

    partition: int
    start: int
    end: int
    records: int = 0
    bytes: int = 0
    live_keys: int = 0
    tombstones: int = 0
    superseded_records: int = 0
    superseded_bytes: int = 0
    oldest_ms: int | None = None
    newest_ms: int | None = None


class DistributionBar(BaseModel):
    """One bar of a distribution."""

    model_config = _STRICT

    label: str
    count: int


class HotKey(BaseModel):
    """A key with many records."""

    model_config = _STRICT

    key: str
    partition: int
    records: int
    bytes: int


class AliasKeys(BaseModel):
    """Byte-keys that mean one logical key; of these, ``live`` have a row."""

    model_config = _STRICT

    keys: tuple[str, ...]
    live: int


class SchemaUse(BaseModel):
    """A definition that records were written with; ``columns`` is None when the schemas topic does not have it."""

    model_config = _STRICT

    fingerprint: str
    columns: int | None
    records: int
    live_keys: int
    oldest_ms: int
    newest_ms: int


class Oddities(BaseModel):
    """Counts of what a state topic should not hold.

    Attributes:
        without_header: records without the header ``cdc``.
        unknown_version: records whose header is not of version 1 of the topic contract.
        without_key: records without a key, which the cleaner drops.
        not_json_keys: keys that are not JSON objects.
        null_values: keys whose latest value is empty or the word ``null``: meant as a delete, and never cleaned away.
        alias_groups, live_alias_groups: logical keys with several byte-keys; of these, how many have several rows.
        split_keys: keys that lie in more than one partition.
    """

    model_config = _STRICT

    without_header: int = 0
    unknown_version: int = 0
    without_key: int = 0
    not_json_keys: int = 0
    null_values: int = 0
    alias_groups: int = 0
    live_alias_groups: int = 0
    split_keys: int = 0


class TopicHealth(BaseModel):
    """One topic.

    Attributes:
        table: the table that it holds the state of; None for a topic that is not ours.
        tombstone_ages: latest tombstones by age, and ``expired_tombstones`` older than delete.retention.ms.
        oldest_tombstone_ms, superseded_since_ms: timestamps; the second is of the earliest record that superseded one
            which is still there.
        records_per_key: keys by how many records they have.
        oldest_schema: the definition, earliest in the schemas topic, that a live row still has.
    """

    model_config = _STRICT

    topic: str
    table: str | None
    settings: Settings
    partitions: tuple[PartitionHealth, ...]
    tombstone_ages: tuple[DistributionBar, ...]
    expired_tombstones: int
    oldest_tombstone_ms: int | None
    superseded_since_ms: int | None
    records_per_key: tuple[DistributionBar, ...]
    hot_keys: tuple[HotKey, ...]
    aliases: tuple[AliasKeys, ...]
    split_examples: tuple[str, ...]
    schemas: tuple[SchemaUse, ...]
    oldest_schema: str | None
    oddities: Oddities
    seconds: float
    findings: tuple[HealthFinding, ...] = ()

    def total(self, name: str) -> int:
        """Sum of a count over the partitions."""
        return sum(getattr(each, name) for each in self.partitions)

    @property
    def garbage_ratio(self) -> float:
        """Superseded bytes by all bytes."""
        return self.total("superseded_bytes") / max(1, self.total("bytes"))


class HealthReport(BaseModel):
    """A whole run."""

    model_config = _STRICT

    schema_version: str = SCHEMA_VERSION
    measured_ms: int
    kafka: str
    isolation_level: Literal["read_committed"] = "read_committed"
    spark_version: str
    healthy: bool
    topics: tuple[TopicHealth, ...]
