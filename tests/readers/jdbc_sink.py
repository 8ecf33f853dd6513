"""Debezium's JDBC sink in a Kafka Connect: it writes the topic into a table of PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import psycopg
from psycopg.conninfo import conninfo_to_dict

from cdc.lab.proof.comparison import pinned
from tests.benchmarks.debezium.connect import connect_with
from tests.readers.canonical import Rows, differences, table_rows
from tests.readers.fed import Fed, ValueFormat
from tests.readers.losses import held
from tests.readers.table import COLUMNS, KEY, Form
from tests.support.locked_jars import locked_jars
from tests.support.waiting import within

NAME: Final = "Debezium's JDBC sink"
_PLACE: Final = Path(__file__).parent / "connect"
_LONGEST_S: Final = 150
_WITHOUT_DOCUMENTS: Final[Mapping[str, str]] = {
    "transforms": "without",
    "transforms.without.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
    "transforms.without.exclude": "doc",
}
"""A document that is a string would arrive without its quotes, and stop the connector."""
_KEY_SCHEMA: Final = {
    "type": "struct",
    "fields": [{"field": "id", "type": "int32"}, {"field": "code", "type": "string"}],
}
_MICROSECONDS: Final = {Form.TIME, Form.TIMESTAMP, Form.TIMESTAMPTZ}
"""Apicurio's and Confluent's converters know these of Avro in milliseconds only, and hand on a number."""
_AVRO: Final[Mapping[str, str]] = {
    "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
    "tasks.max": "1",
    "insert.mode": "upsert",
    "delete.enabled": "true",
    "primary.key.mode": "record_key",
    "schema.evolution": "none",
    "use.reduction.buffer": "true",
    "consumer.override.isolation.level": "read_committed",
    "consumer.override.auto.offset.reset": "earliest",
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "true",
    "key.converter.schema.content": json.dumps(_KEY_SCHEMA),
    "value.converter": "io.apicurio.registry.utils.converter.AvroConverter",
    "value.converter.apicurio.registry.headers.enabled": "false",
    "value.converter.apicurio.registry.id-handler": "io.apicurio.registry.serde.Legacy4ByteIdHandler",
    "value.converter.apicurio.registry.use-id": "contentId",
}


_NO_SCHEMA: Final[Mapping[str, str]] = {
    **{name: value for name, value in _AVRO.items() if not name.startswith("value.converter")},
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}
_FAILED: Final = "unrecoverable exception"
"""What Kafka Connect logs when a task ends; it goes on without it."""


def jdbc_sink(fed: Fed, directory: Path, more: Mapping[str, str] | None = None) -> Rows:
    """The rows of the table that it wrote, with more options of the connector."""
    with psycopg.connect(fed.replica_dsn, autocommit=True) as replica:
        replica.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        replica.execute("CREATE TYPE mood AS ENUM ('sad', 'so \"happy\"', 'ünï')")
        declared, shown = zip(*(_column(fed, name) for name in COLUMNS), strict=True)
        replica.execute(f"CREATE TABLE arrived ({', '.join(declared)}, PRIMARY KEY ({', '.join(KEY)}))".encode())
        replica.execute(f"CREATE VIEW matrix AS SELECT {', '.join(shown)} FROM arrived".encode())
    expected = held(fed.expected, NAME, fed.value_format)
    locks = ["logger", *(["avro-converter"] if fed.value_format == "avro" else [])]
    also = [str(_PLACE), *(f"{locked_jars(_PLACE / f'{each}.lock')}/*" for each in locks)]
    properties = "\n".join(f"{name}={_escaped(value)}" for name, value in {**_connector(fed), **(more or {})}.items())
    with connect_with(
        "jdbc", "debezium-connector-jdbc", properties, fed.bootstrap, directory / "connect", also
    ) as running:

        def said() -> str:
            (log,) = (directory / "connect").glob("jdbc*.log")
            return log.read_text(errors="replace")

        def there() -> bool:
            running.must_run()
            assert _FAILED not in (log := said()), log[-8000:]
            return not differences(expected, _found(fed))

        assert within(there, _LONGEST_S) or _found(fed), f"it wrote no row: {said()[-8000:]}"
    return _found(fed)


def _connector(fed: Fed) -> dict[str, str]:
    """As ``cdc connect-schema`` prints it, with the address; with Avro another converter of values."""
    server = conninfo_to_dict(fed.replica_dsn)
    address = f"jdbc:postgresql://{server['host']}:{server['port']}/{server['dbname']}?stringtype=unspecified"
    url = fed.registry_url.partition("/apis/")[0] + "/apis/registry/v2"
    own: Mapping[ValueFormat, Mapping[str, str]] = {
        "json": {**fed.connector, **_WITHOUT_DOCUMENTS},
        "avro": {**_AVRO, "topics": fed.topic, "value.converter.apicurio.registry.url": url},
    }
    return {
        "name": "copy",
        **own.get(fed.value_format, fed.connector or {**_NO_SCHEMA, "topics": fed.topic}),
        "connection.url": address,
        "connection.username": str(server["user"]),
        "connection.password": str(server.get("password", "")),
        "collection.name.format": "public.arrived",
        # Instead of 32 connections at once
        "connection.pool.min_size": "1",
        "connection.pool.max_size": "4",
        "connection.pool.acquire_increment": "1",
    }


def _column(fed: Fed, name: str) -> tuple[str, str]:
    """How a column is declared, and the expression that has its values."""
    column = COLUMNS[name]
    if fed.value_format != "avro" or column.form not in _MICROSECONDS:
        return f"{name} {column.sql_type}", name
    beginning = "'00:00'" if column.form is Form.TIME else "'1970-01-01 00:00:00+00'"
    since = f"({name} / 1000000) * interval '1 second' + ({name} % 1000000) * interval '1 microsecond'"
    return f"{name} bigint", f"{column.sql_type} {beginning} + {since} AS {name}"


def _found(fed: Fed) -> Rows:
    with pinned(fed.replica_dsn) as replica:
        return table_rows(replica)


def _escaped(value: str) -> str:
    """A value of a property file."""
    return value.replace("\\", "\\\\")
