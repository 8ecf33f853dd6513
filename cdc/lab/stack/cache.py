"""The directory for downloads and for records of running servers: one per user, or ``CDC_CACHE_DIR``."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import platformdirs
from filelock import FileLock

from cdc.base.errors import StackError

_APPLICATION = "cdc-bridge"

Say = Callable[[str], None]
"""Receives progress messages, each one line, for a person who waits."""


def silent(_line: str) -> None:
    """The ``Say`` of a caller who wants no messages."""


def cache_dir() -> Path:
    """Returns the user's own cache directory, and creates it if it is missing.

    Raises:
        StackError: the directory cannot be created or written.
    """
    given = os.environ.get("CDC_CACHE_DIR")
    path = Path(given).absolute() if given else platformdirs.user_cache_path(_APPLICATION)
    try:
        path.mkdir(parents=True, exist_ok=True)
        writable = os.access(path, os.W_OK | os.X_OK)
    except OSError:
        writable = False
    if not writable:
        raise StackError(
            f"the cache directory {path} cannot be written", remedy="set CDC_CACHE_DIR to a directory of your own"
        )
    return path


def readable_dir() -> Path:
    """Returns a cache directory that other accounts can read, from which servers start that must not run as root."""
    given = os.environ.get("CDC_CACHE_DIR")
    return Path(given).absolute() if given else platformdirs.site_cache_path(_APPLICATION)


def make_once(target: Path, make: Callable[[Path], None]) -> Path:
    """Returns ``target``; if it does not exist, one process makes it, whole or not at all.

    ``make`` fills another directory beside the target, which is renamed to the target only when it is complete.
    """
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(target.with_name(f"{target.name}.lock")):
        if target.exists():
            return target
        unfinished = target.with_name(f"{target.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        make(unfinished)
        unfinished.replace(target)
    return target
