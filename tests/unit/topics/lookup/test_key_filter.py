"""What ``cdc watch`` is asked to show: keys by their values, however these are spelled."""

from __future__ import annotations

import pytest

from cdc.base.errors import ConfigError
from cdc.contract.formats.written_key import equal_keys
from cdc.contract.record import SchemaColumn, TableSchema
from cdc.topics.lookup.key_filter import with_values


def schema(**columns: str) -> TableSchema:
    described = tuple(SchemaColumn(name, kind) for name, kind in columns.items())
    return TableSchema("f" * 16, "public", "t", "x.public.t", tuple(columns), described)


@pytest.mark.parametrize(
    ("kind", "asked", "wanted", "unwanted"),
    [
        ("uuid", "A0EEBC999C0B4EF8BB6D6BB9BD380A11", '"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"', '"a0eebc99"'),
        ("timestamptz", "2026-01-01T00:00:00Z", '"2026-01-01 00:00:00+00"', '"2026-01-01T00:00:00Z"'),
        ("numeric(10,2)", "1", '"1.00"', '"1"'),
        ("numeric", "1.50", '"1.5"', '"1.501"'),
        ("numeric", "1", '"1.000"', '"10"'),
        ("bpchar", "ab", '"ab   "', '"abc"'),
        ("float8", "0", "-0", "1"),
        ("float4", "1.50", "1.5", "15"),
    ],
)
def test_a_watched_key_in_another_spelling(kind: str, asked: str, wanted: str, unwanted: str) -> None:
    is_wanted = with_values(f"k={asked}", schema(k=kind, region="text"))
    assert is_wanted(f'{{"k":{wanted},"region":"eu"}}'.encode())
    assert not is_wanted(f'{{"k":{unwanted},"region":"eu"}}'.encode())
    assert not is_wanted(b'{"region":"eu"}')
    assert not is_wanted(b"no object")


def test_a_watched_key_that_is_no_value_of_its_type() -> None:
    with pytest.raises(ConfigError, match=r"k is float8, not '1_5': write a number; a right value is 1\.5"):
        with_values("k=1_5", schema(k="float8"))


@pytest.mark.parametrize(
    ("kind", "value", "has_equals"),
    [
        ("numeric", '"1.50"', True),
        ("numeric(10,2)", '"1.50"', False),
        ("float8", "0", True),
        ("float8", "-0", True),
        ("float8", "1.5", False),
        ("text", '"0"', False),
        ("int4", "0", False),
    ],
)
def test_whether_a_key_may_be_written_differently(kind: str, value: str, has_equals: bool) -> None:
    assert (equal_keys(f'{{"k":{value}}}'.encode(), [("k", kind)]) is not None) is has_equals
