"""Holds the folder of a lake, so that one mirror at a time writes there."""

from __future__ import annotations

import fcntl
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

from cdc.spark.errors import JobError


def hold(root: Path, folders: Iterable[str] = ()) -> TextIO:
    """Makes the folder, with these in it, and locks it until the returned file is closed, or this process ends.

    Raises:
        JobError: the folder is not writable, or another process holds it.
    """
    try:
        for folder in ("", *folders):
            (root / folder).mkdir(parents=True, exist_ok=True)
        lock = (root / ".lock").open("w")
    except OSError as error:
        raise JobError(f"cannot write to {root}: {error.strerror}", remedy="name another folder") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        if isinstance(error, BlockingIOError):
            raise JobError(f"another process mirrors into {root}", remedy="stop it first") from error
        raise JobError(f"cannot lock {root}: {error.strerror}", remedy="name another folder") from error
    return lock
