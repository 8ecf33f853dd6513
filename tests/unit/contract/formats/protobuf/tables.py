"""Tables for the tests of the room, with their schemas."""

from __future__ import annotations

from cdc.contract.change import Column, Relation, ReplicaIdentity
from cdc.contract.formats.protobuf.schema import protobuf_schema
from cdc.contract.formats.registered import Beyond
from cdc.contract.record import SchemaColumn, TableSchema
from cdc.contract.schema import table_schema


def schema_of(*columns: Column, key: tuple[str, ...] = (), beyond: Beyond = "text", name: str = "shop") -> str:
    relation = Relation(7, "public", "orders", ReplicaIdentity.DEFAULT, columns)
    return protobuf_schema(table_schema(relation, key, "t"), name, beyond=beyond)


def spelled(*columns: str, table: str = "t", beyond: Beyond = "refuse") -> str:
    """The schema of a table whose columns are written as "name type number"; the first is the key."""
    parsed = [column.rsplit(" ", 2) for column in columns]
    described = tuple(SchemaColumn(name, sql_type, int(number)) for name, sql_type, number in parsed)
    definition = TableSchema("f" * 16, "public", table, "t", (described[0].name,), described)
    return protobuf_schema(definition, "shop", beyond)
