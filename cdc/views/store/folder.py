"""A folder that holds a store: whether it is one of ours, and who writes it.

``cdc-store.json`` says what the folder is, so that no program fills or deletes another one's.
``writer.lock`` is locked by the process that writes; the kernel lets the lock go with the process.
``damaged.json`` names a data file that did not hold what was written, for all who have it open: nobody is answered from
that file any more, and the process that writes deletes it.
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
"""Of the folder: how entries lie in ``data.mdb``."""

_MARK: Final = "cdc-store.json"
_DAMAGE: Final = "damaged.json"
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

    def damage(self, inode: int) -> str:
        """What is wrong with the data file of that inode; empty as long as nobody has found anything."""
        try:
            told = json.loads((self.path / _DAMAGE).read_bytes())
            return str(told["reason"]) if told["inode"] == inode else ""
        except FileNotFoundError:
            return ""
        except (OSError, ValueError, KeyError, TypeError) as error:
            return f"{_DAMAGE} cannot be read: {error}"

    def tell_damage(self, inode: int, reason: str) -> None:
        """Tell everybody. Who may only read here refuses to answer from the file all the same."""
        new = self.path / f"{_DAMAGE}.{os.getpid()}"  # several may find it at once
        with suppress(OSError):
            new.write_text(json.dumps({"inode": inode, "reason": reason}) + "\n")
            new.replace(self.path / _DAMAGE)

    def empty(self) -> None:
        """Delete the data, under the lock; who has it open keeps what it has until it looks again."""
        try:
            # The mark last: a process that is killed in between must not leave damaged data without it.
            for each in (self.data, self.path / "lock.mdb", self.path / _DAMAGE):
                each.unlink(missing_ok=True)
        except OSError as error:
            raise self.refused(error) from error

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
