"""A folder that holds a store: whether it is one of ours, and who writes it.

``cdc-store.json`` says what the folder is, so that no program fills or deletes the folder of another.
``writer.lock`` is locked by the process that writes; the kernel releases the lock when the process ends.
``damaged.json`` names a data file that no longer holds what was written, for every process that has it open: none of
them answers from that file any more, and the process that writes deletes it.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from cdc.base.errors import StoreRefused

FORMAT: Final = 2
"""Format of the folder: how entries lie in ``data.mdb``."""

_MARK: Final = "cdc-store.json"
_DAMAGE: Final = "damaged.json"
_LOCK: Final = "writer.lock"


class StoreFolder:
    """A folder on a disk of this machine. Nothing is written before ``lock``.

    Args:
        path: the folder, which need not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        self.data: Final = path / "data.mdb"
        self._lock: int | None = None

    def is_marked(self) -> bool:
        """Whether a store was ever made here.

        Raises:
            StoreRefused: another program made the folder, or another version of this one.
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
                f"the store in {self.path} has format {made_as}, but this program reads format {FORMAT}",
                remedy="use the version of cdc that made it, or delete the folder: it is filled from the topics again",
            )
        return True

    def lock(self) -> bool:
        """Makes the folder if it does not exist, and becomes its writer; returns False while another process is.

        Raises:
            StoreRefused: the folder holds something else, or cannot be written.
        """
        if self._lock is not None:
            return True
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._refuse_strangers()  # before the lock file is made: leave the folder of another program as it is
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
        """Lets another process write."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def damage(self, inode: int) -> str:
        """Returns what is wrong with the data file of that inode; empty as long as no damage was found."""
        try:
            told = json.loads((self.path / _DAMAGE).read_bytes())
            return str(told["reason"]) if told["inode"] == inode else ""
        except FileNotFoundError:
            return ""
        except (OSError, ValueError, KeyError, TypeError) as error:
            return f"{_DAMAGE} cannot be read: {error}"

    def tell_damage(self, inode: int, reason: str) -> None:
        """Reports damage to all processes. One that may not write here still refuses to answer from the file itself."""
        new = self.path / f"{_DAMAGE}.{os.getpid()}"  # several processes may find damage at once
        with suppress(OSError):
            new.write_text(json.dumps({"inode": inode, "reason": reason}) + "\n")
            new.replace(self.path / _DAMAGE)

    def empty(self) -> None:
        """Deletes the data, under the lock. Processes that have it open keep what they have until they look again."""
        try:
            # The damage mark last: a process that is killed in between must not leave damaged data without it.
            for each in (self.data, self.path / "lock.mdb", self.path / _DAMAGE):
                each.unlink(missing_ok=True)
        except OSError as error:
            raise self.refused(error) from error

    def refused(self, error: OSError) -> StoreRefused:
        """Makes an error from an error of the file system."""
        return StoreRefused(
            f"the store in {self.path} cannot be used: {error.strerror or error}",
            remedy=f"give this process read and write access to {self.path}, or name another folder",
        )

    def _refuse_strangers(self) -> None:
        if self.is_marked():
            return
        found = sorted({each.name for each in self.path.iterdir()} - {_LOCK, f"{_MARK}.new"})
        if found:
            raise StoreRefused(
                f"{self.path} is not a store and is not empty: it holds {found[0]}",
                remedy="name an empty folder, or one that does not exist yet",
            )

    def _mark(self) -> None:
        """Marks the folder, under the lock and in one step, so that nobody reads half a mark."""
        if not self.is_marked():
            new = self.path / f"{_MARK}.new"
            new.write_text(json.dumps({"made_by": "cdc view", "format": FORMAT}) + "\n")
            new.replace(self.path / _MARK)
