"""``cdc connect-schema``: prints a Kafka Connect connector that copies one topic, and warns of damaged values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from cdc.base.errors import ConfigError
from cdc.bridge.scope.definitions import definitions_of
from cdc.cli.options import ConfigOption, load_config
from cdc.contract.formats.formed.connect import row_schema
from cdc.contract.kinds import FLOATS, Kind, kind_of
from cdc.contract.record import SchemaColumn, TableSchema

_CONVERTER: Final = "org.apache.kafka.connect.json.JsonConverter"
_CONFLUENTS: Final = {"avro": "AvroConverter", "json-schema": "JsonSchemaConverter", "protobuf": "ProtobufConverter"}


def connect_schema(
    table: Annotated[
        str, typer.Argument(metavar="SCHEMA.TABLE", help="The table as cdc tables list shows it; case matters.")
    ],
    config: ConfigOption = None,
) -> None:
    """Print a Kafka Connect sink connector (Debezium's JDBC sink) that copies one table, as JSON.

    It needs Kafka Connect 4.2 or newer, where JsonConverter takes a schema from the configuration. Replace the words in
    capitals: host, database, user and password of the database that receives the rows. A connector has one schema, so
    it copies one table. Print it again when the table's columns change.

    Standard error names the columns whose values this converter would damage.

    Examples:

        cdc connect-schema public.orders -c shop.yaml > orders.json

        curl -X POST -H 'Content-Type: application/json' -d @orders.json http://connect:8083/connectors
    """
    loaded = load_config(config)
    schema = definitions_of(loaded, table)[-1]
    if schema.format != "json":
        raise ConfigError(
            f"values of table {schema.qualified_name} are in {schema.format}, which JsonConverter does not read",
            remedy=f"give the connector the {_CONFLUENTS[schema.format]} for values, with the URL of the registry",
        )
    if (keys := schema.key_schema) is not None:
        raise ConfigError(
            f"keys of table {schema.qualified_name} are in {keys.format}, which JsonConverter does not read",
            remedy=f"give the connector the {_CONFLUENTS[keys.format]} for keys, with the URL of the registry",
        )
    printed = connector(schema)
    for name, damage in damages(schema):
        typer.echo(f"WARN column {name}: {damage}", err=True)
    typer.echo(json.dumps(printed, indent=2, ensure_ascii=False))


def connector(schema: TableSchema) -> dict[str, Any]:
    """Returns the connector of a topic, in the form of Kafka Connect's REST interface.

    Raises:
        ConfigError: the values are change events that do not contain their schema.
    """
    if schema.envelope is not None and not schema.envelope.schemas:
        raise ConfigError(
            f"values of table {schema.qualified_name} are Debezium's change events without their schema, which Kafka "
            "Connect's sinks need",
            remedy="set debezium.schemas_enable: true; each topic begins anew",
        )
    columns = {column.name: column for column in schema.columns}
    key = [SchemaColumn(name, columns[name].sql_type) for name in schema.key]  # keys are in the default form
    values = {"value.converter": _CONVERTER, "value.converter.schemas.enable": "true"}
    if not schema.is_connects and schema.envelope is None:
        values = _converter("value", schema.columns, is_optional=True)
    return {
        "name": schema.topic,
        "config": {
            "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
            "topics": schema.topic,
            "tasks.max": "1",
            # Numeric, timestamps and others arrive as text; this lets the server read them as the column's type.
            "connection.url": "jdbc:postgresql://HOST:5432/DATABASE?stringtype=unspecified",
            "connection.username": "USER",
            "connection.password": "PASSWORD",
            "collection.name.format": f"{schema.namespace}.{schema.name}",
            "insert.mode": "upsert",
            "delete.enabled": "true",
            "primary.key.mode": "record_key",
            "primary.key.fields": ",".join(schema.key),
            "schema.evolution": "none",
            "quote.identifiers": "true",
            # Keeps the order of a key's records within a batch, too.
            "use.reduction.buffer": "true",
            "consumer.override.isolation.level": "read_committed",
            "consumer.override.auto.offset.reset": "earliest",
            **_converter("key", key, is_optional=False),
            **values,
        },
    }


def damages(schema: TableSchema) -> list[tuple[str, str]]:
    """Returns columns, and how Kafka's JsonConverter damages some of their values."""
    if schema.is_connects:  # the bridge refuses such values
        return []
    is_row = schema.envelope is None  # a change event has texts of documents, and flat arrays only
    found = []
    for column in schema.columns:
        kind = kind_of(column.sql_type)
        if kind.kind is Kind.DOCUMENT and column.form != "string" and is_row:
            text = "objects, arrays, numbers and booleans arrive as NULL, strings without their quotes"
            stops = f"a column of type {column.sql_type} refuses these, which stops the connector"
            found.append((column.name, f"{column.sql_type}: {text}; {stops}"))
        elif column.form == "number":
            found.append((column.name, f"{column.sql_type}: what is a number in JSON, and not a text, arrives as NULL"))
        elif kind.kind in FLOATS:
            found.append((column.name, f"{column.sql_type}: NaN and the infinities arrive as 0.0"))
        if kind.is_array and is_row:
            text = (
                "arrays of several dimensions arrive as NULLs or zeros, arrays with other lower bounds than 1 as empty"
            )
            found.append((column.name, f"{column.sql_type}: {text}"))
    return found


def _converter(part: str, columns: Sequence[SchemaColumn], *, is_optional: bool) -> dict[str, str]:
    required = () if is_optional else [each.name for each in columns]
    content = row_schema(columns, required=required, is_optional=is_optional)
    prefix = f"{part}.converter"
    return {
        prefix: _CONVERTER,
        f"{prefix}.schemas.enable": "true",
        f"{prefix}.schema.content": json.dumps(content, ensure_ascii=False),
    }
