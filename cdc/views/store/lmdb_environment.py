"""The one LMDB environment that a process may have of a folder, shared by all stores that the process opens there.

LMDB forbids opening a file twice in one process. It also forbids changing the map's size or closing an environment
while the process has a transaction open in it. So stores of one folder share an environment, transactions are counted,
and a thread that has to change the environment waits until there are none.

A process that forks must open its stores afterwards: LMDB's locks do not survive a fork.

LMDB trusts its file. Three kinds of damage are reported to every process (``StoreFolder.tell_damage``): checksums that
do not fit (``lmdb_spaces.py``), pages that LMDB itself stumbles over, and a file that has become shorter. From then on
nobody reads that file, and the writer begins an empty one. Reading past the end of a mapped file raises SIGBUS, so the
length is checked before each transaction; LMDB never makes the file shorter.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import lmdb
import structlog

from cdc.base.errors import CdcError, StoreDamaged, StoreFull, StoreUnavailable
from cdc.views.store.folder import StoreFolder
from cdc.views.store.lmdb_check import DAMAGE, length_of, problem_of
from cdc.views.store.lmdb_spaces import LmdbSnapshot, SpacesThen
from cdc.views.store.port import Answer

MOST_MAP: Final = 1 << 40
"""Largest map. A map takes addresses, not memory and not disk, so it is made as large as the disk. It only has to grow
if the disk is larger than this or grows, or if the process's addresses are limited."""

LEAST_MAP: Final = 1 << 26
_MAX_READERS: Final = 1024
"""Readers at the same moment, in all processes together; each takes 64 bytes in the lock file."""

LOOK_S: Final = 1.0
"""How often to check that the folder is still the one that was opened. Somebody may have deleted it to begin anew."""

_ATTEMPTS: Final = 5
"""How often to begin a read: another process may have enlarged the map, or killed readers may hold all places."""

