"""``cdc config show`` and ``cdc config schema``, called as a user calls them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from cdc.base.config import Config
from cdc.base.errors import ConfigError
from cdc.cli.config_command import config_app
from cdc.cli.options import load_config

TEXT = """\
name: shop
source:
  dsn: postgresql://cdc:hunter2@db/shop
kafka:
  bootstrap: kafka:9092
  options:
    security.protocol: SASL_SSL
    sasl.username: cdc
    ssl.key.password: hunter2
  password: hunter2
sink:
  dsn: host=replica
  password_file: secret
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("CDC_CONFIG", raising=False)
    (tmp_path / "secret").write_text("hunter2\n")
    (tmp_path / "cdc.yaml").write_text(TEXT)
    return tmp_path / "cdc.yaml"


def show(*arguments: str, **environ: str) -> str:
    result = CliRunner().invoke(config_app, ["show", *arguments], env=environ, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_show_prints_file_and_defaults_without_secrets(path: Path) -> None:
    said = show("-c", str(path))
    shown = yaml.safe_load(said)
    assert "hunter2" not in said
    assert shown["source"]["dsn"] == "postgresql://cdc:********@db/shop"
    assert shown["source"]["slot"] == "cdc_shop"
    assert shown["kafka"]["options"]["ssl.key.password"] == "********"
    assert shown["kafka"]["options"]["sasl.username"] == "cdc"
    assert shown["kafka"]["password"] == "********"
    assert "password" not in shown["sink"]
    assert shown["sink"]["password_file"] == "secret"
    assert shown["sink"]["schema"] is None
    assert shown["topics"]["partitions"] == 4


def test_show_says_what_comes_from_the_environment(path: Path) -> None:
    said = show("-c", str(path), CDC_TOPICS__PARTITIONS="8")
    assert "# topics.partitions comes from CDC_TOPICS__PARTITIONS\n" in said
    assert yaml.safe_load(said)["topics"]["partitions"] == 8


def test_what_show_prints_has_only_known_keys(path: Path) -> None:
    shown = yaml.safe_load(show("-c", str(path)))
    properties = Config.model_json_schema()["$defs"]
    for section in ("source", "kafka", "topics", "sink", "http"):
        assert set(shown[section]) <= set(properties[f"{section.capitalize()}Config"]["properties"])


def test_path_from_the_environment(path: Path) -> None:
    assert yaml.safe_load(show(CDC_CONFIG=str(path)))["name"] == "shop"


def test_cdc_yaml_of_the_current_folder(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    assert yaml.safe_load(show())["name"] == "shop"
    assert load_config(None).name == "shop"


def test_missing_file_is_a_config_error(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cdc init -c .* writes one"):
        show("-c", str(path.parent / "none.yaml"))


def test_schema_is_json_schema_of_the_file() -> None:
    result = CliRunner().invoke(config_app, ["schema"], catch_exceptions=False)
    schema = json.loads(result.stdout)
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert schema["required"] == ["name", "kafka"]
    assert schema["additionalProperties"] is False
    assert schema["$defs"]["TopicsConfig"]["properties"]["partitions"]["maximum"] == 1000
