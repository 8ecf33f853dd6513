"""Where replica tables go, by the configuration."""

from __future__ import annotations

import pytest

from cdc.base.errors import ConfigError
from cdc.contract.record import SchemaColumn, TableSchema
from cdc.sink.replica import NameRules, ReplicaName, ReplicaNaming


def schema(name: str, namespace: str = "public") -> TableSchema:
    return TableSchema("f" * 16, namespace, name, f"n.{namespace}.{name}", ("id",), (SchemaColumn("id", "int4"),))


@pytest.mark.parametrize(
    ("in_schema", "prefix", "tables", "expected"),
    [
        (None, "", {}, "public.orders"),
        ("mirror", "", {}, "mirror.orders"),
        ("mirror", "shop_", {}, "mirror.shop_orders"),
        ("mirror", "shop_", {"public.orders": "other.bestellungen"}, "other.bestellungen"),
        (None, "", {"public.orders": "other.with.dot"}, "other.with.dot"),
    ],
)
def test_names(in_schema: str | None, prefix: str, tables: dict[str, str], expected: str) -> None:
    assert str(ReplicaNaming(in_schema, prefix, tables).name(schema("orders"))) == expected


def test_two_tables_in_one_are_refused() -> None:
    naming = ReplicaNaming("mirror", "", {})
    naming.name(schema("orders", "a"))
    naming.name(schema("orders", "a"))
    with pytest.raises(
        ConfigError, match=r"'n\.a\.orders' and 'n\.b\.orders' would both be mirrored into .*mirror\.orders"
    ):
        naming.name(schema("orders", "b"))


def test_long_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="longer than 63 bytes"):
        ReplicaNaming(None, "ü" * 10, {}).name(schema("x" * 50))


FLAT = NameRules(schema="main", folds_case=True, reserved=frozenset({ReplicaName("main", "cdc_cut")}))


@pytest.mark.parametrize(
    ("namespace", "prefix", "tables", "expected"),
    [
        ("public", "", {}, "main.orders"),
        ("sales", "", {}, "main.sales_orders"),
        ("sales", "shop_", {}, "main.shop_sales_orders"),
        ("public", "shop_", {"public.orders": "main.bestellungen"}, "main.bestellungen"),
    ],
)
def test_names_without_schemas(namespace: str, prefix: str, tables: dict[str, str], expected: str) -> None:
    assert str(ReplicaNaming(None, prefix, tables, FLAT).name(schema("orders", namespace))) == expected


@pytest.mark.parametrize(
    ("name", "tables", "why"),
    [
        ("orders", {"public.orders": "other.orders"}, "the only schema there is main"),
        ("CDC_cut", {}, "the sink keeps its own state in a table of this name"),
    ],
)
def test_names_that_a_database_does_not_have(name: str, tables: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        ReplicaNaming(None, "", tables, FLAT).name(schema(name))


def test_names_that_differ_in_case_only_are_one_where_the_database_folds_them() -> None:
    naming = ReplicaNaming(None, "", {}, FLAT)
    naming.name(schema("orders"))
    with pytest.raises(ConfigError, match=r"'n\.public\.orders' and 'n\.public\.Orders' would both be mirrored"):
        naming.name(schema("Orders"))
