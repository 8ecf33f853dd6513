"""The seam of stores: what a view needs from the place where it keeps its rows.

A store holds named *spaces*, each an ordered map from bytes to bytes. One writer changes any number of spaces in one
transaction. Any number of readers, in this process and in others, see the store as one commit left it, and never a mix
of two. Everything else (tables, generations, indexes, the journal) is built on that, in ``cdc.views.table``.

All stores pass one test class, ``tests/integration/views/store/contract.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

Answer = TypeVar("Answer")


class Key(NamedTuple):
    """The place of an entry in its space.

    ``order`` and ``text`` are each unique in a space: a store may keep an entry under either.

    Attributes:
        order: sorts the entries of a space, bytewise, however long it is. At least one byte.
        text: the name under which other programs find the entry, if the store lets them (a field of a Redis hash).
    """

    order: bytes
    text: bytes


class Item(NamedTuple):
    """An entry found by a scan. A store that does not keep ``key.text`` leaves it empty; ``get`` takes such keys."""

    key: Key
    value: bytes


class StoreSize(NamedTuple):
    """The size of a store.

    Attributes:
        disk_bytes: on this machine's disk; 0 if the store is not there.
        memory_bytes: in this process, or in the server; 0 if unknown.
    """

    disk_bytes: int
    memory_bytes: int


class StoreSnapshot(Protocol):
    """A store as one commit left it."""

    @property
    def version(self) -> int:
        """The number of that commit; 0 before the first."""

    def get(self, space: str, keys: Sequence[Key]) -> list[bytes | None]:
        """Returns the values of entries, None for each that does not exist. A space that does not exist is empty."""

    def scan(
        self, space: str, start: bytes = b"", stop: bytes | None = None, limit: int = 1000, *, backwards: bool = False
    ) -> list[Item]:
        """Returns up to ``limit`` entries with ``start <= key.order < stop``: the first of them in ascending order;
        with ``backwards``, the last of them in descending order."""

    def count(self, space: str) -> int:
        """Returns how many entries a space has, without counting them one by one."""


class Transaction(Protocol):
    """Changes that readers do not see before ``commit``.

    Calls must not overlap, but may come from different threads. A transaction may be larger than memory if each row is
    small. When a call raises, the transaction has ended and nothing of it is kept.
    """

    @property
    def version(self) -> int:
        """The number that this commit will have: greater than those of all commits before it."""

    def get(self, space: str, keys: Sequence[Key]) -> list[bytes | None]:
        """Returns the values of entries like ``StoreSnapshot.get``, including what this transaction wrote."""

    def put(self, space: str, items: Sequence[Item]) -> None:
        """Writes entries; those that exist are replaced."""

    def delete(self, space: str, keys: Sequence[Key]) -> None:
        """Deletes entries; ignores those that do not exist."""

    def drop(self, space: str) -> None:
        """Deletes a space with all its entries."""

    def commit(self) -> int:
        """Makes all changes visible and durable at once; returns the new version.

        Raises:
            StoreUnavailable: nothing is committed, or the outcome is unknown: open the store again.
            StoreFull: nothing is committed; there is no room.
            StoreRefused: nothing is committed, and trying again is of no use: another writer took over.
        """

    def abort(self) -> None:
        """Forgets the changes. Does nothing after ``commit``."""


class Store(Protocol):
    """A store. Calls raise ``StoreUnavailable`` when it cannot be reached, ``StoreRefused`` when it cannot be used."""

    def lock(self) -> bool:
        """Becomes the only writer until ``close``; returns False while another process is."""

    def begin(self) -> Transaction:
        """Begins a transaction; one at a time, after ``lock``."""

    def read(self, query: Callable[[StoreSnapshot], Answer]) -> Answer:
        """Runs a query on the store as one commit left it, and returns its result.

        The query may run more than once, so it must have no side effects. It must neither keep the snapshot nor call
        the store.
        """

    def version(self) -> int:
        """Returns the number of the last commit. Cheap enough to call many times a second."""

    def size(self) -> StoreSize:
        """Returns the present size of the store."""

    def close(self) -> None:
        """Closes the store, and forgets an open transaction."""
