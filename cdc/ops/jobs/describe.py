"""Describes a deployment to a Spark job: servers from the configuration, tables from the source's catalog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, get_args

import psycopg
import typer
from pydantic import SecretStr

from cdc.base import extras
from cdc.base.config import Config, replica_url
from cdc.base.errors import ConfigError
from cdc.bridge.capture.reading import describe, published_part
from cdc.bridge.scope.choice import choose
from cdc.bridge.scope.hidden import column_rules
from cdc.bridge.scope.topics import history_topics, state_topic
from cdc.bridge.source.connect import connect, source_errors
from cdc.bridge.source.table import TableInfo
from cdc.contract.change import Column, ReplicaIdentity
from cdc.contract.hiding import ColumnRules
from cdc.contract.jobspec import deployment as job
from cdc.contract.jobspec.mirror import LakeFormat
from cdc.contract.kinds import Kind, kind_of_column
from cdc.contract.pgtypes import sql_type
from cdc.contract.record import TableSchema
from cdc.sink.replica import ReplicaName

_APPLICATION: Final = "cdc job"
_DELIMITERS: Final = """
WITH RECURSIVE base AS (
  SELECT oid AS named, oid, typbasetype FROM pg_catalog.pg_type WHERE oid = ANY (%s::oid[])
  UNION ALL
  SELECT base.named, d.oid, d.typbasetype FROM pg_catalog.pg_type d JOIN base ON d.oid = base.typbasetype
)
SELECT base.named::bigint, e.typdelim FROM base JOIN pg_catalog.pg_type e ON e.typarray = base.oid
"""
"""Selects the delimiter between elements for those of the given types that are arrays, or domains over arrays."""

TOPIC_FORMS: Final[Mapping[Kind, job.ColumnKind]] = {
    Kind.BOOL: "bool",
    **dict.fromkeys((Kind.INT16, Kind.INT32, Kind.INT64, Kind.FLOAT32, Kind.FLOAT64), "number"),
    Kind.DOCUMENT: "json",
    **dict.fromkeys((Kind.DECIMAL, Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ), "text"),
    **dict.fromkeys((Kind.BYTES, Kind.ASCII, Kind.TEXT), "text"),
}


class JobDeployment(NamedTuple):
    """A deployment as jobs see it; ``replica`` is None without a sink."""

    source: job.PostgresSettings
    replica: job.PostgresSettings | job.MariadbSettings | job.FileSettings | job.LakeSettings | None
    kafka: job.KafkaSettings
    stream: job.Stream
    tables: tuple[job.JobTable, ...]


def describe_deployment(config: Config, wanted: Sequence[str] = ()) -> JobDeployment:
    """Returns the servers and tables of a deployment.

    Args:
        config: the deployment's configuration.
        wanted: tables as ``schema.table``; empty for all captured tables.

    Raises:
        ConfigError: keys are in Avro, a wanted table is not captured, or a server's address is not for a JDBC driver.
        SourceRefused: a table cannot be captured or read.
        SourceUnavailable: the source does not answer.
    """
    if config.topics.key_format != "json":
        raise ConfigError(
            f"topics.key_format is {config.topics.key_format}, and jobs on Spark read keys in JSON only",
            remedy="compare topic and table with a replica that cdc sink fills from this topic",
        )
    with connect(config.source.connection(), application_name=_APPLICATION) as conn:
        infos = _chosen(choose(conn, config, None).tables, wanted)
        replicas, histories = _replica_names(config, infos), history_topics(config, infos)
        tables = tuple(_table(conn, config, info, histories, replicas.get(info.qualified_name)) for info in infos)
        source = _address(conn.info, config.source.password, "source.dsn")
    return JobDeployment(
        source=source,
        replica=_replica(config),
        kafka=kafka_settings(config),
        stream=job.Stream(name=config.name, slot=config.source.slot),
        tables=tables,
    )


def beside_lake(deployment: JobDeployment, lake: job.LakeSettings) -> JobDeployment:
    """Returns the deployment with a lake in the place of its replica."""
    tables = (each.model_copy(update={"replica": (each.namespace, each.name)}) for each in deployment.tables)
    return deployment._replace(replica=lake, tables=tuple(tables))


def kafka_settings(config: Config) -> job.KafkaSettings:
    """Returns the settings of the Kafka client, with the password apart."""
    options = {name: str(value) for name, value in config.kafka.client_options().items() if name != "sasl.password"}
    return job.KafkaSettings(options=options, password=config.kafka.password)


def spark_settings(master: str, jars: Sequence[str] = (), conf: Sequence[str] = ()) -> job.SparkSettings:
    """Returns how to run Spark. The first call without ``jars`` downloads the jars that the lock file names.

    Args:
        master: the URL of the Spark master.
        jars: absolute paths of jars to use instead.
        conf: Spark settings as ``name=value``.

    Raises:
        ConfigError: the extra is not installed, or a setting has no ``=``.
        StackError: a jar or a Java runtime is not available.
    """
    extras.require("spark", "this command")
    settings = dict(each.split("=", 1) for each in conf if "=" in each)
    if len(settings) < len(conf):
        raise ConfigError("--conf needs name=value", remedy="for instance --conf spark.executor.memory=4g")
    if jars:
        return job.SparkSettings(master=master, jars=tuple(jars), conf=settings)
    # Imported here, because its libraries come with the extra.
    from cdc.lab.stack.spark import spark_runtime

    runtime = spark_runtime(say=lambda line: typer.echo(line, err=True))
    return job.SparkSettings(
        master=master,
        jars=tuple(map(str, runtime.jars)),
        java_home=str(runtime.java_home),
        java_options=runtime.classes.options(),
        conf=settings,
    )


def _chosen(infos: Sequence[TableInfo], wanted: Sequence[str]) -> list[TableInfo]:
    by_name = {info.qualified_name: info for info in infos}
    unknown = [name for name in wanted if name not in by_name]
    if unknown:
        raise ConfigError(
            f"not captured: {', '.join(unknown)}", remedy=f"the captured tables are {', '.join(sorted(by_name))}"
        )
    return [by_name[name] for name in wanted] if wanted else list(infos)


def _table(
    conn: psycopg.Connection[Any],
    config: Config,
    info: TableInfo,
    histories: Mapping[str, str],
    replica: tuple[str, str] | None,
) -> job.JobTable:
    with source_errors(f"looking at {info.qualified_name}"):
        published = published_part(conn, info, config.source.publication)
        relation = describe(conn, info, published.columns)
        rules = column_rules(config, info.qualified_name)
        columns = relation.columns if rules is None else rules.published(relation.columns)
        delimiters = _delimiters(conn, [column.type_oid for column in columns])
    topic = state_topic(config, info.namespace, info.name)
    described = tuple(_masked(_column(each, delimiters), rules, info.qualified_name) for each in columns)
    return job.JobTable(
        namespace=info.namespace,
        name=info.name,
        topic=topic,
        key=info.key,
        columns=described,
        row_filter=published.row_filter,
        history_topic=histories.get(topic),
        replica=replica,
        rereads=bool(info.toastable) and info.replica_identity is not ReplicaIdentity.FULL,
        salt=config.source.salt if any(each.mask == "sha256" for each in described) else None,
    )


def _masked(column: job.JobColumn, rules: ColumnRules | None, table: str) -> job.JobColumn:
    mask = None if rules is None else rules.masks.get(column.name)
    if mask is None:
        return column
    if mask == "sha256":
        return column.model_copy(update={"mask": mask, "mask_name": f"{table}.{column.name}"})
    return column.model_copy(update={"mask": mask.removesuffix("-joinable")})


def _column(column: Column, delimiters: Mapping[int, str]) -> job.JobColumn:
    """Returns a column with its form in the topic, as the topic contract defines it.

    Only the catalog says which types are arrays. A leading underscore does not: an enum may be called ``_mood``.
    """
    return job.JobColumn(
        name=column.name,
        sql_type=sql_type(column),
        kind=TOPIC_FORMS[kind_of_column(column).kind],
        is_array=column.type_oid in delimiters,
        delimiter=delimiters.get(column.type_oid, ","),
    )


def _delimiters(conn: psycopg.Connection[Any], oids: Sequence[int]) -> dict[int, str]:
    """Returns the delimiter between elements by type, for array types only; arrays of ``box`` have a semicolon."""
    rows = conn.execute(_DELIMITERS.encode(), (list(oids),))
    return dict(rows.fetchall())


def _replica_names(config: Config, infos: Sequence[TableInfo]) -> dict[str, ReplicaName]:
    if config.sink is None:
        return {}
    # Imported here, because only a replica needs SQLAlchemy, and reading it takes longer than a short command
    from cdc.sink.dialects import open_replica

    naming = open_replica(config, application_name=_APPLICATION).naming
    names = {}
    for info in infos:
        topic = state_topic(config, info.namespace, info.name)
        schema = TableSchema("", info.namespace, info.name, topic, key=info.key, columns=())
        names[info.qualified_name] = naming.name(schema)
    return names


def _replica(config: Config) -> job.PostgresSettings | job.MariadbSettings | job.FileSettings | None:
    if config.sink is None:
        return None
    if (path := config.sink.path) is not None:
        system: Literal["sqlite", "duckdb"] = "sqlite" if str(config.sink.url).startswith("sqlite:") else "duckdb"
        return job.FileSettings(system=system, path=str(path.absolute()))
    if config.sink.url is not None:
        at = replica_url.server_of(config.sink.url)
        return job.MariadbSettings(**at._asdict(), password=config.sink.password)
    with connect(config.sink.connection(), application_name=_APPLICATION) as conn:
        return _address(conn.info, config.sink.password, "sink.dsn")


def _address(info: psycopg.ConnectionInfo, password: SecretStr | None, option: str) -> job.PostgresSettings:
    """Returns the address of an open connection, because libpq may have taken parts from PG* variables and files."""
    parameters = info.get_parameters()
    if info.host.startswith("/"):
        raise ConfigError(
            f"{option} names a Unix socket, which Spark's JDBC driver cannot use",
            remedy=f"name a host for this command: {option} with host=127.0.0.1",
        )
    return job.PostgresSettings(
        host=info.host,
        port=info.port,
        database=info.dbname,
        user=info.user,
        password=SecretStr(info.password) if info.password else password,
        sslmode=parameters.get("sslmode", "prefer"),
        sslrootcert=parameters.get("sslrootcert"),
    )


def lake_target(to: str) -> tuple[LakeFormat, Path]:
    """Takes ``delta:/lake/shop`` apart, into which ``cdc mirror --to`` writes.

    Raises:
        ConfigError: it does not name a format and a folder.
    """
    name, _, folder = to.partition(":")
    for each in get_args(LakeFormat):
        if name == each and folder:
            return each, Path(folder)
    raise ConfigError(
        f"--to {to} does not say what to write where", remedy="write --to delta:DIR, iceberg:DIR or parquet:DIR"
    )


def refuse_misfits(lake: LakeFormat, checkpoint: Path | None, keep_days: int | None, quarantine: int) -> None:
    """Refuses options of ``cdc mirror`` that do not fit what it writes.

    Raises:
        ConfigError: one does not, or what the format needs is not installed.
    """
    if lake != "parquet" and checkpoint is not None:
        raise ConfigError("--checkpoint is for Parquet files", remedy="leave it out: tables keep their position")
    if lake == "parquet" and keep_days is not None:
        raise ConfigError("--keep-days is for tables", remedy="leave it out: Parquet files have no versions")
    if lake == "parquet" and quarantine:
        raise ConfigError(
            "--quarantine is for tables: Parquet files have no cuts that could say that rows are lacking",
            remedy="leave it out, or write --to delta:DIR or iceberg:DIR",
        )
    if lake == "iceberg":
        extras.require("iceberg", "cdc mirror --to iceberg:DIR")
