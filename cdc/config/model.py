"""The shape of the configuration: every option with its bound, its default and the default's reason."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr

_STRICT = ConfigDict(extra="forbid", frozen=True)


class SourceConfig(BaseModel):
    """The PostgreSQL database to capture.

    Attributes:
        dsn: libpq connection string or URL, without the password unless it must be.
        password: kept out of the DSN so that it is never printed.
        password_file: a file whose first line is the password (container secrets).
        slot: replication slot; default ``cdc_<name>``.
        publication: default ``cdc_<name>``.
        publication_mode: ``filtered`` creates and alters a publication of just ``tables``; ``all_tables`` creates one
            FOR ALL TABLES (superuser); ``disabled`` uses what is there and changes nothing.
        tables: ``schema.table`` patterns with ``*``; matched against ordinary and partitioned tables.
        exclude: patterns taken out again.
        keys: ``schema.table`` → key columns, for tables whose key is neither primary key nor replica identity index.
    """

    model_config = _STRICT

    dsn: SecretStr
    password: SecretStr | None = None
    password_file: str | None = None
    slot: str = ""
    publication: str = ""
    publication_mode: Literal["filtered", "all_tables", "disabled"] = "filtered"
    tables: tuple[str, ...] = ("public.*",)
    exclude: tuple[str, ...] = ()
    keys: dict[str, tuple[str, ...]] = Field(default_factory=dict)


class KafkaConfig(BaseModel):
    """The Kafka cluster. ``options`` goes to librdkafka as it is (TLS, SASL, compression …)."""

    model_config = _STRICT

    bootstrap: str
    options: dict[str, str | int | float | bool] = Field(default_factory=dict)
    password: SecretStr | None = None
    password_file: str | None = None


class TopicsConfig(BaseModel):
    """Settings of the topics that the bridge creates, and checks for drift on every start."""

    model_config = _STRICT

    partitions: int = Field(default=4, ge=1, le=1000)
    replication_factor: int = Field(default=1, ge=1, le=32767)
    min_insync_replicas: int = Field(default=1, ge=1, le=32767)
    min_compaction_lag_ms: int = Field(default=60_000, ge=0)
    max_compaction_lag_ms: int = Field(default=86_400_000, ge=1)
    delete_retention_ms: int = Field(default=604_800_000, ge=0)
    segment_ms: int = Field(default=3_600_000, ge=100)
    min_cleanable_dirty_ratio: float = Field(default=0.3, ge=0, le=1)
    truncate: Literal["tombstone", "ignore", "fail"] = "tombstone"
    names: dict[str, str] = Field(default_factory=dict)


class SinkConfig(BaseModel):
    """The replica database. A replica table is ``schema.prefix + table`` unless ``tables`` names another."""

    model_config = _STRICT

    dsn: SecretStr
    password: SecretStr | None = None
    password_file: str | None = None
    schema_name: str | None = Field(default=None, alias="schema", min_length=1, max_length=63)
    prefix: str = ""
    tables: dict[str, str] = Field(default_factory=dict)


class HttpConfig(BaseModel):
    """Where ``/metrics``, ``/live`` and ``/ready`` are served; port 0 picks a free one, None serves nothing."""

    model_config = _STRICT

    host: str = "127.0.0.1"
    bridge_port: int | None = Field(default=None, ge=0, le=65535)
    sink_port: int | None = Field(default=None, ge=0, le=65535)


class Config(BaseModel):
    """Everything one database's bridge and sink need."""

    model_config = _STRICT

    name: str = Field(pattern=r"^[A-Za-z0-9_]{1,48}$")
    source: SourceConfig
    kafka: KafkaConfig
    topics: TopicsConfig = TopicsConfig()
    sink: SinkConfig | None = None
    http: HttpConfig = HttpConfig()
