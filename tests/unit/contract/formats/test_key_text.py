"""Key bytes → texts to cast: what the bridge writes, what looks like it, and what is no key at all."""

from __future__ import annotations

import pytest

from cdc.contract.change import Column
from cdc.contract.formats.json_format import JSON
from cdc.contract.formats.key_text import key_texts

_TYPES = {
    "i": "int4",
    "t": "text",
    "b": "bool",
    "f": "float8",
    "n": "numeric",
    "j": "jsonb",
    "a": "_int4",
    "s": "_text",
    "x": "_box",
    "d": "_jsonb",
}


def column(name: str) -> Column:
    return Column(name, 0, -1, f"pg_catalog.{_TYPES[name]}", True)


@pytest.mark.parametrize(
    ("key", "texts"),
    [
        (b'{"i":42}', [b"42"]),
        (b' { "i" : "42" } ', [b"42"]),
        (b'{"i":1.50e3}', [b"1.50e3"]),
        (b'{"i":123456789012345678901234567890}', [b"123456789012345678901234567890"]),
        (b'{"i":"no number"}', [b"no number"]),
        (b'{"t":"a\\"b\\u00e9","i":1}', [b'a"b\xc3\xa9', b"1"]),
        (b'{"i":1,"t":""}', [b"1", b""]),
        (b'{"b":true}', [b"true"]),
        (b'{"f":"NaN"}', [b"NaN"]),
        (b'{"n":"1.00"}', [b"1.00"]),
        (b'{"j":{"a": [1, null]}}', [b'{"a": [1, null]}']),
        (b'{"j":null}', [b"null"]),
        (b'{"a":[1,null,[2]]}', [b"{1,NULL,{2}}"]),
        (b'{"a":"[2:3]={1,2}"}', [b"[2:3]={1,2}"]),
        (b'{"s":["a,b","NULL"]}', [b'{"a,b","NULL"}']),
        (b'{"x":["(1,1),(0,0)","(2,2),(0,0)"]}', [b"{(1,1),(0,0);(2,2),(0,0)}"]),
        (b'{"d":[[1],"x"]}', [b'{[1],"\\"x\\""}']),
    ],
)
def test_keys(key: bytes, texts: list[bytes]) -> None:
    names = [name for name in _TYPES if f'"{name}"'.encode() in key.split(b":", 1)[0] or f',"{name}":'.encode() in key]
    columns = sorted(map(column, names), key=lambda each: key.index(f'"{each.name}"'.encode()))
    assert key_texts(columns, key) == tuple(texts)


def test_a_name_that_is_not_utf8_is_no_key() -> None:
    assert JSON.members(b'{"\x91":1}') is None


def test_texts_come_in_the_order_of_the_columns() -> None:
    assert key_texts([column("t"), column("i")], b'{"i":1,"t":"x"}') == (b"x", b"1")


@pytest.mark.parametrize(
    "key",
    [
        b"",
        b"7",
        b"null",
        b"[7]",
        b"not JSON",
        b"\xff\xfe",
        b"{}",
        b'{"i":7,"more":8}',
        b'{"I":7}',
        b'{"i":null}',
        b'{"i":{}}',
        b'{"i":[7]}',
        b'{"i":"\\u0000"}',
        b'{"i":"\\ud800"}',
        b'{"i":7} trailing',
    ],
)
def test_no_keys(key: bytes) -> None:
    assert key_texts([column("i")], key) is None
