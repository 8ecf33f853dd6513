"""Names of tables: one for each, and each leads back to its table."""

from __future__ import annotations

from itertools import product

import pytest
import yaml

from cdc.base.config import load
from cdc.base.errors import ConfigError
from cdc.base.table_names import in_yaml, parts, qualified
from cdc.contract.patterns import in_scope

PIECES = [
    "a",
    "a.b",
    "b.c",
    '"',
    '"a"',
    '"a',
    'a"',
    '"a".b',
    'x"."y',
    ".",
    "a.",
    ".b",
    "Ünï",
    'a""b',
    '"a.b"',
    "line\n.",
]


def test_no_two_tables_share_a_name_and_each_is_found_by_its_own() -> None:
    tables = [*product(PIECES, PIECES)]
    names = [qualified(*each) for each in tables]
    assert len(set(names)) == len(tables)
    assert [parts(each) for each in names] == tables


def test_in_yaml_it_stays_what_it_is() -> None:
    names = ["public.orders", '"a.b".c', '"it\'s a.b".c', 'x."""y"']
    assert yaml.safe_load(f"[{', '.join(map(in_yaml, names))}]") == names
    assert in_yaml("public.orders") == "public.orders"


def test_ordinary_names_are_plain() -> None:
    assert qualified("public", "orders") == "public.orders"
    assert qualified("public", "or.ders") == "public.or.ders"
    assert qualified("my.schema", "orders") == '"my.schema".orders'


def test_quotes_as_in_sql_are_understood() -> None:
    assert parts('"my.schema"."or.ders"') == ("my.schema", "or.ders")
    assert parts('public."or.ders"') == ("public", "or.ders")
    assert parts('"say ""hi"""."x"') == ('say "hi"', "x")
    assert parts("orders") == ("orders", "")


@pytest.mark.parametrize("text", ['"a.b', '"a.b"c', '""', '"'])
def test_a_quote_that_is_not_closed_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="ends with a quote and a dot"):
        parts(text)


def test_patterns() -> None:
    assert in_scope("a.b", "c", ['"a.b".*'], ())
    assert not in_scope("a", "b.c", ['"a.b".*'], ())
    assert in_scope("a", "b.c", ["a.b.c"], ())
    assert not in_scope("a.b", "c", ["a.b.c"], ())
    assert in_scope("a.b", "c", ["*.*"], ())


def test_configuration_knows_one_spelling() -> None:
    base = {"CDC_NAME": "shop", "CDC_SOURCE__DSN": "host=db", "CDC_KAFKA__BOOTSTRAP": "kafka:9092"}
    config = load(
        None,
        {
            **base,
            "CDC_SOURCE__TABLES": '"public".*, "a.b"."c"',
            "CDC_SOURCE__KEYS": '{"\\"public\\".\\"orders\\"": ["id"]}',
        },
    )
    assert config.source.tables == ("public.*", '"a.b".c')
    assert config.source.keys == {"public.orders": ("id",)}
    with pytest.raises(ConfigError, match="ends with a quote and a dot"):
        load(None, {**base, "CDC_SOURCE__TABLES": '"a.b.c'})


def test_what_is_left_out_is_left_out_by_schema_and_name() -> None:
    assert in_scope("public", "orders", ["public.*"], ["other.orders", "public.order"])
    assert not in_scope("public", "orders", ["public.*"], ["public.ord*"])
    assert not in_scope("public", "orders", ["public.*"], ["*.orders"])


def test_an_asterisk_stands_for_any_characters() -> None:
    assert in_scope("public", "two\nlines", ["public.two*"], [])
    assert not in_scope("public", "orders", ["public.o.ders"], [])
