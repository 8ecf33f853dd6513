"""What a person writes as a key becomes the bytes that the bridge writes, or a refusal that says how."""

from __future__ import annotations

import pytest

from cdc.base.errors import ConfigError
from cdc.contract.record import SchemaColumn, TableSchema
from cdc.topics.history.key import record_key


def schema(**columns: str) -> TableSchema:
    described = tuple(SchemaColumn(name, kind) for name, kind in columns.items())
    return TableSchema("f" * 16, "public", "t", "x.public.t", tuple(columns), (*described, SchemaColumn("n", "text")))


@pytest.mark.parametrize(
    ("kind", "text", "key"),
    [
        ("int4", "id=17", b'{"id":17}'),
        ("int4", "17", b'{"id":17}'),
        ("text", "a,b", b'{"id":"a,b"}'),
        ("int4", '{"id":17}', b'{"id":17}'),
        ("int8", '{ "id" : "-17" }', b'{"id":-17}'),
        ("int8", '{"id":9223372036854775807}', b'{"id":9223372036854775807}'),
        ("text", "id=17", b'{"id":"17"}'),
        ("text", '{"id":17}', b'{"id":"17"}'),
        ("text", "id=a=b", b'{"id":"a=b"}'),
        ("varchar(10)", '{"id":"\\u00e9\\n,\\""}', '{"id":"é\\n,\\""}'.encode()),
        ("numeric(5,2)", "id=1.10", b'{"id":"1.10"}'),
        ("bool", "id=true", b'{"id":true}'),
        ("bool", '{"id":false}', b'{"id":false}'),
        ("float8", '{"id":1e-07}', b'{"id":1e-07}'),
        ("float8", "id=1.50", b'{"id":1.5}'),
        ("float8", '{"id":1.0}', b'{"id":1}'),
        ("bool", "id=t", b'{"id":true}'),
        ("numeric(5,2)", "1", b'{"id":"1.00"}'),
        ("uuid", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", b'{"id":"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"}'),
        ("char(5)", "ab", b'{"id":"ab   "}'),
        ("timestamptz", "2026-01-01T00:00:00Z", b'{"id":"2026-01-01 00:00:00+00"}'),
        ("date", "0044-3-15 bc", b'{"id":"0044-03-15 BC"}'),
        ("float8", "id=NaN", b'{"id":"NaN"}'),
        ("timestamptz(3)", "id=2026-01-01 00:00:00+00", b'{"id":"2026-01-01 00:00:00+00"}'),
        ("interval day to second(3)", "id=1 day", b'{"id":"1 day"}'),
        ("jsonb", '{"id":{"a": 1.50}}', b'{"id":{"a": 1.50}}'),
        ("int4[]", '{"id":"{1,2}"}', b'{"id":[1,2]}'),
        ('"public"."mood"', "id=7", b'{"id":"7"}'),
        ('"char"', "id=7", b'{"id":"7"}'),
    ],
)
def test_the_bytes_are_those_of_the_bridge(kind: str, text: str, key: bytes) -> None:
    assert record_key(text, [schema(id=kind)]) == key


def test_columns_come_in_key_order() -> None:
    assert record_key("user=7,region=eu", [schema(region="text", user="int4")]) == b'{"region":"eu","user":7}'


def test_an_older_key_is_found_by_its_columns() -> None:
    old, new = schema(id="int4"), schema(id="int4", region="text")
    assert record_key("id=1", [old, new]) == b'{"id":1}'
    assert record_key("id=1,region=eu", [old, new]) == b'{"id":1,"region":"eu"}'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("id=1,17", "neither a JSON object nor column=value"),
        ("{17}", "not a JSON object"),
        ('{"id":null}', "cannot be NULL"),
        ("id=x", "id is int4, not 'x'"),
        ("id=1.0", "id is int4, not '1.0': write a whole number; a right value is 7"),
        ("id=2147483648", "id is int4, not '2147483648': write a whole number from"),
        ("other=1", "--key names (other), but the key of public.t is (id)"),
        ("id=1,other=2", "write id=…"),
    ],
)
def test_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        record_key(text, [schema(id="int4")])
    assert words in str(caught.value)
