"""Rows → keys and values: canonical keys from golden vectors, NULLs, unchanged TOAST, refusals."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from cdc.base.errors import ConfigError, EncodeError
from cdc.bridge.encode import TableEncoder
from cdc.contract.change import UNCHANGED_TOAST, Column, Relation, ReplicaIdentity, Row
from tests.golden.files import vectors

KEYS = vectors("keys")


def relation(*columns: tuple[str, str]) -> Relation:
    return Relation(
        7,
        "public",
        "orders",
        ReplicaIdentity.DEFAULT,
        tuple(Column(name, 0, -1, type_name, False) for name, type_name in columns),
    )


ORDERS = relation(
    ("note", "pg_catalog.text"),
    ("id", "pg_catalog.int8"),
    ("tags", "pg_catalog._text"),
    ("paid", "pg_catalog.bool"),
    ("price", "pg_catalog.numeric"),
    ("doc", "pg_catalog.json"),
    ("100%", "pg_catalog.float8"),
)
ROW: Row = (b"n", b"42", b"{a,b}", b"t", b"1.10", b'{"a" : 1}', b"NaN")


@pytest.fixture
def orders() -> TableEncoder:
    return TableEncoder(ORDERS, ("id",), "shop.public.orders")


@pytest.mark.parametrize("vector", KEYS, ids=lambda vector: vector["key"])
def test_key(vector: dict[str, Any]) -> None:
    names = tuple(name for name, _, _ in vector["columns"])
    table = relation(("before", "pg_catalog.text"), *((name, type_name) for name, type_name, _ in vector["columns"]))
    row = (None, *(text.encode() for _, _, text in vector["columns"]))
    assert TableEncoder(table, names, "t").key(row).decode() == vector["key"]


def test_string_escapes_are_those_of_rfc_8785() -> None:
    # Section 3.2.2.2: two-character escapes where there are some, \u00xx in lower case below 0x20, nothing else.
    table = TableEncoder(relation(("k", "pg_catalog.text")), ("k",), "t")
    short = {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r", 0x22: '\\"', 0x5C: "\\\\"}
    for code in (*range(1, 0xD800), *range(0xE000, 0x1_0100), 0x1_F600, 0x10_FFFF):
        escaped = short.get(code) or (f"\\u{code:04x}" if code < 0x20 else chr(code))
        assert table.key((chr(code).encode(),)).decode() == f'{{"k":"{escaped}"}}'


def test_key_order_is_the_callers() -> None:
    assert TableEncoder(ORDERS, ("paid", "id"), "t").key(ROW) == b'{"paid":true,"id":42}'
    assert TableEncoder(ORDERS, ("id", "price"), "t").key(ROW) == b'{"id":42,"price":"1.10"}'


def test_value(orders: TableEncoder) -> None:
    expected = b'{"note":"n","id":42,"tags":["a","b"],"paid":true,"price":"1.10","doc":{"a" : 1},"100%":"NaN"}'
    assert orders.value(ROW) == expected


def test_every_pattern_of_nulls(orders: TableEncoder) -> None:
    whole = json.loads(orders.value(ROW))
    for pattern in range(1 << len(ROW)):
        row = tuple(None if pattern >> i & 1 else cell for i, cell in enumerate(ROW))
        expected = {name: None if row[i] is None else cell for i, (name, cell) in enumerate(whole.items())}
        assert json.loads(orders.value(row)) == expected
        assert list(json.loads(orders.value(row))) == list(whole)


def test_more_null_patterns_than_templates_are_kept() -> None:
    wide = TableEncoder(relation(*((f"c{i}", "pg_catalog.int4") for i in range(60))), ("c0",), "t")
    rng = random.Random(1)
    for _ in range(2500):
        row = tuple(None if rng.random() < 0.5 else b"1" for _ in range(60))
        assert list(json.loads(wide.value(row)).values()) == [None if cell is None else 1 for cell in row]


def test_a_table_without_rows_to_speak_of() -> None:
    assert TableEncoder(relation(("k", "pg_catalog.int4")), ("k",), "t").value((None,)) == b'{"k":null}'


@pytest.mark.parametrize("i", range(len(ROW)))
def test_unchanged_toast_is_never_published(orders: TableEncoder, i: int) -> None:
    row = (*ROW[:i], UNCHANGED_TOAST, *ROW[i + 1 :])
    for hole in (row, tuple(cell if cell is not ROW[2] else None for cell in row)):
        with pytest.raises(EncodeError, match=r"public\.orders.*unchanged TOAST"):
            orders.value(hole)
        assert orders.missing(hole) == (i,)


def test_fill_from_a_whole_old_row(orders: TableEncoder) -> None:
    row = (b"new", b"42", UNCHANGED_TOAST, None, b"1", UNCHANGED_TOAST, None)
    filled = orders.fill(row, ROW)
    assert filled == (b"new", b"42", b"{a,b}", None, b"1", b'{"a" : 1}', None)
    assert orders.missing(filled) == ()


def test_fill_from_an_identity_only_old_row(orders: TableEncoder) -> None:
    row = (b"new", UNCHANGED_TOAST, UNCHANGED_TOAST, None, None, None, None)
    filled = orders.fill(row, (None, b"42", None, None, None, None, None))
    assert filled == (b"new", b"42", UNCHANGED_TOAST, None, None, None, None)
    assert orders.missing(filled) == (2,)


def test_fill_at_takes_null_as_a_value(orders: TableEncoder) -> None:
    row = (b"new", b"42", UNCHANGED_TOAST, UNCHANGED_TOAST, None, None, None)
    assert orders.fill_at(row, {2: None, 0: b"ignored"}) == (b"new", b"42", None, UNCHANGED_TOAST, None, None, None)


@pytest.mark.parametrize("key", [("id",), ("note",), ("id", "note")])
@pytest.mark.parametrize("cell", [None, UNCHANGED_TOAST])
def test_no_key_without_its_columns(key: tuple[str, ...], cell: Any) -> None:
    table = TableEncoder(ORDERS, key, "t")
    row = (cell, cell, *ROW[2:])
    with pytest.raises(EncodeError, match=r"public\.orders"):
        table.key(row)


def test_a_row_that_cannot_be_carried_is_named(orders: TableEncoder) -> None:
    for i, cell, problem in [(0, b"\xff", "note"), (2, b"{a", "tags"), (3, b"yes", "paid"), (5, b'"\xff"', "doc")]:
        with pytest.raises(EncodeError, match=rf"public\.orders, key .*42.*column {problem} ") as raised:
            orders.value((*ROW[:i], cell, *ROW[i + 1 :]))
        assert raised.value.remedy


@pytest.mark.parametrize("row", [(), ROW[:-1], (*ROW, b"1")])
def test_a_row_of_another_width_is_refused(orders: TableEncoder, row: Row) -> None:
    with pytest.raises(EncodeError, match="columns"):
        orders.value(row)


@pytest.mark.parametrize(("key", "text"), [((), "has no key"), (("id", "no"), "no is not"), (("id", "id"), "twice")])
def test_keys_that_cannot_be(key: tuple[str, ...], text: str) -> None:
    with pytest.raises(ConfigError, match=text) as raised:
        TableEncoder(ORDERS, key, "t")
    assert "public.orders" in raised.value.message
    assert raised.value.remedy
