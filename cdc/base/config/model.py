"""The model of the configuration: every option with its bounds, its default and the reason for the default.

``cdc config schema`` shows the sentence under a field as its description.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    model_validator,
)

from cdc.base.config import checks, masking, password_file, replica_url
from cdc.base.config.debezium import DebeziumConfig
from cdc.base.config.registry import RegistryConfig
from cdc.base.config.serve import ServeConfig
from cdc.base.config.source_tables import (
    ColumnsConfig,
    MessagesConfig,
    OutboxConfig,
    Prefix,
    QuarantineConfig,
    check_messages,
    check_outboxes,
)
from cdc.base.config.values import ValuesConfig
from cdc.base.config.view import ViewConfig
from cdc.base.errors import ConfigError

_STRICT = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, hide_input_in_errors=True)

_Dsn: TypeAlias = Annotated[SecretStr, AfterValidator(lambda dsn: SecretStr(checks.present(dsn.get_secret_value())))]
_Identifier: TypeAlias = Annotated[str, AfterValidator(checks.identifier)]
_TableName: TypeAlias = Annotated[str, AfterValidator(checks.table_name)]
_TablePattern: TypeAlias = Annotated[str, AfterValidator(checks.table_pattern)]
_Patterns: TypeAlias = Annotated[tuple[_TablePattern, ...], BeforeValidator(checks.split_list)]
_KeyColumns: TypeAlias = Annotated[tuple[_Identifier, ...], BeforeValidator(checks.split_list)]
_Int: TypeAlias = Annotated[int, BeforeValidator(checks.number)]
_Float: TypeAlias = Annotated[float, BeforeValidator(checks.number)]
_Format: TypeAlias = Literal["json", "avro", "protobuf", "json-schema"]
_Condition: TypeAlias = Annotated[str, AfterValidator(checks.condition)]
_Scalar: TypeAlias = Annotated[str | int | float | bool, BeforeValidator(checks.scalar)]


class SourceConfig(BaseModel):
    """The PostgreSQL database to capture."""

    model_config = _STRICT

    dsn: _Dsn | None = None
    """libpq connection string or URL, best without the password: host=db dbname=shop user=cdc. The bridge needs it;
    readers of the topics (cdc sink, cdc serve) do not."""
    password: SecretStr | None = None
    """Password of that user; kept out of dsn so that it is never printed. PGPASSWORD and ~/.pgpass work as well."""
    password_file: str | None = None
    """File whose first line is the password (container secrets); a relative path starts at the configuration file."""
    slot: Annotated[str, AfterValidator(checks.slot_name)] = ""
    """Replication slot; default cdc_<name> in lower case, one slot per bridge."""
    publication: _Identifier = ""
    """Publication; default cdc_<name> in lower case."""
    publication_mode: Literal["filtered", "all_tables", "disabled"] = "filtered"
    """filtered (default) creates and alters a publication of just the tables below, which their owner may do;
    all_tables creates one FOR ALL TABLES, which only a superuser may do; disabled uses an existing publication."""
    tables: Annotated[_Patterns, AfterValidator(checks.not_empty)] = ("public.*",)
    """Tables to capture, as schema.table with * for any characters; public.* because most databases use only that.
    A table without a usable key is left out if only a pattern reaches it."""
    exclude: _Patterns = ()
    """Patterns for tables to leave out."""
    keys: dict[_TableName, _KeyColumns] = Field(default_factory=dict)
    """Key columns by schema.table, for tables with neither a primary key nor a replica identity index."""
    columns: dict[_TableName, ColumnsConfig] = Field(default_factory=dict)
    """Rules by schema.table for what may not leave: exclude, mask, keep and policy. When they change, the table's topic
    begins anew, because its records hold what is hidden now. None by default: every column leaves."""
    rows: dict[_TableName, _Condition] = Field(default_factory=dict)
    """Condition by schema.table: only rows that satisfy it leave the database, because it becomes the row filter of the
    publication. When it changes, the table's topic begins anew. None by default: every row leaves."""
    quarantine: dict[_TableName, QuarantineConfig] = Field(default_factory=dict)
    """Tables by schema.table whose rows that cannot be carried go to the topic {name}.__quarantine, instead of stopping
    the bridge. None by default, because a topic that lacks a row has to be somebody's decision."""
    salt: Annotated[SecretStr, AfterValidator(checks.salt)] | None = None
    """The secret under which sha256 masks hash, at least 16 characters. Without one, short values could be guessed."""
    salt_file: str | None = None
    """File whose first line is the salt; a relative path starts at the configuration file."""
    outbox: dict[_TableName, OutboxConfig] = Field(default_factory=dict)
    """Outbox tables by schema.table: each row that is inserted becomes an event in the Kafka transaction of its source
    transaction. They are not captured as tables; none by default, because only some services publish events."""
    messages: dict[Prefix, MessagesConfig] = Field(default_factory=dict)
    """Logical messages by prefix: what SELECT pg_logical_emit_message(true, prefix, content) writes becomes an event in
    the Kafka transaction of its source transaction. None by default, because only some services publish events."""
    streaming: bool = False
    """true makes the server send large transactions while they run. They wait on this machine's disk (TMPDIR) until
    they end, not on the server's (pg_replslot). Off by default, because it costs CPU here and speeds up no commit."""
    on_gap: Literal["fail", "rebackfill"] = "fail"
    """What to do when changes may be missing: fail (default) stops, because a person should see why; rebackfill
    recreates the slot if necessary and publishes the tables again, with tombstones for rows that are gone."""

    @model_validator(mode="after")
    def _check(self, info: ValidationInfo) -> SourceConfig:
        password_file.settle(self, info, *(() if self.dsn is None else (self.dsn.get_secret_value(),)))
        if self.dsn is None and self.password is not None:
            raise ValueError("a password is given without a dsn")
        password_file.settle(self, info, what="salt")
        if self.salt is not None:
            checks.salt(self.salt)  # a file's, too
        for table, chosen in self.columns.items():
            if chosen.needs_salt and self.salt is None:
                raise ValueError(
                    f"columns: {table} has a sha256 mask, which needs a secret: add salt or salt_file to source"
                )
        checks.key_columns(self.keys)
        if self.rows and self.publication_mode == "all_tables":
            raise ValueError(
                "source.rows needs a publication that names its tables, and publication_mode: all_tables makes one "
                "that cannot filter rows; set it to filtered, or to disabled"
            )
        return self

    def connection(self) -> dict[str, str]:
        """Returns arguments for ``psycopg.connect`` or ``make_conninfo``: ``conninfo``, and maybe ``password``.

        Raises:
            ConfigError: the configuration names no source; one for readers of the topics only need not.
        """
        if self.dsn is None:
            raise ConfigError(
                "source.dsn is missing, and this command reads the source database",
                remedy="add source: {dsn: …} to the configuration, or set CDC_SOURCE__DSN",
            )
        return password_file.connection(self.dsn, self.password)


