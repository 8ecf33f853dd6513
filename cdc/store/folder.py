"""A folder that holds a store: whether it is one of ours, and who writes it.

``cdc-store.json`` says what the folder is, so that no program fills or deletes another one's.
``writer.lock`` is locked by the process that writes; the kernel lets the lock go with the process.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Final

from cdc.errors import StoreRefused

FORMAT: Final = 2
"""Of the folder: how entries lie in ``data.mdb``."""

_MARK: Final = "cdc-store.json"
_LOCK: Final = "writer.lock"


class StoreFolder:
    """A folder on a disk of this machine; nothing is touched until ``lock``.

    Args:
        path: it need not be there yet.
    """

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        self.data: Final = path / "data.mdb"
        self._lock: int | None = None

    def is_marked(self) -> bool:
        """Whether a store was ever made here.

        Raises:
            StoreRefused: by another program, or by a newer version of this one.
        """
        try:
            text = (self.path / _MARK).read_bytes()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self.refused(error) from error
        try:
            made_as = json.loads(text)["format"]
        except (ValueError, KeyError, TypeError):
            made_as = None
        if made_as != FORMAT:
            raise StoreRefused(
                f"the store in {self.path} is of format {made_as}, this program knows {FORMAT}",
                remedy="use the version of cdc that made it, or delete the folder: it is filled from the topics again",
            )
        return True

    def lock(self) -> bool:
        """Make the folder if it is not there, and become the one who writes; False when another one is.

        Raises:
            StoreRefused: the folder holds something else, or we may not write there.
        """
        if self._lock is not None:
            return True
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._refuse_strangers()
            lock = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                return False
            self._lock = lock
            self._mark()
        except OSError as error:
            raise self.refused(error) from error
        return True

    def unlock(self) -> None:
        """Let another one write."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def refused(self, error: OSError) -> StoreRefused:
        """What to tell of an error of the file system."""
        return StoreRefused(
            f"the store in {self.path} cannot be used: {error.strerror or error}",
            remedy=f"let this process read and write {self.path}, or name another folder",
        )

    def _refuse_strangers(self) -> None:
        if self.is_marked():
            return
        found = sorted({each.name for each in self.path.iterdir()} - {_LOCK, f"{_MARK}.new"})
        if found:
            raise StoreRefused(
                f"{self.path} is not a store, and not empty: it holds {found[0]}",
                remedy="name an empty folder, or one that is not there yet",
            )

    def _mark(self) -> None:
        """Under the lock; in one step, so that nobody ever reads half of it."""
        if not self.is_marked():
            new = self.path / f"{_MARK}.new"
            new.write_text(json.dumps({"made_by": "cdc view", "format": FORMAT}) + "\n")
            new.replace(self.path / _MARK)
