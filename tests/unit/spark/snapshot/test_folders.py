"""A folder of snapshots: whole ones only, one writer, rotation that touches nothing else."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from cdc.spark.errors import JobError
from cdc.spark.snapshot.folders import MANIFEST, begun, rotate, snapshot_name, snapshots

NAME = "20261121T150102.123456Z"


def test_names_are_utc_and_sort() -> None:
    assert snapshot_name(datetime(2026, 11, 21, 15, 1, 2, 123456, UTC)) == NAME


def test_a_snapshot_appears_when_it_is_whole(tmp_path: Path) -> None:
    with begun(tmp_path, NAME) as place:
        (place / MANIFEST).write_text("{}")
        assert snapshots(tmp_path) == []
    assert [each.name for each in snapshots(tmp_path)] == [NAME]


def test_a_lost_run_leaves_nothing_that_counts_and_the_next_cleans_up(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), begun(tmp_path, NAME):
        raise RuntimeError
    assert list(tmp_path.glob("*2026*")) == []
    (tmp_path / ".unfinished-killed").mkdir()
    with begun(tmp_path, NAME) as place:
        (place / MANIFEST).write_text("{}")
    assert not (tmp_path / ".unfinished-killed").exists()


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with begun(tmp_path, NAME) as place:
        (place / MANIFEST).write_text("{}")
        with pytest.raises(JobError, match="another snapshot is being written"), begun(tmp_path, "other"):
            pass


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JobError, match=r"cannot write to .*file: "), begun(tmp_path / "file", NAME):
        pass


def test_rotation_keeps_the_newest_and_what_is_not_ours(tmp_path: Path) -> None:
    for day in range(1, 6):
        folder = tmp_path / f"2026110{day}T000000.000000Z"
        folder.mkdir()
        if day != 2:
            (folder / MANIFEST).write_text("{}")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / MANIFEST).write_text("{}")
    assert [each.name[:8] for each in rotate(tmp_path, 2)] == ["20261101", "20261103"]
    assert sorted(each.name[:8] for each in tmp_path.iterdir()) == ["20261102", "20261104", "20261105", "mine"]
    assert rotate(tmp_path, 2) == []
