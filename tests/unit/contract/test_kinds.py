"""Kinds of values: the stream's names and ``__schemas``' spellings lead to the same one."""

from __future__ import annotations

import pytest

from cdc.contract.change import Column
from cdc.contract.kinds import BUILTIN_KINDS, ColumnKind, Kind, kind_of, kind_of_column
from cdc.contract.pgtypes import BUILTIN_NAMES, sql_type


@pytest.mark.parametrize(
    ("spelled", "kind"),
    [
        ("bool", ColumnKind(Kind.BOOL, False, ",")),
        ("oid", ColumnKind(Kind.INT64, False, ",")),
        ("numeric", ColumnKind(Kind.DECIMAL, False, ",")),
        ("numeric(12,2)[]", ColumnKind(Kind.DECIMAL, True, ",")),
        ("timestamp(3)", ColumnKind(Kind.TIMESTAMP, False, ",")),
        ("interval day to second(3)", ColumnKind(Kind.ASCII, False, ",")),
        ('"bit"', ColumnKind(Kind.ASCII, False, ",")),
        ('"char"[]', ColumnKind(Kind.TEXT, True, ",")),
        ("char(5)", ColumnKind(Kind.TEXT, False, ",")),
        ("box[]", ColumnKind(Kind.ASCII, True, ";")),
        ('"public"."mood"', ColumnKind(Kind.TEXT, False, ",")),
        ('"public"."int4"[]', ColumnKind(Kind.TEXT, True, ",")),
        ('"int4 (old)"."box"', ColumnKind(Kind.TEXT, False, ",")),
        ('"public"."a[]"', ColumnKind(Kind.TEXT, False, ",")),
        ("", ColumnKind(Kind.TEXT, False, ",")),
    ],
)
def test_a_type_as_definitions_spell_it(spelled: str, kind: ColumnKind) -> None:
    assert kind_of(spelled) == kind


@pytest.mark.parametrize("modifier", [-1, 70_000])
def test_stream_and_definition_agree_on_every_builtin_type(modifier: int) -> None:
    columns = [Column("c", oid, modifier, name, False) for oid, name in BUILTIN_NAMES.items()]
    assert {c.type_name: kind_of(sql_type(c)) for c in columns} == {c.type_name: kind_of_column(c) for c in columns}


def test_a_type_of_ones_own_is_text_whatever_its_name() -> None:
    names = ("public.int4", "public._int4", "public._box", 'public."a.b"')
    assert [kind_of_column(Column("c", 70_000, -1, name, False)) for name in names] == [
        ColumnKind(Kind.TEXT, False, ","),
        ColumnKind(Kind.TEXT, True, ","),
        ColumnKind(Kind.TEXT, True, ","),
        ColumnKind(Kind.TEXT, False, ","),
    ]


def test_kinds_are_of_types_that_there_are() -> None:
    assert not {f"pg_catalog.{name}" for name in BUILTIN_KINDS} - set(BUILTIN_NAMES.values())
