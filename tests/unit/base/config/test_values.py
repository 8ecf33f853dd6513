"""Forms of values: which one a column has, and what they do not go with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from cdc.base.config import load
from cdc.base.config.values import Forms, ValuesConfig
from cdc.base.errors import ConfigError
from cdc.base.table_names import qualified
from tests.unit.base.config.test_options import BASE

_DEFAULTS = Forms("postgres", "text", "hex", "embedded")


def values_of(path: Path, values: dict[str, Any], **more: Any) -> ValuesConfig:
    (path / "cdc.yaml").write_text(yaml.safe_dump(BASE | {"values": values} | more))
    return load(path / "cdc.yaml", {}).values


def test_a_column_has_its_own_form_or_its_tables_or_the_bridges(tmp_path: Path) -> None:
    dotted = {qualified("public", "a.b"): {"columns": {"c.d": {"numeric": "number"}}}}
    orders = {"bytea": "hex", "documents": "string", "columns": {"amount": {"numeric": "number", "bytea": "base64"}}}
    tables = {"public.orders": orders, **dotted}
    found = values_of(tmp_path, {"timestamps": "iso", "bytea": "base64", "tables": tables})
    assert found.of("public.notes", "n") == Forms("iso", "text", "base64", "embedded")
    assert found.of("public.orders", "n") == Forms("iso", "text", "hex", "string")
    assert found.of("public.orders", "amount") == Forms("iso", "number", "base64", "string")
    assert found.of(qualified("public", "a.b"), "c.d").numeric == "number"
    assert found.is_chosen
    assert found.is_chosen_for_all


def test_a_table_takes_an_option_back(tmp_path: Path) -> None:
    tables = {"public.a": {"schemas": "none", "documents": "embedded"}, "public.b": {"timestamps": "iso"}}
    found = values_of(tmp_path, {"schemas": "connect", "documents": "string", "tables": tables})
    assert [found.schemas_of(f"public.{name}") for name in "abc"] == ["none", "connect", "connect"]
    assert found.of("public.a", "x") == _DEFAULTS


def test_nothing_is_chosen_by_default(tmp_path: Path) -> None:
    assert not values_of(tmp_path, {}).is_chosen
    assert not values_of(tmp_path, {"timestamps": "postgres"}).is_chosen
    only = values_of(tmp_path, {"tables": {"public.a": {"numeric": "number"}}})
    assert only.is_chosen
    assert not only.is_chosen_for_all


@pytest.mark.parametrize(
    ("topics", "values", "said"),
    [
        ({"envelope": "debezium"}, {"timestamps": "iso"}, "does not go with topics.envelope: debezium"),
        ({"format": "avro"}, {"timestamps": "iso"}, "every table is written as avro"),
        (
            {"formats": {"public.a": "protobuf"}},
            {"tables": {"public.a": {"numeric": "number"}}},
            "public.a is written as protobuf",
        ),
    ],
)
def test_what_forms_do_not_go_with(tmp_path: Path, topics: dict[str, Any], values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        values_of(tmp_path, values, topics=topics)


def test_forms_go_with_tables_in_other_formats(tmp_path: Path) -> None:
    assert values_of(tmp_path, {"timestamps": "iso"}, topics={"formats": {"public.a": "avro"}}).is_chosen
    assert values_of(
        tmp_path, {"timestamps": "iso"}, topics={"format": "avro", "formats": {"public.a": "json"}}
    ).is_chosen
    assert values_of(tmp_path, {"numeric": "number"}, delivery="idempotent").is_chosen
