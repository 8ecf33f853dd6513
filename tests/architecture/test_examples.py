"""Every example under config/ loads, and says what it claims to."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdc.base.config import Config, load
from cdc.cli.config_command import effective
from tests.architecture.tree import ROOT

EXAMPLES = sorted(path.name for path in (ROOT / "config").glob("*.yaml"))
COMPLETE = "bridge.yaml"
SECTIONS = ("source", "snapshot", "kafka", "topics", "sink", "http")
NOT_DEFAULT = {"source.dsn", "kafka.options", "sink.dsn", "http.bridge_port", "http.sink_port"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of config/ in which every password file exists."""
    copy = tmp_path / "config"
    shutil.copytree(ROOT / "config", copy)
    for path in copy.glob("*.yaml"):
        for name in re.findall(r"^\s*password_file:\s*(\S+)", path.read_text(), re.MULTILINE):
            secret = copy / name
            secret.parent.mkdir(exist_ok=True)
            secret.write_text("example\n")
    return copy


def test_there_are_examples() -> None:
    assert {COMPLETE, "docker.yaml", "minimal.yaml", "tls-sasl.yaml"} <= set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_loads(folder: Path, name: str) -> None:
    assert load(folder / name, {}).name


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_holds_no_password(name: str) -> None:
    content = yaml.safe_load((ROOT / "config" / name).read_text())
    assert not any("password" in section for section in content.values() if isinstance(section, dict))


def test_complete_example_names_every_option() -> None:
    given = yaml.safe_load((ROOT / "config" / COMPLETE).read_text())
    schema = Config.model_json_schema()
    assert set(given) == set(schema["properties"])
    for section in SECTIONS:
        options = set(schema["$defs"][f"{section.capitalize()}Config"]["properties"])
        assert set(given[section]) | {"password", "password_file", "salt", "salt_file"} >= options, section


def test_complete_example_shows_the_defaults(folder: Path) -> None:
    given = yaml.safe_load((ROOT / "config" / COMPLETE).read_text())
    least: dict[str, Any] = {
        "name": given["name"],
        "source": {"dsn": "host=x"},
        "kafka": {"bootstrap": given["kafka"]["bootstrap"]},
        "sink": {"dsn": "host=x"},
    }
    (folder / "least.yaml").write_text(yaml.safe_dump(least))
    shown, default = effective(load(folder / COMPLETE, {})), effective(load(folder / "least.yaml", {}))
    different = {
        f"{section}.{key}"
        for section in SECTIONS
        for key in shown[section]
        if shown[section][key] != default[section][key]
    }
    assert different == NOT_DEFAULT