class SnapshotConfig(BaseModel):
    """The first copy of a table: the rows that the stream does not deliver."""

    model_config = _STRICT

    mode: Literal["initial", "never", "when_needed"] = "initial"
    """initial (default) publishes the existing rows when a table joins, so that its topic holds the whole table; never
    publishes only changes; when_needed is initial, and publishes again after a gap, as source.on_gap: rebackfill."""
    parallel: _Int = Field(default=2, ge=1, le=16)
    """Number of connections that read tables: 2 keep the publishing thread busy, more help only with a slow server."""
    wait_for_sink: bool = True
    """Whether a table that is published again goes no faster than the sink of this name, so that rows of the stream
    reach the replica within about a second. A sink that has not moved for half a minute is not waited for."""
    dsn: _Dsn | None = None
    """libpq connection string of a physical standby to read tables from, best without the password; by default they
    are read from the source itself."""
    password: SecretStr | None = None
    """Password for that connection, kept out of dsn so that it is never printed."""
    password_file: str | None = None
    """File whose first line is the password; a relative path starts at the configuration file."""

    @model_validator(mode="after")
    def _check(self, info: ValidationInfo) -> SnapshotConfig:
        password_file.settle(self, info, *(() if self.dsn is None else (self.dsn.get_secret_value(),)))
        if self.dsn is None and self.password is not None:
            raise ValueError("a password is given without a dsn")
        return self

    def connection(self) -> dict[str, str]:
        """Returns arguments as ``SourceConfig.connection`` does; call it only with a dsn."""
        assert self.dsn is not None
        return password_file.connection(self.dsn, self.password)


