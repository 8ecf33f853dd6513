"""A store in a folder: LMDB, one file that any number of processes read while one writes it.

Readers never wait for the writer, nor the writer for readers. A reader that is killed leaves nothing to clean up. The
folder must be on a disk of this machine: LMDB's locks do not work over a network.

LMDB keeps up to 131,071 changed pages of a transaction in memory (512 MB with pages of 4 KB); further pages go to disk
before the commit. A row of more than half a page counts as one page, however large it is: a transaction with 20,000
rows of 100 KB takes 2 GB.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import lmdb

from cdc.base.errors import StoreDamaged, StoreRefused, StoreUnavailable
from cdc.views.store.folder import StoreFolder
from cdc.views.store.lmdb_check import problem_of
from cdc.views.store.lmdb_environment import LmdbEnvironment, give_back, shared
from cdc.views.store.lmdb_spaces import LmdbSnapshot, SpaceWriter
from cdc.views.store.port import Answer, Item, Key, StoreSize, StoreSnapshot, Transaction

Result = TypeVar("Result")


class LmdbStore:
    """A ``Store`` in a folder.

    Args:
        path: the folder. It is made when the store is first locked, and reads as empty before.
        read_only: whether to refuse ``lock``.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self._folder: Final = StoreFolder(path)
        self._read_only: Final = read_only
        self._environment: LmdbEnvironment | None = shared(self._folder)
        self._writer: ThreadPoolExecutor | None = None
        self._open: _Transaction | None = None

    def lock(self) -> bool:
        """Becomes the only writer until ``close``; returns False while another process is."""
        if self._read_only:
            raise StoreRefused(
                f"the store in {self._folder.path} was opened for reading only",
                remedy="let the process that fills the view write: cdc serve without --no-feed",
            )
        if not self._folder.lock():
            return False
        if self._writer is None:
            self._still_open().open_to_write()
            self._writer = ThreadPoolExecutor(1, thread_name_prefix="store-writer")
        return True

    def begin(self) -> Transaction:
        """Begins a transaction; one at a time, after ``lock``."""
        if self._writer is None:
            raise StoreRefused(
                f"the store in {self._folder.path} was not locked before it was written",
                remedy="report it with the log: this is a bug in cdc; nothing was written",
            )
        self._open = _Transaction(self._still_open(), self._writer)
        return self._open

    def read(self, query: Callable[[StoreSnapshot], Answer]) -> Answer:
        """Runs a query once, on the store as the last commit left it."""
        return self._still_open().read(query)

    def version(self) -> int:
        """Returns the number of the last commit."""
        return self._still_open().read(_version)

    def size(self) -> StoreSize:
        """Returns the size on disk. What readers map is in the kernel's cache, not in the memory of any process."""
        try:
            return StoreSize(self._folder.data.stat().st_blocks * 512, 0)
        except FileNotFoundError:
            return StoreSize(0, 0)

    def close(self) -> None:
        """Closes the store, and forgets an open transaction."""
        if self._open is not None:
            self._open.abort()
        if self._writer is not None:
            self._writer.shutdown()
            self._writer = None
        if self._environment is not None:
            give_back(self._environment)
            self._environment = None
        self._folder.unlock()

    def _still_open(self) -> LmdbEnvironment:
        if self._environment is None:
            raise StoreUnavailable(
                f"the store in {self._folder.path} is closed",
                remedy="cdc opens the store again and retries by itself",
            )
        return self._environment


def look_through(path: Path) -> str:
    """Reads the whole store in a folder. Returns what is wrong with it, and reports it to all who have it open.

    Raises:
        StoreUnavailable: the store could not be checked.
    """
    folder = StoreFolder(path)
    if not (folder.is_marked() and folder.data.exists()):
        return ""
    inode = folder.data.stat().st_ino
    if reason := problem_of(path):
        folder.tell_damage(inode, reason)
    return reason


class _Transaction:
    """Runs everything in one thread: LMDB's write lock belongs to the thread that took it."""

    def __init__(self, environment: LmdbEnvironment, thread: ThreadPoolExecutor) -> None:
        self._environment = environment
        self._thread = thread
        self._lmdb: lmdb.Transaction[bytes] | None = None
        self._spaces = thread.submit(self._begin).result()
        self.version: Final = self._spaces.version

    def get(self, space: str, keys: Sequence[Key]) -> list[bytes | None]:
        return self._run(lambda: self._spaces.get(space, keys))

    def put(self, space: str, items: Sequence[Item]) -> None:
        self._run(lambda: self._spaces.put(space, items))

    def delete(self, space: str, keys: Sequence[Key]) -> None:
        self._run(lambda: self._spaces.delete(space, keys))

    def drop(self, space: str) -> None:
        self._run(lambda: self._spaces.drop(space))

    def commit(self) -> int:
        return self._run(self._commit)

    def abort(self) -> None:
        self._thread.submit(self._end).result()

    def _begin(self) -> SpaceWriter:
        self._lmdb = self._environment.write()
        return self._attempt(partial(SpaceWriter, self._lmdb))

    def _commit(self) -> int:
        assert self._lmdb is not None
        self._spaces.finish()
        self._lmdb.commit()
        self._environment.lengthen()
        self._end()
        return self.version

    def _run(self, work: Callable[[], Result]) -> Result:
        return self._thread.submit(self._attempt, work).result()

    def _attempt(self, work: Callable[[], Result]) -> Result:
        if self._lmdb is None:
            raise StoreUnavailable(
                "the transaction of the store has ended; begin another one",
                remedy="cdc opens the store again and retries by itself",
            )
        try:
            return work()
        except BaseException as error:
            self._end()
            if isinstance(error, lmdb.MapFullError):
                self._environment.grow()  # the next attempt finds more room
            if isinstance(error, (lmdb.Error, StoreDamaged)):
                raise self._environment.translated(error) from error
            raise

    def _end(self) -> None:
        if self._lmdb is not None:
            self._lmdb.abort()  # after a commit it does nothing
            self._lmdb = None
            self._environment.leave()


def _version(snapshot: LmdbSnapshot) -> int:
    return snapshot.version
