"""Values with a JSON Schema: the head, and what follows it."""

from __future__ import annotations

import pytest

from cdc.contract.change import Column, Relation, ReplicaIdentity
from cdc.contract.formats.format import NOT_ENCODABLE
from cdc.contract.formats.json_schema.schema import json_schema
from cdc.contract.formats.json_schema.values import DescribedReader, DescribedWriter
from cdc.contract.schema import table_schema

COLUMNS = (Column("id", 23, -1, "pg_catalog.int4", True), Column("d", 3802, -1, "pg_catalog.jsonb", False))
SCHEMA = json_schema(
    table_schema(Relation(1, "public", "t", ReplicaIdentity.DEFAULT, COLUMNS), ("id",), "t"), "shop", "refuse"
)


@pytest.mark.parametrize("number", [7, 0x25252525, 0xFFFFFFFF])
def test_a_value_is_the_head_and_the_object(number: int) -> None:
    """The head need not be text: an id may hold any byte, also those that a template would take for its own."""
    value = DescribedWriter(COLUMNS, SCHEMA, number).encode((b"1", b'{"a": 1}'))
    assert value == b"\0" + number.to_bytes(4, "big") + b'{"id":1,"d":{"a": 1}}'
    assert DescribedReader(SCHEMA).json(value) == b'{"id":1,"d":{"a": 1}}'


def test_a_document_null_and_a_damaged_cell_are_told_as_in_json() -> None:
    writer = DescribedWriter(COLUMNS, SCHEMA, 7)
    assert writer.null_documents((b"1", b" null")) == (1,)
    assert writer.problem(1, b"\xff").startswith("UnicodeDecodeError")
    with pytest.raises(NOT_ENCODABLE):
        writer.encode((b"1", b"\xff"))


def test_a_schema_of_another_table_is_refused() -> None:
    with pytest.raises(ValueError, match="describes other columns"):
        DescribedWriter(COLUMNS[:1], SCHEMA, 7)
    with pytest.raises(ValueError, match="not written by cdc"):
        DescribedReader('{"type":"object"}')


@pytest.mark.parametrize("value", [b"\0\0\0\0\7", b"\0\0\0\0\7[]", b'\0\0\0\0\7{"id":1', b"\0\0\0", b'{"id":1}'])
def test_a_value_without_an_object_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match="no JSON object follows"):
        DescribedReader(SCHEMA).json(value)