class KafkaConfig(BaseModel):
    """The Kafka cluster."""

    model_config = _STRICT

    bootstrap: Annotated[str, AfterValidator(checks.bootstrap_servers)]
    """Addresses of the cluster: host:port, separated by commas."""
    options: dict[str, _Scalar] = Field(default_factory=dict, repr=False)
    """Options passed to the Kafka client (librdkafka) unchanged: TLS, SASL, compression.type, linger.ms …"""
    password: SecretStr | None = None
    """sasl.password, kept out of options so that it is never printed."""
    password_file: str | None = None
    """File whose first line is that password; a relative path starts at the configuration file."""

    @model_validator(mode="after")
    def _check(self, info: ValidationInfo) -> KafkaConfig:
        password_file.settle(self, info)
        checks.kafka_options(self.options, has_password=self.password is not None)
        return self

    def client_options(self) -> dict[str, str | int | float]:
        """Returns the options of every producer, consumer and admin client; callers add those that they control."""
        options: dict[str, str | int | float] = {
            name: str(value).lower() if isinstance(value, bool) else value for name, value in self.options.items()
        }
        options["bootstrap.servers"] = self.bootstrap
        if self.password is not None:
            options["sasl.password"] = self.password.get_secret_value()
        return options


class TopicsConfig(BaseModel):
    """Settings of the topics that the bridge creates, and compares with these at every start."""

    model_config = _STRICT

    partitions: _Int = Field(default=4, ge=1, le=1000)
    """Partitions of each table's topic: 4 keeps four readers busy. It can never change, because keys would move."""
    replication_factor: _Int = Field(default=1, ge=1, le=32767)
    """Copies of each topic; 1 works on any cluster, 3 survives the loss of a broker and is right for production."""
    min_insync_replicas: _Int = Field(default=1, ge=1, le=32767)
    """Copies that must have a record before it is acknowledged; at most replication_factor, 2 if that is 3."""
    min_compaction_lag_ms: _Int = Field(default=60_000, ge=0)
    """Milliseconds for which Kafka keeps a superseded record at least; a minute lets live readers see each version."""
    max_compaction_lag_ms: _Int = Field(default=86_400_000, ge=1)
    """Milliseconds after which Kafka should remove a superseded record; a day limits how long old data stays."""
    delete_retention_ms: _Int = Field(default=604_800_000, ge=0)
    """Milliseconds for which a tombstone stays: a reader may be away that long (a week) and miss no delete."""
    segment_ms: _Int = Field(default=3_600_000, ge=100)
    """Milliseconds after which a segment is closed; the open one is never compacted, and an hour keeps it small."""
    min_cleanable_dirty_ratio: _Float = Field(default=0.3, ge=0, le=1)
    """Share of uncleaned bytes at which the cleaner starts; lower cleans earlier and rewrites more (Kafka: 0.5)."""
    max_message_bytes: _Int = Field(default=16_777_216, ge=1_048_588, le=checks.MAX_MESSAGE_BYTES)
    """Largest row in bytes, as JSON. Kafka's own limit of 1 MiB would stop the bridge at a long text; 16 MiB rarely do.
    At most 45 MiB: a history holds twice that, and Kafka's clients and brokers take no more by default."""
    truncate: Literal["tombstone", "ignore", "fail"] = "tombstone"
    """What a TRUNCATE in the source does: tombstone (default) deletes every key of the topic, so that topic and table
    agree; ignore does nothing; fail stops with an error."""
    history: _Patterns = ()
    """Tables, as schema.table with * for any characters, of which each change is kept as well, in <topic>.history: old
    row, new row, time, transaction. None by default, because it doubles what is written to Kafka."""
    history_retention_ms: Annotated[_Int, AfterValidator(checks.history_retention_ms)] = 2_592_000_000
    """Milliseconds for which a change stays in the history, at least a minute; -1 means for ever. A month, because most
    questions about who changed a row come within weeks, and an unlimited topic fills the disk some day."""
    names: dict[_TableName, Annotated[str, AfterValidator(checks.topic_name)]] = Field(default_factory=dict)
    """Topic by schema.table, for tables that need another topic than <name>.<schema>.<table>."""
    format: _Format = "json"
    """How values are written: json (default, because everybody reads it), or with a schema in the registry: avro;
    protobuf; json-schema, which is the same JSON after the schema's id."""
    formats: dict[_TableName, _Format] = Field(default_factory=dict)
    """Format by schema.table, for tables that need another one."""
    key_format: Literal["json", "avro"] = "json"
    """How keys are written: json (default, because a key must never change, and these bytes depend on nothing but the
    row); avro with a schema in the registry, for readers that want keys and values alike. The schema's id is a part of
    such a key: if the registry loses its ids, each topic has to begin anew."""
    beyond: Literal["refuse", "text"] = "refuse"
    """What a value becomes that its type in Avro or Protobuf cannot hold, such as infinity in a timestamp: refuse
    (default, because many readers take no other unions than with null) stops the bridge and names the row; text keeps
    PostgreSQL's text, for which such a type becomes a union with string in Avro, and gets a second field in Protobuf.
    JSON holds them all."""

    envelope: Literal["plain", "debezium"] = "plain"
    """What a value is: plain (default) the row and nothing else, which is what a compacted topic is for; debezium the
    row in the change event of Debezium's connector for PostgreSQL, in JSON or Avro, for readers that were written for
    it."""
    cloudevents: bool = False
    """Whether each record of a table has the headers of CloudEvents 1.0 as well (ce_id, ce_type …), in the binary
    content mode. False by default, because they are as large as many rows, and only readers of CloudEvents need them.
    """

    def format_of(self, table: str) -> _Format:
        """Returns the format of a table's values, by its qualified name."""
        return self.formats.get(table, self.format)

    @model_validator(mode="after")
    def _check(self) -> TopicsConfig:
        if self.min_insync_replicas > self.replication_factor:
            raise ValueError(
                f"min_insync_replicas ({self.min_insync_replicas}) must be at most "
                f"replication_factor ({self.replication_factor}), or no record could ever be written"
            )
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise ValueError(
                f"min_compaction_lag_ms ({self.min_compaction_lag_ms}) must be at most "
                f"max_compaction_lag_ms ({self.max_compaction_lag_ms})"
            )
        checks.distinct_targets(self.names)
        if self.history:
            checks.history_names(self.names)
        return self

    @property
    def needs_registry(self) -> bool:
        """Whether keys, or some values, are written with a schema that a registry keeps."""
        return bool(self.registered) or self.key_format != "json"

    @property
    def registered(self) -> str:
        """The name of a format in use whose schemas are in a registry; empty if there is none."""
        return next((name for name in (self.format, *self.formats.values()) if name != "json"), "")


