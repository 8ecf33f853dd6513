"""The description that every job gets, as one JSON document on standard input or in a file: servers and tables.

A job does not read the bridge's configuration file. The command that starts it describes the tables and the servers in
full, so a job runs wherever this document can be read.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from cdc.base.table_names import qualified

STRICT = ConfigDict(extra="forbid", frozen=True)

ColumnKind: TypeAlias = Literal["number", "bool", "text", "json"]


class SparkSettings(BaseModel):
    """How Spark runs.

    Attributes:
        master: Spark master URL.
        jars: absolute paths of the Kafka connector and the JDBC driver, with what they need.
        java_home: Java for a driver that is started on this machine; None to use the environment's.
        java_options: options for such a driver's JVM, in addition to those in ``conf``.
        conf: further Spark settings, which override the job's own.
    """

    model_config = STRICT

    master: str = "local[*]"
    jars: tuple[str, ...] = ()
    java_home: str | None = None
    java_options: str = ""
    conf: dict[str, str] = Field(default_factory=dict)


class KafkaSettings(BaseModel):
    """How to reach Kafka, with librdkafka's option names; ``password`` is ``sasl.password``."""

    model_config = STRICT

    options: dict[str, str]
    password: SecretStr | None = None


class PostgresSettings(BaseModel):
    """How to reach a database; in separate parts, because psycopg and JDBC spell an address differently."""

    model_config = STRICT

    host: str
    port: int
    database: str
    user: str
    password: SecretStr | None = None
    sslmode: str = "prefer"
    sslrootcert: str | None = None

    @property
    def address(self) -> str:
        """``host:port/database``, for people."""
        return f"{self.host}:{self.port}/{self.database}"


class FileSettings(BaseModel):
    """A replica in a file, and the database that reads it."""

    model_config = STRICT

    system: Literal["sqlite", "duckdb"]
    path: str

    @property
    def address(self) -> str:
        """The file's path, for people."""
        return self.path


class LakeSettings(BaseModel):
    """A lake that is compared in the place of a replica: what its tables are made of, and its folder."""

    model_config = STRICT

    system: Literal["delta", "iceberg"]
    path: str

    @property
    def address(self) -> str:
        """The folder, for people."""
        return self.path


class MariadbSettings(BaseModel):
    """How to reach a replica in MariaDB; ``tls`` has the driver's names of files."""

    model_config = STRICT

    host: str
    port: int
    database: str
    user: str
    password: SecretStr | None = None
    tls: dict[str, str] = Field(default_factory=dict)

    @property
    def address(self) -> str:
        """``host:port/database``, for people."""
        return f"{self.host}:{self.port}/{self.database}"


class JobColumn(BaseModel):
    """A published column.

    Attributes:
        sql_type: complete SQL type, e.g. ``numeric(12,2)``, ``text[]``.
        kind: the form of its values in the topic; for an array, the form of its elements.
        is_array: whether the value is a JSON array.
        delimiter: the separator of elements in PostgreSQL's text of the array.
        mask: how the source's values are masked before they are compared; empty if they are not.
        mask_name: what a ``sha256`` hashes before the text: the column's qualified name; empty if it is joinable.
    """

    model_config = STRICT

    name: str
    sql_type: str
    kind: ColumnKind
    is_array: bool = False
    delimiter: str = ","
    mask: Literal["", "null", "last4", "sha256"] = ""
    mask_name: str = ""


class JobTable(BaseModel):
    """A captured table and its topic.

    Attributes:
        key: key columns in key order.
        columns: published columns in attribute order.
        row_filter: the publication's WHERE, None for all rows.
        history_topic: the topic with its history; None without a history.
        replica: schema and name of the replica table, None without a sink. The tables of a lake are called like those
            of the source.
        rereads: whether the bridge reads rows again to complete them, because a column may be stored out of line and
            the replica identity is not FULL.
        salt: the key of masks that hash; None if no column has one.
    """

    model_config = STRICT

    namespace: str
    name: str
    topic: str
    key: tuple[str, ...]
    columns: tuple[JobColumn, ...]
    row_filter: str | None = None
    history_topic: str | None = None
    replica: tuple[str, str] | None = None
    rereads: bool = False
    salt: SecretStr | None = None

    @property
    def qualified_name(self) -> str:
        """``namespace.name``, for people."""
        return qualified(self.namespace, self.name)


class Stream(BaseModel):
    """The bridge whose topics are read: its ``name``, with which the topics' names begin, and its replication slot."""

    model_config = STRICT

    name: str
    slot: str
