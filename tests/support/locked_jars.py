"""Jars that tests and benchmarks run, as a lock file names them; fetched once per user."""

from __future__ import annotations

import hashlib
from pathlib import Path

from cdc.lab.stack.artefacts import fetch, read_lock
from cdc.lab.stack.cache import Say, cache_dir, make_once, silent


def locked_jars(lock: Path, *, say: Say = silent, instead: str = "leave out this test") -> Path:
    """Returns the directory with the jars of a lock.

    Args:
        lock: as ``read_lock`` reads it.
        say: called with the progress of a download.
        instead: the end of a remedy, "…, or …": what to do without the download.
    """
    locked = read_lock(lock)

    def make(directory: Path) -> None:
        libs = directory / "libs"
        libs.mkdir()
        fetch(locked, libs, what=lock.stem, instead=instead, say=say, download=None)

    digest = hashlib.sha256(lock.read_bytes()).hexdigest()[:12]
    return make_once(cache_dir() / f"{lock.stem}-jars-{digest}", make) / "libs"