class SinkConfig(BaseModel):
    """The replica database."""

    model_config = _STRICT

    dsn: _Dsn | None = None
    """libpq connection string or URL of a replica on PostgreSQL, best without the password."""
    url: Annotated[str, AfterValidator(replica_url.check)] | None = None
    """Replica in another database, instead of dsn: sqlite:///shop.db, duckdb:///shop.duckdb or
    mariadb+pymysql://user@host/database. A relative path starts at the configuration file."""
    password: SecretStr | None = None
    """Password of that user, kept out of dsn and url so that it is never printed."""
    password_file: str | None = None
    """File whose first line is the password; a relative path starts at the configuration file."""
    schema_name: Annotated[_Identifier, AfterValidator(checks.present)] | None = Field(default=None, alias="schema")
    """Schema of all replica tables; by default each keeps the schema it has in the source."""
    prefix: _Identifier = ""
    """Prefix of each replica table's name; empty by default, so that queries run unchanged on the replica."""
    tables: dict[_TableName, _TableName] = Field(default_factory=dict)
    """Replica schema.table by source schema.table, for tables that schema and prefix do not place as you want."""
    quarantine: dict[_TableName, QuarantineConfig] = Field(default_factory=dict)
    """Tables by the source's schema.table of which the replica may lack rows that it refuses, instead of stopping the
    table."""

    @model_validator(mode="after")
    def _check(self, info: ValidationInfo) -> SinkConfig:
        if (self.dsn is None) == (self.url is None):
            raise ValueError("give one of dsn, for a replica on PostgreSQL, and url, for another database")
        password_file.settle(self, info, "" if self.dsn is None else self.dsn.get_secret_value())
        checks.distinct_targets(self.tables)
        if self.url is not None:
            if self.password is not None and self.path is not None:
                raise ValueError("a password is given, but a replica in a file needs none")
            if self.schema_name is not None and not self.url.startswith("duckdb"):
                sole = "SQLite has no schemas" if self.path else "url names the only database of the replica"
                raise ValueError(f"schema: {sole}; prefix sets tables apart")
            directory = Path((info.context or {}).get("directory", ""))
            object.__setattr__(self, "url", replica_url.settled(self.url, directory))
        return self

    @property
    def path(self) -> Path | None:
        """The file that the replica is in; None if it is on a server."""
        return None if self.url is None else replica_url.file_of(self.url)

    def connection(self) -> dict[str, str]:
        """Returns arguments as ``SourceConfig.connection`` does.

        Raises:
            ConfigError: the replica is in another database.
        """
        if self.dsn is None:
            raise ConfigError(
                "sink.url names the replica, and this command knows replicas on PostgreSQL only",
                remedy="name a replica on PostgreSQL: sink.dsn",
            )
        return password_file.connection(self.dsn, self.password)


