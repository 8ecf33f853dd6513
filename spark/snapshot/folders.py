"""Manages a folder of snapshots: one job writes at a time, only whole snapshots appear, the oldest are removed.

A snapshot is named after the UTC time at which it began, so names sort by age. It is written in a folder whose name
begins with a dot, and renamed once its manifest is there. The next job removes what a killed job left.
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
    """Returns a name like ``20261121T150102.123456Z``."""
    return now.astimezone(UTC).strftime("%Y%m%dT%H%M%S.%fZ")


@contextmanager
def begun(folder: Path, name: str) -> Iterator[Path]:
    """Yields a folder to write into, which becomes ``folder/name`` if the block succeeds and is removed if it fails.

    The block must leave a manifest in it.

    Raises:
        JobError: the folder is not writable, or another job is writing into it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise JobError(f"cannot write to {folder}: {error.strerror}", remedy="choose another folder") from error
    try:
        _take(lock, folder)
        # Only the holder of the lock removes these: without it, one might belong to a job that still writes.
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
    """Returns the whole snapshots, oldest first: folders with a snapshot's name and a manifest."""
    return sorted(each for each in folder.iterdir() if _NAME.fullmatch(each.name) and (each / MANIFEST).is_file())


def rotate(folder: Path, keep: int) -> list[Path]:
    """Removes all snapshots but the newest ``keep``, and returns the removed ones."""
    gone = snapshots(folder)[:-keep]
    for each in gone:
        # The manifest goes first: if this is interrupted, nobody takes a half-removed folder for a snapshot.
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
