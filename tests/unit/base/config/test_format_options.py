"""Formats and envelopes: what they need, and what they do not go with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from cdc.base.config import load
from cdc.base.errors import ConfigError
from tests.unit.base.config.test_options import BASE


@pytest.mark.parametrize(
    "topics",
    [{"format": "json-schema"}, {"format": "protobuf"}, {"formats": {"public.a": "avro"}}, {"key_format": "avro"}],
)
def test_a_format_with_schemas_needs_a_registry(tmp_path: Path, topics: dict[str, Any]) -> None:
    path = tmp_path / "cdc.yaml"
    path.write_text(yaml.safe_dump(BASE | {"topics": topics, "registry": None}))
    with pytest.raises(
        ConfigError,
        match=r"(avro|json-schema|protobuf) needs a registry that keeps the schemas; add registry: \{url: …\}",
    ):
        load(path, {})


def test_a_table_may_have_another_format(tmp_path: Path) -> None:
    path = tmp_path / "cdc.yaml"
    path.write_text(yaml.safe_dump(BASE | {"topics": {"format": "avro", "formats": {"public.a": "json"}}}))
    topics = load(path, {}).topics
    assert (topics.format_of("public.a"), topics.format_of("public.b")) == ("json", "avro")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"topics": {"format": "protobuf"}}, r"is written in JSON or Avro, and not in protobuf; set topics\.format"),
        ({"topics": {"formats": {"public.a": "json-schema"}}}, r"JSON or Avro, and not in json-schema"),
        (
            {"topics": {"format": "avro"}, "debezium": {"schemas_enable": True}},
            r"debezium\.schemas_enable puts a schema into each value in JSON",
        ),
        (
            {"topics": {"key_format": "avro"}},
            r"debezium has keys in JSON: leave out topics\.key_format",
        ),
        ({"topics": {"history": ["public.a"]}}, r"a history cannot hold envelopes: leave out topics\.history"),
        ({"topics": {"beyond": "text"}}, r"topics\.beyond: text has no place in Debezium's types"),
        ({"delivery": "idempotent"}, r"topics\.envelope: debezium needs delivery: transactional"),
    ],
)
def test_what_an_envelope_does_not_go_with(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    path = tmp_path / "cdc.yaml"
    topics = {"envelope": "debezium", **more.get("topics", {})}
    path.write_text(yaml.safe_dump(BASE | more | {"topics": topics}))
    with pytest.raises(ConfigError, match=said):
        load(path, {})


def test_an_envelope_may_be_in_avro(tmp_path: Path) -> None:
    path = tmp_path / "cdc.yaml"
    topics = {"envelope": "debezium", "format": "avro", "formats": {"public.a": "json"}}
    path.write_text(yaml.safe_dump(BASE | {"topics": topics}))
    assert load(path, {}).topics.format == "avro"
