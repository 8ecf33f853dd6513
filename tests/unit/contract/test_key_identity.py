"""Whether a key column keeps its rows' keys when it is altered: only what was seen to keep every text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.contract.key_identity import is_uncertain, keeps_text, key_change
from cdc.contract.record import SchemaColumn


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("int4", "int4"),
        ('"public"."mood"', '"public"."mood"'),
        ("int2", "int4"),
        ("int2", "int8"),
        ("int4", "int8"),
        ("varchar(5)", "varchar(5)"),
        ("varchar(5)", "varchar(6)"),
        ("varchar(5)", "varchar(5000000)"),
        ("varchar(5)", "varchar"),
        ("varchar(5)", "text"),
        ("varchar", "text"),
        ("text", "varchar"),
        ("varbit(5)", "varbit(6)"),
        ("varbit(5)", "varbit"),
        ("numeric(5,2)", "numeric(6,2)"),
        ("numeric(5,-2)", "numeric(6,-2)"),
        ("numeric(5,2)", "numeric"),
        ("numeric", "numeric"),
        ("time(3)", "time(4)"),
        ("timetz(3)", "timetz"),
        ("timestamp", "timestamp(6)"),
        ("timestamptz(6)", "timestamptz"),
        ("interval(3)", "interval(4)"),
    ],
)
def test_what_keeps_every_text(was: str, now: str) -> None:
    assert keeps_text(was, now)


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("int4", "int2"),
        ("int8", "int4"),
        ("int4", "text"),
        ("varchar(6)", "varchar(5)"),
        ("varchar", "varchar(5)"),
        ("text", "varchar(5)"),
        ("varchar(5)", "char(5)"),
        ("char(5)", "char(6)"),
        ("char(5)", "text"),
        ("varbit", "varbit(5)"),
        ("bit(5)", "bit(6)"),
        ("numeric(6,2)", "numeric(5,2)"),
        ("numeric(5,2)", "numeric(6,3)"),
        ("numeric(5,2)", "numeric(5,-2)"),
        ("numeric", "numeric(5,2)"),
        ("numeric", "text"),
        ("int4", "numeric"),
        ("time(4)", "time(3)"),
        ("timestamp", "timestamp(5)"),
        ("timestamp(3)", "timestamptz(3)"),
        ("interval", "interval day"),
        ("interval day", "interval"),
        ('"public"."mood"', '"public"."tone"'),
        ("text[]", "varchar[]"),
        ("float4", "float8"),
    ],
)
def test_what_may_change_a_text(was: str, now: str) -> None:
    assert not keeps_text(was, now)


ID = SchemaColumn("id", "int4", 1, 23)
MOOD = SchemaColumn("m", '"public"."mood"', 2, 20_000, ((1, "a"), (2, "b")))


@pytest.mark.parametrize(
    ("was", "now", "why"),
    [
        (ID, replace(ID, name="renamed"), ""),
        (ID, replace(ID, number=0), ""),
        (replace(ID, number=0), ID, ""),
        (ID, replace(ID, number=2), "is another column than before (attribute 2, before 1)"),
        (ID, replace(ID, sql_type="int8", type_oid=20), ""),
        (ID, replace(ID, sql_type="text", type_oid=25), "has type text, before int4"),
        # a domain, and the stream does not tell its limit
        (ID, replace(ID, type_oid=16_384), "has another type of the same name (int4)"),
        (replace(ID, type_oid=16_384), ID, "has another type of the same name (int4)"),
        (ID, replace(ID, type_oid=16_383), ""),
        (replace(ID, type_oid=0), replace(ID, type_oid=16_384), ""),
        (MOOD, replace(MOOD, labels=(*MOOD.labels, (3, "c"))), ""),
        (MOOD, replace(MOOD, labels=((2, "b"),)), 'has a type with a renamed enum value ("public"."mood")'),
        (MOOD, replace(MOOD, labels=()), ""),
        (MOOD, replace(MOOD, sql_type='"public"."tone"'), ""),
        (
            MOOD,
            replace(MOOD, sql_type='"public"."tone"', type_oid=0),
            'has type "public"."tone", before "public"."mood"',
        ),
        (MOOD, replace(MOOD, type_oid=0), ""),
        (MOOD, replace(MOOD, type_oid=20_001), 'has another type of the same name ("public"."mood")'),
        (MOOD, replace(MOOD, sql_type="text", type_oid=0), 'has type text, before "public"."mood"'),
    ],
)
def test_why_rows_have_other_keys(was: SchemaColumn, now: SchemaColumn, why: str) -> None:
    assert key_change(was, now) == why


def test_a_column_is_uncertain_while_its_record_does_not_say_which_it_was() -> None:
    assert not is_uncertain(ID, ID)
    assert is_uncertain(replace(ID, number=0), ID)
    assert not is_uncertain(ID, replace(ID, number=0))
    assert is_uncertain(replace(MOOD, labels=()), MOOD)
    assert not is_uncertain(MOOD, replace(MOOD, labels=()))
