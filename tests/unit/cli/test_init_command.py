"""``cdc init --offline``: where the file goes, and what is said when it cannot go there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cdc.base.config import load
from cdc.base.errors import ConfigError
from cdc.cli.cli import app


def init(path: Path, *words: str) -> Result:
    servers = ["--source", "host=db dbname=shop user=cdc", "--kafka", "kafka:9092", "--offline", "--yes"]
    return CliRunner().invoke(app, ["init", "-c", str(path), *servers, *words])


def no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """As shared folders of virtual machines and FAT have it."""

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    for words in ((), ("--overwrite",)):
        refused = init(tmp_path, *words).exception
        assert isinstance(refused, ConfigError)
        assert f"{tmp_path} is a folder" in str(refused)
        assert str(tmp_path / "cdc.yaml") in refused.remedy
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_links(monkeypatch)
    path = tmp_path / "shop.yaml"
    done = init(path)
    assert done.exit_code == 0, done.output
    assert load(path, {}).name == "shop"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_somebody_made_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_links(monkeypatch)
    path = tmp_path / "shop.yaml"
    monkeypatch.setattr("cdc.cli.init_command.load", lambda *_: path.write_text("precious\n"))
    refused = init(path).exception
    assert isinstance(refused, ConfigError)
    assert "already exists" in str(refused)
    assert path.read_text() == "precious\n"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_mounted_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As containers have it: it may be written, and nothing may take its place."""

    def refuse(*_: object) -> None:
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(Path, "replace", refuse)
    path = tmp_path / "shop.yaml"
    path.write_text("precious\n")
    refused = init(path, "--overwrite").exception
    assert isinstance(refused, ConfigError)
    assert f"{path} cannot be written: Device or resource busy" in str(refused)
    assert path.read_text() == "precious\n"
    assert list(tmp_path.iterdir()) == [path]
