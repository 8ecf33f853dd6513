"""``cdc tables``: what can be told of a file without its server."""

from __future__ import annotations

import shutil
import stat
import tempfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cdc.base.errors import ConfigError
from cdc.cli.tables_command import tables_app

TEXT = """\
name: shop
source:
  dsn: host=db
  tables: [public.orders, public.items]
kafka:
  bootstrap: kafka:9092
"""


@pytest.mark.parametrize("step", ["mkstemp", "copymode", "replace"])
def test_a_file_that_cannot_be_written_stays_as_it_is(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(TEXT)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr({"mkstemp": tempfile, "copymode": shutil, "replace": Path}[step], step, refuse)
    refused = CliRunner().invoke(tables_app, ["remove", "public.orders", "-c", str(path)]).exception
    assert isinstance(refused, ConfigError)
    assert f"{path} cannot be written: No space left on device" in str(refused)
    assert "source.tables: remove public.orders; then send the bridge SIGHUP" in str(refused)
    assert path.read_text() == TEXT
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_changed_at_once_and_keeps_its_mode_and_its_link(tmp_path: Path) -> None:
    path, link = tmp_path / "shop.yaml", tmp_path / "current.yaml"
    path.write_text(TEXT)
    path.chmod(0o640)
    link.symlink_to(path)
    with path.open() as daemon:  # it opened the file before the change, and reads after it
        assert CliRunner().invoke(tables_app, ["remove", "public.orders", "-c", str(link)]).exit_code == 0
        assert daemon.read() == TEXT
    assert "tables: [public.items]" in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert link.is_symlink()
    assert sorted(tmp_path.iterdir()) == [link, path]
