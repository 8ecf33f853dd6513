"""A folder of snapshots: one job at a time, whole snapshots only, the oldest rotated away.

A snapshot is named by the UTC time at which it was begun, so that names sort. It grows in a folder whose name begins
with a dot and gets its own name when its manifest is written; what a killed job left is removed by the next one.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cdc.spark.errors import JobError

MANIFEST: Final = "manifest.json"
_LOCK: Final = ".cdc-snapshot.lock"
_UNFINISHED: Final = ".unfinished-"
_NAME: Final = re.compile(r"[0-9]{8}T[0-9]{6}\.[0-9]{6}Z")


def snapshot_name(now: datetime) -> str:
    """``20261121T150102.123456Z``."""
    return now.astimezone(UTC).strftime("%Y%m%dT%H%M%S.%fZ")


@contextmanager
def begun(folder: Path, name: str) -> Iterator[Path]:
    """A folder to write into; becomes ``folder/name`` when the block ends well and it holds a manifest, else goes.

    Raises:
        JobError: the folder cannot be written, or another job writes into it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise JobError(f"{folder} cannot be written: {error.strerror}", remedy="choose another folder") from error
    try:
        _take(lock, folder)
        for left in folder.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(left)
        place = folder / f"{_UNFINISHED}{name}"
        place.mkdir()
        try:
            yield place
            assert (place / MANIFEST).is_file()
            place.rename(folder / name)
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
    finally:
        os.close(lock)


def snapshots(folder: Path) -> list[Path]:
    """Whole snapshots, the oldest first: folders with our kind of name and a manifest."""
    return sorted(each for each in folder.iterdir() if _NAME.fullmatch(each.name) and (each / MANIFEST).is_file())


def rotate(folder: Path, keep: int) -> list[Path]:
    """Remove all but the newest ``keep``; returns those that went."""
    gone = snapshots(folder)[:-keep]
    for each in gone:
        # Without its manifest a folder is no snapshot any more, should this be cut short.
        (each / MANIFEST).unlink()
        shutil.rmtree(each)
    return gone


def _take(lock: int, folder: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise JobError(
            f"another snapshot is being written into {folder}", remedy="wait for it, or choose another folder"
        ) from error
