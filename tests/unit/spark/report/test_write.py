"""The files of a report."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc.base.errors import ConfigError
from cdc.spark.report.document import from_json
from cdc.spark.report.write import Written, write_all
from tests.support import reports


def test_all_views_lie_in_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    written = write_all(reports.hostile(), folder)
    names = ("report.json", "report.html", "junit.xml", "report.txt")
    assert written == Written(*(folder / name for name in names))
    assert {path.name for path in folder.iterdir()} == set(names)
    assert from_json(written.json.read_text()) == reports.hostile()
    assert written.html.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_second_run_replaces_the_first(tmp_path: Path) -> None:
    write_all(reports.mixed(), tmp_path)
    written = write_all(reports.all_identical(), tmp_path)
    assert written.text.read_text().startswith("IDENTICAL")
    assert len(list(tmp_path.iterdir())) == 4


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "junit.xml").mkdir()
    with pytest.raises(ConfigError, match="cannot write the report to") as raised:
        write_all(reports.mixed(), tmp_path)
    assert "may write to" in raised.value.remedy
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_file_in_the_folders_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(ConfigError, match="taken"):
        write_all(reports.mixed(), tmp_path / "taken")
