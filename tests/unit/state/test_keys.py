"""One spelling of each key, the bridge's."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.base.errors import ConfigError, ValueRefused
from cdc.contract.change import Column
from cdc.contract.formats.json_format import JsonFormat
from cdc.state.keys import KeyFormat


def test_a_plain_key_is_its_text() -> None:
    assert KeyFormat().encode("user-7") == b"user-7"
    assert KeyFormat().encode("Grüße") == "Grüße".encode()


def test_columns_stand_in_the_order_that_was_given_once() -> None:
    form = KeyFormat(("region", "id"))
    assert form.encode({"id": 7, "region": "eu"}) == form.encode({"region": "eu", "id": 7}) == b'{"region":"eu","id":7}'


def test_a_joined_text_would_be_ambiguous_and_columns_are_not() -> None:
    form = KeyFormat(("a", "b"))
    assert form.encode({"a": "a:b", "b": "c"}) != form.encode({"a": "a", "b": "b:c"})


def test_keys_are_those_that_the_bridge_writes() -> None:
    columns = [
        Column("id", 20, -1, "pg_catalog.int8", True),
        Column("region", 25, -1, "pg_catalog.text", True),
        Column("on", 16, -1, "pg_catalog.bool", True),
    ]
    bridge = JsonFormat().writer(columns)
    key = {"id": -(2**63), "region": 'o"neü\n', "on": True}
    assert KeyFormat(("id", "region", "on")).encode(key) == bridge.encode(
        (b"-9223372036854775808", 'o"neü\n'.encode(), b"t")
    )


@pytest.mark.parametrize("value", [1.0, None, 2**63, -(2**63) - 1, b"7", ["a"], float("nan")], ids=repr)
def test_a_value_with_several_spellings_is_refused(value: Any) -> None:
    with pytest.raises(ValueRefused, match="'id'") as caught:
        KeyFormat(("id",)).encode({"id": value})
    assert "one fixed form" in caught.value.remedy


@pytest.mark.parametrize("key", [{}, {"id": 1, "more": 2}, {"other": 1}, "7"], ids=repr)
def test_other_columns_are_refused(key: Any) -> None:
    with pytest.raises(ValueRefused, match="columns id"):
        KeyFormat(("id",)).encode(key)


@pytest.mark.parametrize("key", ["", {"id": 1}, None, b"k"], ids=repr)
def test_a_topic_with_plain_keys_takes_texts(key: Any) -> None:
    with pytest.raises(ValueRefused, match="plain keys"):
        KeyFormat().encode(key)


def test_half_a_character_is_refused() -> None:
    for form, key in ((KeyFormat(), "a\ud800"), (KeyFormat(("id",)), {"id": "a\ud800"})):
        with pytest.raises(ValueRefused, match="surrogate"):
            form.encode(key)


@pytest.mark.parametrize("columns", [("a", "a"), ("",), "id"], ids=repr)
def test_columns_are_different_names(columns: Any) -> None:
    with pytest.raises(ConfigError, match="key columns"):
        KeyFormat(columns)
