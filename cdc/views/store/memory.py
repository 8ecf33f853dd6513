"""A store in this process: for tests, and for programs that want a view for as long as they run.

``sortedcontainers`` sorts it, which is plain Python: no server, no disk, no compiler.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Final

from sortedcontainers import SortedDict

from cdc.base.errors import StoreRefused, StoreUnavailable
from cdc.views.store.port import Answer, Item, Key, StoreSize, StoreSnapshot, Transaction


class Contents:
    """The rows of stores in memory. Several stores may share them: a writer, and others beside or after it."""

    def __init__(self) -> None:
        self.guard: Final = threading.RLock()
        """Held while a query runs, and while a commit is applied."""
        self.spaces: Final[dict[str, SortedDict[bytes, bytes]]] = {}
        self.version = 0
        self.bytes = 0
        self.writer: MemoryStore | None = None


class MemoryStore:
    """A ``Store`` in memory.

    Args:
        contents: the contents of another store, to share them; new ones unless given.
    """

    def __init__(self, contents: Contents | None = None) -> None:
        self.contents: Final = contents or Contents()
        self._open: _MemoryTransaction | None = None

    def lock(self) -> bool:
        """Becomes the only writer until ``close``; returns False while another store is."""
        with self.contents.guard:
            if self.contents.writer is None:
                self.contents.writer = self
            return self.contents.writer is self

    def begin(self) -> Transaction:
        """Begins a transaction; one at a time, after ``lock``."""
        if self.contents.writer is not self:
            raise StoreRefused(
                "the store in memory was not locked before it was written",
                remedy="report it with the log: this is a bug in cdc; nothing was written",
            )
        self._open = _MemoryTransaction(self.contents)
        return self._open

    def read(self, query: Callable[[StoreSnapshot], Answer]) -> Answer:
        """Runs a query; commits wait meanwhile."""
        with self.contents.guard:
            return query(_MemorySnapshot(self.contents))

    def version(self) -> int:
        """Returns the number of the last commit."""
        return self.contents.version

    def size(self) -> StoreSize:
        """Returns the bytes of keys and values, without Python's own overhead."""
        return StoreSize(0, self.contents.bytes)

    def close(self) -> None:
        """Forgets an open transaction, and lets another store write."""
        if self._open is not None:
            self._open.abort()
        with self.contents.guard:
            if self.contents.writer is self:
                self.contents.writer = None


class _MemorySnapshot:
    def __init__(self, contents: Contents) -> None:
        self._spaces = contents.spaces
        self.version = contents.version

    def get(self, space: str, keys: Sequence[Key]) -> list[bytes | None]:
        entries: Mapping[bytes, bytes] = self._spaces.get(space, {})
        return [entries.get(key.order) for key in keys]

    def scan(
        self, space: str, start: bytes = b"", stop: bytes | None = None, limit: int = 1000, *, backwards: bool = False
    ) -> list[Item]:
        entries = self._spaces.get(space)
        if entries is None or (stop is not None and stop <= start):
            return []
        orders = entries.irange(start, stop, inclusive=(True, False), reverse=backwards)
        return [Item(Key(order, b""), entries[order]) for order in islice(orders, max(limit, 0))]

    def count(self, space: str) -> int:
        return len(self._spaces.get(space, ()))


class _SpaceChanges:
    """The changes to one space in one transaction. None stands for a deleted entry."""

    def __init__(self) -> None:
        self.is_dropped = False
        self.entries: dict[bytes, bytes | None] = {}


class _MemoryTransaction:
    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._changes: dict[str, _SpaceChanges] | None = {}
        self.version = contents.version + 1

    def get(self, space: str, keys: Sequence[Key]) -> list[bytes | None]:
        changes = self._of(space)
        old: Mapping[bytes, bytes] = {} if changes.is_dropped else self._contents.spaces.get(space, {})
        new = changes.entries
        return [new[key.order] if key.order in new else old.get(key.order) for key in keys]

    def put(self, space: str, items: Sequence[Item]) -> None:
        self._of(space).entries.update((item.key.order, item.value) for item in items)

    def delete(self, space: str, keys: Sequence[Key]) -> None:
        self._of(space).entries.update((key.order, None) for key in keys)

    def drop(self, space: str) -> None:
        changes = self._of(space)
        changes.is_dropped = True
        changes.entries.clear()

    def commit(self) -> int:
        changes = self._still_open()
        with self._contents.guard:
            for space, of_space in changes.items():
                self._apply(space, of_space)
            self._contents.version = self.version
        self._changes = None
        return self.version

    def abort(self) -> None:
        self._changes = None

    def _apply(self, space: str, changes: _SpaceChanges) -> None:
        contents = self._contents
        if changes.is_dropped and (old := contents.spaces.pop(space, None)) is not None:
            contents.bytes -= sum(len(order) + len(value) for order, value in old.items())
        entries = contents.spaces.setdefault(space, SortedDict())
        for order, value in changes.entries.items():
            before = entries.get(order)
            if before is not None:
                contents.bytes -= len(order) + len(before)
            if value is not None:
                contents.bytes += len(order) + len(value)
                entries[order] = value
            elif before is not None:
                del entries[order]

    def _of(self, space: str) -> _SpaceChanges:
        return self._still_open().setdefault(space, _SpaceChanges())

    def _still_open(self) -> dict[str, _SpaceChanges]:
        if self._changes is None:
            raise StoreUnavailable(
                "the transaction of the store in memory has ended; begin another one",
                remedy="cdc opens the store again and retries by itself",
            )
        return self._changes
