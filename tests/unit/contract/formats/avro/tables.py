"""Tables for the tests of the room, with their schemas."""

from __future__ import annotations

from cdc.contract.change import Column, Relation, ReplicaIdentity
from cdc.contract.formats.avro.schema import avro_schema
from cdc.contract.formats.registered import Beyond
from cdc.contract.schema import table_schema

NUMERIC_10_2 = ((10 << 16) | 2) + 4


def column(name: str, type_name: str, modifier: int = -1, number: int = 0) -> Column:
    return Column(name, 0, modifier, type_name if "." in type_name else f"pg_catalog.{type_name}", False, number)


def schema_of(*columns: Column, key: tuple[str, ...] = (), beyond: Beyond = "text", name: str = "shop") -> str:
    relation = Relation(7, "public", "orders", ReplicaIdentity.DEFAULT, columns)
    return avro_schema(table_schema(relation, key, "t"), name, beyond=beyond)
