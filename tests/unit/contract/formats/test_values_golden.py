"""Values: the topic contract's form of every kind of type, from vectors that other readers can use as well."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cdc.contract.change import Column
from cdc.contract.formats.values import converter
from cdc.contract.pgtypes import BUILTIN_NAMES
from tests.golden.files import vectors

VECTORS = vectors("values")


def column(type_name: str) -> Column:
    return Column("c", 0, -1, type_name, False)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: f"{vector['type']}-{vector['text'][:20]!r}")
def test_value(vector: dict[str, Any]) -> None:
    encoded = converter(column(vector["type"]))(vector["text"].encode())
    assert encoded.decode() == vector["json"]
    json.loads(encoded)


@pytest.mark.parametrize("type_name", sorted(set(BUILTIN_NAMES.values())))
def test_every_built_in_type_has_a_form(type_name: str) -> None:
    samples = {"bool": b"t", "json": b"{}", "jsonb": b"{}"}
    sample = b"{}" if "._" in type_name else samples.get(type_name.partition(".")[2], b"1")
    json.loads(converter(column(type_name))(sample))


@pytest.mark.parametrize(
    ("type_name", "text"),
    [
        ("pg_catalog.bool", b"true"),
        ("pg_catalog.text", b"\xff"),
        ("pg_catalog._text", b"{a"),
        ("pg_catalog._text", b"{a,"),
        ("pg_catalog._text", b'{"a}'),
        ("pg_catalog._text", b'{"NULL"x}'),
        ("pg_catalog._text", b"{a}{NULL}"),
        ("pg_catalog._text", b"NULL"),
        ("pg_catalog._bool", b"{x}"),
        ("pg_catalog._json", b"{NULL,{}"),
        ("pg_catalog._box", b""),
    ],
)
def test_text_that_is_not_of_its_type_is_refused(type_name: str, text: bytes) -> None:
    with pytest.raises((ValueError, KeyError)):
        converter(column(type_name))(text)
