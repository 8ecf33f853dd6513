"""Type names and SQL types. That they are PostgreSQL's own is held by the captured golden data."""

from __future__ import annotations

import pytest

from cdc.contract.change import Column
from cdc.contract.pgtypes import BUILTIN_NAMES, element_name, split_type_name, sql_type, type_name


@pytest.mark.parametrize(
    ("name", "modifier", "spelled"),
    [
        ("pg_catalog.int8", -1, "int8"),
        ("pg_catalog.numeric", -1, "numeric"),
        ("pg_catalog.numeric", (12 << 16 | 2) + 4, "numeric(12,2)"),
        ("pg_catalog.numeric", (5 << 16 | (-2 & 0x7FF)) + 4, "numeric(5,-2)"),
        ("pg_catalog.numeric", (3 << 16 | 5) + 4, "numeric(3,5)"),
        ("pg_catalog._numeric", (12 << 16 | 2) + 4, "numeric(12,2)[]"),
        ("pg_catalog.varchar", 24, "varchar(20)"),
        ("pg_catalog.varchar", -1, "varchar"),
        ("pg_catalog.bpchar", 9, "char(5)"),
        ("pg_catalog.bpchar", -1, "bpchar"),
        ("pg_catalog.char", -1, '"char"'),
        ("pg_catalog._char", -1, '"char"[]'),
        ("pg_catalog.bit", 3, "bit(3)"),
        ("pg_catalog.bit", -1, '"bit"'),
        ("pg_catalog.varbit", 5, "varbit(5)"),
        ("pg_catalog.time", 3, "time(3)"),
        ("pg_catalog.timetz", 0, "timetz(0)"),
        ("pg_catalog.timestamptz", 6, "timestamptz(6)"),
        ("pg_catalog.interval", -1, "interval"),
        ("pg_catalog.interval", 0x7FFF << 16 | 3, "interval(3)"),
        ("pg_catalog.interval", 0x4 << 16 | 0xFFFF, "interval year"),
        ("pg_catalog.interval", 0x6 << 16 | 0xFFFF, "interval year to month"),
        ("pg_catalog.interval", 0x1C08 << 16 | 3, "interval day to second(3)"),
        ("pg_catalog._interval", 0x1000 << 16 | 2, "interval second(2)[]"),
        ("pg_catalog.int2vector", -1, "int2vector"),
        ("public.Mood", -1, '"public"."Mood"'),
        ("public._mood", -1, '"public"."mood"[]'),
        ("public.vector", 3, '"public"."vector"'),
        ('"odd.""s"._t', -1, '"odd.""s"."t"[]'),
    ],
)
def test_sql_type(name: str, modifier: int, spelled: str) -> None:
    assert sql_type(Column("c", 0, modifier, name, False)) == spelled


@pytest.mark.parametrize("parts", [("public", "mood"), ("a.b", 'c"d'), ('"', "."), ("pg_catalog", "_int4"), ("", "")])
def test_type_names_can_be_split(parts: tuple[str, str]) -> None:
    assert split_type_name(type_name(*parts)) == parts


def test_split_refuses_other_text() -> None:
    with pytest.raises(ValueError, match="not a qualified type name"):
        split_type_name("int4")


def test_built_in_types() -> None:
    assert BUILTIN_NAMES[23] == "pg_catalog.int4"
    assert BUILTIN_NAMES[1007] == "pg_catalog._int4"
    assert BUILTIN_NAMES[22] == "pg_catalog.int2vector"
    assert BUILTIN_NAMES[6157] == "pg_catalog._int8multirange"
    assert len(set(BUILTIN_NAMES.values())) == len(BUILTIN_NAMES)


@pytest.mark.parametrize(
    ("name", "element"),
    [
        ("pg_catalog._int4", "pg_catalog.int4"),
        ("pg_catalog.int2vector", None),
        ("public._a", "public.a"),
        ("a._", None),
    ],
)
def test_element_name(name: str, element: str | None) -> None:
    assert element_name(name) == element