_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors that mean a full disk; LMDB reports EIO when the disk took only a part of a write."""

_sound: Final[set[tuple[Path, int]]] = set()
"""Data files that this process found undamaged before it wrote them. Once is enough: each value is checked as well."""

_open: Final[dict[tuple[int, Path], LmdbEnvironment]] = {}
_open_guard: Final = threading.Lock()

log = structlog.get_logger("cdc.store")


class LmdbEnvironment:
    """What this process has open of a folder. Only ``shared`` makes one."""

    def __init__(self, folder: StoreFolder) -> None:
        self._folder: Final = folder
        self._guard: Final = threading.Lock()
        self._state: Final = threading.Condition(self._guard)
        self._transactions = 0
        self._is_changing = False
        self._lmdb: lmdb.Environment | None = None
        self._is_writable = False
        self._inode = 0
        self._file = -1
        self._size = 0
        self._look_at = 0.0
        self._spaces: SpacesThen | None = None
        self.users = 0

    def read(self, query: Callable[[LmdbSnapshot], Answer]) -> Answer:
        """Runs a query in a transaction of its own."""
        for attempt in range(_ATTEMPTS):
            if self._lmdb is None or time.monotonic() >= self._look_at:
                self._look()
            with self._guard:
                self._enter()
            try:
                if self._lmdb is None:
                    return query(LmdbSnapshot(None, None))
                self._check_size()
                try:
                    transaction = self._lmdb.begin()
                except (lmdb.MapResizedError, lmdb.ReadersFullError) as error:
                    if attempt == _ATTEMPTS - 1:
                        raise
                    trouble: lmdb.Error = error
                else:
                    with transaction:
                        return query(LmdbSnapshot(transaction, self._spaces_in(transaction)))
            except (lmdb.Error, StoreDamaged) as error:
                raise self.translated(error) from error
            finally:
                self.leave()
            self._mend(trouble)
        raise AssertionError("the last attempt raises")

    def _spaces_in(self, transaction: lmdb.Transaction[bytes]) -> SpacesThen:
        spaces = self._spaces
        if spaces is None or spaces.commit != transaction.id():
            spaces = self._spaces = SpacesThen(transaction)
        return spaces

    def write(self) -> lmdb.Transaction[bytes]:
        """Begins a write transaction, in the thread that will write and commit; afterwards call ``leave``.

        Raises:
            StoreUnavailable: the folder was deleted after it was opened.
            StoreDamaged: a process has found that the file does not hold what was written.
        """
        if self._lmdb is None or not self._is_writable or self._inode != self._inode_now():
            raise StoreUnavailable(
                f"the store in {self._folder.path} was deleted or replaced while it was open",
                remedy="cdc opens the new one by itself; leave the folder alone while a process uses it",
            )
        self._refuse_damaged(self._inode)
        self._lmdb.reader_check()  # otherwise the pages that a killed reader saw would never be free again
        info = self._lmdb.info()  # grow at half the map: a transaction that fills it up would fail
        if info["last_pgno"] * self._lmdb.stat()["psize"] * 2 > info["map_size"]:
            self.grow()
        with self._state:
            self._enter()
        try:
            self._check_size()
            return self._lmdb.begin(write=True)
        except (lmdb.Error, StoreDamaged) as error:
            self.leave()
            raise self.translated(error) from error

    def leave(self) -> None:
        """Counts a transaction that has ended."""
        with self._guard:
            self._transactions -= 1
            if self._is_changing:
                self._state.notify_all()

    def lengthen(self) -> None:
        """Gives the file all of its pages, including those that LMDB left out. Call it after a commit, in that thread.

        A process that opens the file then sees by its length that nothing is cut off.
        """
        if self._lmdb is not None and os.fstat(self._file).st_size < (length := length_of(self._lmdb)):
            with suppress(OSError):  # a file that stays shorter is only checked in full when it is opened next
                os.ftruncate(self._file, length)

    def open_to_write(self) -> None:
        """Opens the folder, which must be locked, for ``write``. Damaged data is deleted and read again."""
        if reason := self._damage():
            log.error(
                "the store is damaged: filling it again from the topics",
                store=str(self._folder.path),
                reason=reason,
                remedy="check the disk: it does not return what was written to it",
            )
            self._folder.empty()
        with self._alone():
            if not (self._is_writable and self._lmdb is not None and self._inode == self._inode_now()):
                self._close()
                self._open_it(read_only=False)

    def grow(self) -> None:
        """Doubles the map. The next transaction uses it, in other processes too."""
        with self._alone():
            if self._lmdb is not None:
                self._lmdb.set_mapsize(self._lmdb.info()["map_size"] * 2)

    def close(self) -> None:
        """Closes the environment, when no store uses it any more."""
        with self._alone():
            self._close()

    def translated(self, error: lmdb.Error | StoreDamaged) -> CdcError:
        """Translates an error of LMDB into one of ours, and reports damage to all processes that have the file open."""
        if isinstance(error, DAMAGE):
            self._look_at = 0.0
            self._folder.tell_damage(self._inode or self._inode_now(), str(error))
            return self._damaged(str(error))
        code, path = error.code, self._folder.path
        if isinstance(error, lmdb.DiskError) or code in _FULL:
            free = shutil.disk_usage(path).free if path.exists() else 0
            return StoreFull(
                f"the disk cannot take what the store in {path} writes ({error}); {free // 2**20:,} MB are free",
                remedy="make room on that disk; until then answers come from what is stored, then filling goes on",
            )
        if isinstance(error, lmdb.MapFullError):
            return StoreUnavailable(
                f"the store in {path} has outgrown its map, which was enlarged: try again",
                remedy="cdc tries again by itself, with the larger map",
            )
        if code in (errno.EACCES, errno.EPERM, errno.EROFS):
            return self._folder.refused(OSError(code, os.strerror(code)))
        if isinstance(error, lmdb.PanicError):
            self._is_writable = False  # LMDB could not write its first pages, and has to be opened again
        return StoreUnavailable(
            f"the store in {path} cannot be used now: {error}",
            remedy="cdc tries again by itself; if that does not help: is the folder's disk there, and writable?",
        )

    def _look(self) -> None:
        """Opens the folder's file if it is new, or has replaced the one that is open."""
        self._refuse_damaged(self._inode_now())
        self._look_at = time.monotonic() + LOOK_S
        if self._inode == self._inode_now():
            return
        with self._alone():
            # Asked again: another thread may have opened the file meanwhile.
            if self._inode != self._inode_now() or self._lmdb is None:
                self._close()
                if self._folder.is_marked() and self._inode_now():
                    self._open_it(read_only=True)

    def _mend(self, trouble: lmdb.Error) -> None:
        with self._alone():
            if self._lmdb is None:
                return
            if isinstance(trouble, lmdb.MapResizedError):
                self._lmdb.set_mapsize(0)
            else:
                self._lmdb.reader_check()

    def _open_it(self, *, read_only: bool) -> None:
        try:
            self._lmdb = _opened(self._folder.path, read_only=read_only)
            self._file = os.open(self._folder.data, (os.O_RDONLY if read_only else os.O_RDWR) | os.O_CLOEXEC)
            found = os.fstat(self._file)
            self._is_writable, self._inode, self._size = not read_only, found.st_ino, found.st_size
            if found.st_size < length_of(self._lmdb) and (reason := problem_of(self._folder.path)):
                raise StoreDamaged(reason)
        except OSError as error:
            raise self._folder.refused(error) from error
        except (lmdb.Error, StoreDamaged) as error:
            known = self.translated(error)
            self._close()
            raise known from error

    def _close(self) -> None:
        if self._lmdb is not None:
            self._lmdb.close()
            self._lmdb, self._spaces = None, None
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        self._inode = 0

    def _damage(self) -> str:
        """Returns what is wrong with the data, which is checked once; empty if it is sound."""
        inode = self._inode_now()
        if not inode or (self._folder.path, inode) in _sound:
            return self._folder.damage(inode)
        if not (reason := self._folder.damage(inode) or problem_of(self._folder.path)):
            _sound.add((self._folder.path, inode))
        return reason

    def _refuse_damaged(self, inode: int) -> None:
        if reason := self._folder.damage(inode):
            raise self._damaged(reason)

    def _damaged(self, reason: str) -> StoreDamaged:
        return StoreDamaged(f"the store in {self._folder.path} is damaged: {reason}")

    def _check_size(self) -> None:
        """Makes sure that the file has not become shorter.

        Raises:
            StoreDamaged: it has.
        """
        known = self._size  # read it first: another thread may store a greater size while the file grows
        size = os.fstat(self._file).st_size
        if size < known:
            raise StoreDamaged(f"data.mdb has {size:,} bytes, but had {known:,} before")
        self._size = size

    def _inode_now(self) -> int:
        """The inode of the data file; 0 while there is nothing to open."""
        try:
            found = self._folder.data.stat()
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise self._folder.refused(error) from error
        return found.st_ino if found.st_size else 0

    def _enter(self) -> None:
        while self._is_changing:
            self._state.wait()
        self._transactions += 1

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with self._state:
            while self._is_changing:
                self._state.wait()
            self._is_changing = True  # first, so that no new transaction begins while the others end
            while self._transactions:
                self._state.wait()
        try:
            yield
        finally:
            with self._state:
                self._is_changing = False
                self._state.notify_all()


def shared(folder: StoreFolder) -> LmdbEnvironment:
    """Returns this process's environment of the folder; return it with ``give_back``."""
    with _open_guard:
        place = (os.getpid(), folder.path.resolve())
        environment = _open.setdefault(place, LmdbEnvironment(folder))
        environment.users += 1
        return environment


def give_back(environment: LmdbEnvironment) -> None:
    """Closes the environment if no other store uses it."""
    with _open_guard:
        environment.users -= 1
        if not environment.users:
            for place in [place for place, each in _open.items() if each is environment]:
                del _open[place]
            environment.close()


def _opened(path: Path, *, read_only: bool) -> lmdb.Environment:
    size = 0 if read_only else max(LEAST_MAP, min(MOST_MAP, shutil.disk_usage(path).total))
    while True:
        try:
            return lmdb.open(
                str(path),
                map_size=size,  # 0: the size that the writer set last
                readonly=read_only,
                create=False,
                max_readers=_MAX_READERS,
                max_spare_txns=1,
            )
        except lmdb.MemoryError:  # the process may not have that many addresses
            if size <= LEAST_MAP:
                raise
            size //= 2
