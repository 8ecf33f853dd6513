"""Keys as bytes: they sort as their values do, and different keys stay different."""

from __future__ import annotations

import json
import random
from itertools import pairwise

import pytest

from cdc.views.store.port import Key
from cdc.views.table.keys import (
    KeyForm,
    index_order,
    index_prefix,
    order_of,
    order_of_no_key,
    pointed,
    pointer,
    prefix_range,
    raw_order,
    stop_of,
)

INTEGERS = [-(2**63), -(2**40), -257, -256, -255, -1, 0, 1, 255, 256, 2**40, 2**63 - 1]
FLOATS = ["-Infinity", -1e300, -5.5, -1, 0, 0.5, 1, 1.5, 2, 1e300, "Infinity", "NaN"]
TEXTS = ["", "\0", "\0a", "a", "a\0", "a\0b", "aa", "b", "é", "日本"]


def key(**columns: object) -> bytes:
    return json.dumps(columns, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    ("sql_type", "values"), [("int8", INTEGERS), ("float8", FLOATS), ("text", TEXTS), ("bool", [False, True])]
)
def test_keys_sort_as_their_values(sql_type: str, values: list[object]) -> None:
    form = KeyForm([("id", sql_type)])
    orders = [form.order(key(id=value)) for value in values]
    assert all(one < other for one, other in pairwise(orders))


def test_tuples_sort_by_their_first_column_then_by_the_next() -> None:
    form = KeyForm([("region", "text"), ("id", "int4")])
    keys = [("eu", 7), ("eu", 10), ("eua", 1), ("us", -1), ("us", 0)]
    orders = [form.order(key(region=region, id=number)) for region, number in keys]
    assert orders == sorted(orders)


def test_columns_may_come_in_any_order_in_the_key() -> None:
    form = KeyForm([("region", "text"), ("id", "int4")])
    assert form.order(b'{"id":7,"region":"eu"}') == form.order(b'{"region":"eu","id":7}')


def test_joined_strings_are_not_confused() -> None:
    assert len({order_of(each) for each in (["a:b", "c"], ["a", "b:c"], ["a", "b", "c"], ["a:b:c"])}) == 4


@pytest.mark.parametrize("text", [b"7", b"[7]", b'{"id":7,"x":1}', b'{"x":7}', b"{"])
def test_what_is_no_key_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        KeyForm([("id", "int8")]).order(text)


def test_a_prefix_holds_what_begins_with_it_and_nothing_else() -> None:
    rng = random.Random(7)
    keys = [(rng.choice(["eu", "eua", "us", "e"]), rng.randrange(-300, 300)) for _ in range(500)]
    start, stop = prefix_range(["eu"])
    assert {each for each in keys if start <= order_of(each) < stop} == {each for each in keys if each[0] == "eu"}
    start, stop = prefix_range([], text="eu")
    assert {each for each in keys if start <= order_of(each) < stop} == {
        each for each in keys if each[0].startswith("eu")
    }


def test_long_keys_sort_as_short_ones_do() -> None:
    long = ["x" * 1000 + end for end in "acbd"]
    orders = [order_of([each]) for each in long]
    assert sorted(orders) == [order_of([each]) for each in sorted(long)]
    assert raw_order(long[0].encode()) == orders[0]
    start, stop = prefix_range([], text="x" * 1000 + "b")
    assert [each for each, order in zip(long, orders, strict=True) if start <= order < stop] == [long[2]]


def test_an_index_entry_is_found_by_its_values_and_differs_by_its_row() -> None:
    rows = [order_of([number]) for number in range(3)]
    entries = [index_order(["eu", None], row) for row in rows]
    start = index_prefix(["eu", None])
    assert entries == sorted(entries)
    assert all(start <= each < stop_of(start) for each in entries)
    assert not start <= index_order(["eu", 0], rows[0]) < stop_of(start)
    assert len(index_order(["v" * 9_000], rows[0])) == 1_000 + len(rows[0])


@pytest.mark.parametrize("size", [982, 983, 984, 997, 998, 999, 1_000, 1_001, 4_000])
def test_index_entries_are_found_by_their_first_values_however_long(size: int) -> None:
    row, value = order_of([7]), "v" * size
    start = index_prefix([value])
    assert start <= index_order([value, "x" * size], row) < stop_of(start)
    longer = [index_order([value + "v" * 100 + str(number), None], row) for number in range(2_000)]
    assert not [each for each in longer if each.startswith(start)]


def test_an_index_entry_leads_to_its_row() -> None:
    row = Key(order_of(["a\0b", 7]), b'{"a":"a\\u0000b","b":7}')
    assert pointed(pointer(row)) == row


def test_what_is_no_key_stands_behind_all_keys() -> None:
    keys = [order_of([value]) for value in (None, 10**18, "\U0010ffff" * 300, {"a": 1})]
    others = [order_of_no_key(b"\xff" * 900, 0, 1), order_of_no_key(None, 0, 1), order_of_no_key(None, 0, 256)]
    assert max(keys) < min(others)
    assert others == sorted(set(others))
    assert order_of_no_key(b"x", 0, 1) == order_of_no_key(b"x", 3, 9)
