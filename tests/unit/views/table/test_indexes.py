"""Where rows stand in indexes, whatever is in them."""

from __future__ import annotations

import orjson
import pytest

from cdc.views.table.indexes import Indexes
from cdc.views.table.keys import index_order, order_of

ORDER = order_of([7])
INDEXES = Indexes([["a"], ["b", "a"]], {"a": "float8", "b": "json"})


@pytest.mark.parametrize(
    ("row", "a", "b"),
    [
        (b'{"a":1,"b":{"x":[1]}}', 1, {"x": [1]}),
        (b'{"b":null}', None, None),
        (b'{"a":-0.5,"b":"\\ud800"}', -0.5, '"\\ud800"'),
        (b'{"a":2,"b":1e999}', 2, "1e999"),
        (b'{"a":1,"b":' + b"[" * 300 + b"]" * 300 + b"}", 1, "[" * 300 + "]" * 300),
        (b'{"a":1,"b":' + b"[" * 3000 + b"]" * 3000 + b"}", 1, "[" * 3000 + "]" * 3000),
    ],
)
def test_orders(row: bytes, a: object, b: object) -> None:
    assert INDEXES.orders(row, ORDER) == (index_order([a], ORDER, [True]), index_order([b, a], ORDER, [False, True]))


@pytest.mark.parametrize("a", ["", {"x": 1}, []])
def test_values_of_a_former_type_sort_as_what_they_are(a: object) -> None:
    found = INDEXES.orders(orjson.dumps({"a": a, "b": 1}), ORDER)
    assert found == (index_order([a], ORDER), index_order([1, a], ORDER))


def test_what_decides_where_rows_stand() -> None:
    assert INDEXES.columns == (("a",), ("b", "a"))
    assert INDEXES.places == ((True,), (False, True))
    assert not Indexes((), {})
