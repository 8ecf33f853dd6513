"""Only objects with absolute values go into a compacted topic."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from pydantic import BaseModel

from cdc.base.errors import ValueRefused
from cdc.state.absolute import looks_like_delta, refuse_deltas
from cdc.state.values import decode, encode


class Profile(BaseModel):
    name: str
    age: int | None = None


def test_objects_are_written_without_blanks_in_their_own_order() -> None:
    assert encode({"b": 1, "a": {"x": None}}) == b'{"b":1,"a":{"x":null}}'
    assert encode(Profile(name="Ann")) == b'{"name":"Ann","age":null}'
    assert decode(encode({"b": 1})) == {"b": 1}


@pytest.mark.parametrize("value", [None, b"null", "null", b"", "", 7, [1], True], ids=repr)
def test_what_readers_would_mistake_for_a_delete_or_a_row_is_refused(value: Any) -> None:
    with pytest.raises(ValueRefused, match="invalid value") as caught:
        encode(value)
    assert "delete(key)" in caught.value.remedy


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_what_json_would_write_as_null_is_refused(number: float) -> None:
    assert orjson.dumps(number) == b"null", "that is why"
    with pytest.raises(ValueRefused, match="JSON cannot represent"):
        encode({"a": [{"b": number}]})


def test_what_json_lacks_is_refused() -> None:
    with pytest.raises(ValueRefused, match="cannot be written as JSON"):
        encode({"a": object()})


@pytest.mark.parametrize("value", [b"null", b"[1]", b'"a"', b"", b"{", b"\xff"], ids=repr)
def test_what_somebody_else_wrote_is_an_error_and_no_empty_object(value: bytes) -> None:
    with pytest.raises(ValueRefused, match="JSON"):
        decode(value)


@pytest.mark.parametrize(
    ("field", "content"),
    [
        ("balanceDelta", 10),
        ("balanceDelta", "+10"),
        ("stock_delta", -1),
        ("delta", {"a": 1}),
        ("DELTA", 1),
        ("price-delta", 1),
        ("incrementBy", 1),
        ("increment_count", 1),
        ("decrement", 1),
        ("changedBy", 3),
        ("raised_by", 0.5),
        ("URLIncrement", 1),
    ],
)
def test_deltas_are_recognised_at_any_depth(field: str, content: Any) -> None:
    for value in ({field: content}, {"a": {"b": [{field: content}]}}):
        with pytest.raises(ValueRefused, match=repr(field)) as caught:
            refuse_deltas(value)
        assert f"absolute_fields=({field!r},)" in caught.value.remedy
        refuse_deltas(value, (field,))


@pytest.mark.parametrize(
    ("field", "content"),
    [
        ("balance", 110),
        ("createdBy", "ann"),
        ("approved_by", None),
        ("isSharedBy", True),
        ("by", 7),
        ("standby", 1),
        ("deltas", []),
        ("incremental", True),
        ("deltav", 1),
        ("autoincrement", 1),
    ],
)
def test_what_is_no_delta_passes(field: str, content: Any) -> None:
    assert not looks_like_delta(field, content)
    refuse_deltas({field: content})


def test_an_override_is_for_its_field_alone() -> None:
    with pytest.raises(ValueRefused, match="'b_delta'"):
        refuse_deltas({"a_delta": 1, "b_delta": 1}, ("a_delta",))
