"""What replicas in files have in common: the lock of the one sink, what it tells others, and rights to write there."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from cdc.sink.replica import Lack

NO_PLACE: Final = "create the folder that sink.url names, and let the sink's user write to it and to the file"
NO_ROOM: Final = "make room on the file's disk: the sink goes on by itself"
NO_MEMORY: Final = "give this machine more memory; cdc tries again by itself"
ANOTHER_FILE: Final = "name another file in sink.url, or move this one away: the sink fills a new one"


class SideLock:
    """The lock of the one sink that writes to a replica in a file: a lock on a file beside it.

    The system releases it when the process ends, however it ends. A lock on the replica itself would keep readers out.

    Args:
        replica: the replica's file. The one beside it is created at the first ``take`` and never removed, because a
            process that waits for its lock has it open.
        name: the name of the sink.
    """

    def __init__(self, replica: Path, name: str) -> None:
        self._path = replica.with_name(f"{replica.name}.{name}.lock")
        self._file: int | None = None

    def take(self, connection: sa.Connection | None = None) -> bool:  # noqa: ARG002 - of the protocol
        """Takes the lock until ``release``; returns False while another session has it.

        Raises:
            OSError: the file cannot be created or opened.
        """
        if self._file is not None:
            return True
        self._file = _locked(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), fcntl.LOCK_EX)
        return self._file is not None

    def check(self, connection: sa.Connection) -> None:
        """Does nothing: as long as the file is open, the system gives nobody else the lock."""

    def release(self) -> None:
        """Releases the lock if this session has it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def is_taken(self) -> bool:
        """Returns whether a session has the lock.

        To ask is to take it for a moment. A sink that begins in that moment is refused, and asks again.
        """
        try:
            found = _locked(os.open(self._path, os.O_RDONLY | os.O_CLOEXEC), fcntl.LOCK_SH)
        except FileNotFoundError:
            return False
        if found is None:
            return True
        os.close(found)
        return False


class StateFile:
    """The state of the running sink in a file beside the replica, for a database that one process at a time can open.

    Args:
        replica: the replica's file.
    """

    def __init__(self, replica: Path) -> None:
        self._replica = replica

    def write(self, name: str, state: Mapping[str, Any]) -> None:
        """Replaces what the sink of this name has told: a reader finds the old state or the new one."""
        path = self._path(name)
        new = path.with_suffix(".new")
        new.write_text(json.dumps(state))
        new.replace(path)

    def read(self, name: str) -> Mapping[str, Any] | None:
        """Returns what the sink of this name told last; None if nothing."""
        try:
            told: dict[str, Any] = json.loads(self._path(name).read_text())
        except FileNotFoundError:
            return None
        return told

    def _path(self, name: str) -> Path:
        return self._replica.with_name(f"{self._replica.name}.{name}.state")


def unwritable(path: Path) -> list[Lack]:
    """Returns which rights to a file and its folder are missing: databases make files of their own beside the file."""
    places = [path.parent, *([path] if path.exists() else [])]
    return [
        Lack(str(place), "may not be written", f"let the user that runs cdc sink write to {place}")
        for place in places
        if not os.access(place, os.W_OK)
    ]


def _locked(file: int, kind: int) -> int | None:
    """Returns the open file if its lock can be had at once; else closes it and returns None."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file
