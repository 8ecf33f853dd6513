"""``cdc tables``: what can be told of a file without its server."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cdc.app.tables_command import tables_app
from cdc.errors import ConfigError

TEXT = """\
name: shop
source:
  dsn: host=db
  tables: [public.orders, public.items]
kafka:
  bootstrap: kafka:9092
"""


def test_a_file_that_may_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(TEXT)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "write_text", refuse)
    refused = CliRunner().invoke(tables_app, ["remove", "public.orders", "-c", str(path)]).exception
    assert isinstance(refused, ConfigError)
    assert f"{path} cannot be written: Permission denied" in str(refused)
    assert "source.tables: take out public.orders; then send the bridge SIGHUP" in str(refused)
    assert path.read_text() == TEXT
