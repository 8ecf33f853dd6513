"""Reads table definitions from the schemas topic: which columns a topic's values have, and their types."""

from __future__ import annotations

from collections.abc import Mapping

from cdc.contract.jobspec.deployment import JobTable
from cdc.contract.naming import schemas_topic
from cdc.contract.record import SchemaColumn, TableSchema
from cdc.contract.schema import parse_schema
from cdc.spark.offsets import Brokers


def definitions_of(brokers: Brokers, name: str, table: JobTable) -> Mapping[str, TableSchema]:
    """Returns every definition that records of the table's topic may refer to, by fingerprint."""
    return definitions_by_topic(brokers, name).get(table.topic, {})


def definitions_by_topic(brokers: Brokers, name: str) -> Mapping[str, Mapping[str, TableSchema]]:
    """Returns every definition that records of any topic may refer to, by topic and fingerprint."""
    found: dict[str, dict[str, TableSchema]] = {}
    for _, value in brokers.read_all(schemas_topic(name)):
        if value is not None:
            definition = parse_schema(value)
            found.setdefault(definition.topic, {})[definition.fingerprint] = definition
    return found


def columns_of(table: JobTable, definition: TableSchema | None) -> tuple[SchemaColumn, ...]:
    """Returns a snapshot's columns: those of the newest record's definition, or else those the source has now."""
    if definition is not None:
        return definition.columns
    return tuple(SchemaColumn(each.name, each.sql_type) for each in table.columns)
