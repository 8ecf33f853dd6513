"""The section registry: where its files start, and that its secrets are never shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from cdc.base.config import RegistryConfig, load
from cdc.base.errors import ConfigError
from cdc.cli.config_command import effective
from tests.unit.base.config.registry_rows import URL


def written(tmp_path: Path, registry: dict[str, Any]) -> Path:
    path = tmp_path / "cdc.yaml"
    path.write_text(yaml.safe_dump({"name": "a", "kafka": {"bootstrap": "k"}, "registry": registry}))
    return path


def loaded(tmp_path: Path, registry: dict[str, Any], environ: dict[str, str] | None = None) -> RegistryConfig:
    section = load(written(tmp_path, registry), environ or {}).registry
    assert section is not None
    return section


def test_its_files_start_at_the_configuration_file(tmp_path: Path) -> None:
    section = loaded(tmp_path, {"url": URL, "ca_file": "ca.pem", "certificate_file": "c.pem", "key_file": "/k.pem"})
    assert (section.ca_file, section.certificate_file) == (str(tmp_path / "ca.pem"), str(tmp_path / "c.pem"))
    assert section.key_file == "/k.pem"


def test_several_addresses_lose_their_last_slash(tmp_path: Path) -> None:
    assert loaded(tmp_path, {"url": "https://a/,http://b/x/"}).urls == ("https://a", "http://b/x")


@pytest.mark.parametrize("login", [{"user": "cdc", "password_file": "secret"}, {"token_file": "secret"}])
def test_a_secret_of_a_file_is_kept_from_logs_and_shown_as_the_file(tmp_path: Path, login: dict[str, str]) -> None:
    (tmp_path / "secret").write_text("hunter2\n")
    config = load(written(tmp_path, {"url": URL, **login}), {})
    assert config.secrets() == ("hunter2",)
    assert "hunter2" not in repr(config)
    shown = effective(config)["registry"]
    assert "hunter2" not in str(shown)
    assert shown[next(key for key in login if key.endswith("_file"))] == "secret"


@pytest.mark.parametrize("login", [{"user": "cdc", "password": "hunter2"}, {"token": "hunter2"}])
def test_a_secret_of_the_configuration_is_masked(tmp_path: Path, login: dict[str, str]) -> None:
    config = load(written(tmp_path, {"url": URL, **login}), {})
    assert config.secrets() == ("hunter2",)
    assert "hunter2" not in repr(config)
    assert "********" in str(effective(config)["registry"])
    assert "hunter2" not in str(effective(config))


@pytest.mark.parametrize(
    "registry",
    [
        {"url": "https://cdc:hunter2@registry"},
        {"url": "https://registry,https://cdc:hunter2@other"},
        {"url": "https://registry:hunter2"},
        {"url": "https://registry?password=hunter2"},
        {"url": "https://hunter2@registry"},
        {"url": ["https://cdc:hunter2@registry"]},
        {"url": URL, "token": ["hunter2"]},
        {"url": URL, "token": "hunter2 "},
        {"url": URL, "user": "cdc", "password": "hunter2", "token": "hunter2"},
    ],
)
def test_no_error_shows_a_secret(tmp_path: Path, registry: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        load(written(tmp_path, registry), {})
    assert "hunter2" not in str(caught.value)


def test_a_token_of_the_environment_replaces_the_file_of_the_file(tmp_path: Path) -> None:
    section = loaded(tmp_path, {"url": URL, "token_file": "gone"}, {"CDC_REGISTRY__TOKEN": "t"})
    assert section.token is not None
    assert section.token.get_secret_value() == "t"


def test_a_password_of_the_environment_leaves_a_token_in_the_file_alone(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="or token, not both"):
        loaded(tmp_path, {"url": URL, "user": "cdc", "token": "t"}, {"CDC_REGISTRY__PASSWORD": "pw"})