class HttpConfig(BaseModel):
    """Addresses at which the bridge and the sink serve the dashboard, /metrics, /live and /ready."""

    model_config = _STRICT

    host: Annotated[str, AfterValidator(checks.present)] = "127.0.0.1"
    """Address to listen on; only this machine by default, because there is no login. 0.0.0.0 inside a container."""
    bridge_port: _Int | None = Field(default=None, ge=0, le=65535)
    """Port of cdc run: 0 picks a free one and logs it, null (default) serves nothing."""
    sink_port: _Int | None = Field(default=None, ge=0, le=65535)
    """Port of cdc sink: 0 picks a free one and logs it, null (default) serves nothing."""
    tokens_file: str | None = None
    """YAML file of the bearer tokens that may see the dashboard, as serve.tokens_file; a relative path starts at the
    configuration file. By default nobody needs a token, and the dashboard is shown only on this machine."""

    @model_validator(mode="after")
    def _check(self, info: ValidationInfo) -> HttpConfig:
        if self.tokens_file is not None:
            directory = Path((info.context or {}).get("directory", ""))
            object.__setattr__(self, "tokens_file", str(directory / self.tokens_file))
        return self


class Config(BaseModel):
    """One source database, its topics, and what is done with them."""

    model_config = _STRICT

    name: Annotated[str, AfterValidator(checks.bridge_name)]
    """Beginning of every topic name (<name>.<schema>.<table>), and part of slot and publication names; unique in both
    clusters."""
    delivery: Literal["transactional", "idempotent"] = "transactional"
    """transactional (default, because it gives up nothing): rows and progress in one Kafka transaction. idempotent:
    rows of the stream go out at once, and progress follows when Kafka has them, so that no row waits for a Kafka
    commit."""
    source: SourceConfig = SourceConfig()
    snapshot: SnapshotConfig = SnapshotConfig()
    kafka: KafkaConfig
    topics: TopicsConfig = TopicsConfig()
    values: ValuesConfig = ValuesConfig()
    debezium: DebeziumConfig = DebeziumConfig()
    registry: RegistryConfig | None = None
    sink: SinkConfig | None = None
    view: ViewConfig | None = None
    http: HttpConfig = HttpConfig()
    serve: ServeConfig = ServeConfig()

    @model_validator(mode="after")
    def _check(self) -> Config:
        default = f"cdc_{self.name.lower()}"
        # The sections are frozen, so the names are filled in in a copy; no other object leaves this module.
        filled = {"slot": self.source.slot or default, "publication": self.source.publication or default}
        check_outboxes(self.name, self.source.tables, self.source.outbox, self.delivery)
        check_messages(self.name, self.source.messages, self.delivery)
        outboxes = [each for each in self.source.outbox if each not in self.source.exclude]
        exclude = (*self.source.exclude, *outboxes)  # a pattern may reach an outbox, which is not a table to capture
        object.__setattr__(self, "source", self.source.model_copy(update={**filled, "exclude": exclude}))
        checks.topic_names(self.name, self.topics.names)
        if self.view is not None:
            checks.other_topics(self.name, self.view.topics)
        if self.delivery == "idempotent" and self.topics.history:
            raise ValueError(
                "topics.history needs delivery: transactional, so that a change and its history are readable together"
            )
        if self.snapshot.mode == "never" and self.source.rows:
            raise ValueError(
                "source.rows reads a table before its changes are published, which snapshot.mode: never forbids; "
                "change one"
            )
        if self.snapshot.mode == "never" and self.source.on_gap == "rebackfill":
            raise ValueError(
                "source.on_gap: rebackfill publishes tables again, which snapshot.mode: never forbids; change one"
            )
        if self.topics.needs_registry and self.registry is None:
            format_ = self.topics.registered
            option = f"format: {format_}" if format_ else f"key_format: {self.topics.key_format}"
            raise ValueError(f"topics.{option} needs a registry that keeps the schemas; add registry: {{url: …}}")
        if self.topics.envelope == "debezium":
            self._check_envelope()
        if self.values.is_chosen:
            self._check_values()
        if self.sink is not None:
            checks.replica_targets(self.source.tables, self.sink.tables, self.sink.schema_name, self.sink.prefix)
        return self

    def _check_envelope(self) -> None:
        if self.topics.key_format != "json":
            raise ValueError(
                "topics.envelope: debezium has keys in JSON: leave out topics.key_format or topics.envelope"
            )
        formats = {self.topics.format, *self.topics.formats.values()}
        if others := sorted(formats - {"json", "avro"}):
            raise ValueError(
                f"topics.envelope: debezium is written in JSON or Avro, and not in {others[0]}; set topics.format and "
                "topics.formats to json or avro, or leave out the envelope"
            )
        if self.debezium.schemas_enable and "avro" in formats:
            raise ValueError(
                "debezium.schemas_enable puts a schema into each value in JSON, while the schema of values in Avro is "
                "in the registry; leave it out"
            )
        if self.topics.history:
            raise ValueError(
                "topics.envelope: debezium has the old row already, and a history cannot hold envelopes: leave out "
                "topics.history or topics.envelope"
            )
        if self.topics.beyond == "text":
            raise ValueError(
                "topics.beyond: text has no place in Debezium's types; leave it out, and choose "
                "debezium.decimal_handling_mode: string and debezium.time_precision_mode: isostring, which hold more"
            )
        if self.delivery == "idempotent":
            raise ValueError(
                "topics.envelope: debezium needs delivery: transactional, so that a delete and its null value are "
                "readable together"
            )

    def _check_values(self) -> None:
        if self.topics.envelope == "debezium":
            raise ValueError(
                "the section values does not go with topics.envelope: debezium, whose forms the section debezium "
                "chooses; leave out one of them"
            )
        has_json = "json" in (self.topics.format, *self.topics.formats.values())
        others = [table for table in self.values.tables if self.topics.format_of(table) != "json"]
        if (self.values.is_chosen_for_all and not has_json) or others:
            table = next(iter(others), "")
            raise ValueError(
                f"the section values chooses forms of JSON, and {table or 'every table'} is written as "
                f"{self.topics.format_of(table)}; leave it out, or set the format to json"
            )

    @property
    def heals_gaps(self) -> bool:
        """Whether the bridge closes a gap with a backfill if it can, instead of stopping for a person."""
        return self.source.on_gap == "rebackfill" or self.snapshot.mode == "when_needed"

    def secrets(self) -> tuple[str, ...]:
        """Returns all secrets in use for the log filter, longest first, so that no secret leaves a part of another."""
        found: set[str] = set()
        for section in (self.source, self.snapshot, self.kafka, self.registry, self.sink, self.view):
            if section is not None and section.password is not None:
                found.add(section.password.get_secret_value())
            if isinstance(section, SourceConfig | SnapshotConfig | SinkConfig) and section.dsn is not None:
                found.update(masking.dsn_secrets(section.dsn.get_secret_value()))
        if self.source.salt is not None:
            found.add(self.source.salt.get_secret_value())
        if self.registry is not None and self.registry.token is not None:
            found.add(self.registry.token.get_secret_value())
        found.update(str(value) for name, value in self.kafka.options.items() if masking.is_secret_key(name))
        return tuple(sorted((secret for secret in found if secret), key=len, reverse=True))
