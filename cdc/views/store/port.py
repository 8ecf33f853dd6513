"""The seam of stores: what a view asks of the place where it keeps its rows.

A store holds named *spaces*, each an ordered map from bytes to bytes. One writer changes any number of spaces in one
transaction; any number of readers, in this process and in others, see the store as one commit left it, and never parts
of two. Everything else (tables, generations, indexes, what has changed) is built on that, in ``cdc.views.table``.

All stores pass one test class, ``tests/integration/views/store/contract.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

Answer = TypeVar("Answer")


class Key(NamedTuple):
    """Where an entry stands in its space.

    Each of the two alone is unique in a space: a store may keep an entry by either.

    Attributes:
        order: entries of a space are sorted by it, bytewise, however long it is. At least one byte.
        text: how programs outside find the entry, where the store lets them look (a field of a Redis hash).
    """

    order: bytes
    text: bytes


class Item(NamedTuple):
    """An entry as a scan finds it. A store that does not keep ``key.text`` leaves it empty; ``get`` takes such keys."""

    key: Key
    value: bytes


class StoreSize(NamedTuple):
    """What a store takes.

    Attributes:
        disk_bytes: on this machine's disk; 0 when it has none there.
        memory_bytes: in this process, or in the server; 0 when it cannot be told.
    """

    disk_bytes: int
    memory_bytes: int


class StoreSnapshot(Protocol):
    """A store as one commit left it."""

    @property
    def version(self) -> int:
        """The number of that commit; 0 before the first."""

    def get(self, space: str, keys: Sequence[Key]) -> list[bytes | None]:
        """The entries' values, None for those that are not there. A space that is not there is empty."""

    def scan(
        self, space: str, start: bytes = b"", stop: bytes | None = None, limit: int = 1000, *, backwards: bool = False
    ) -> list[Item]:
        """Entries with ``start <= key.order < stop``, at most ``limit``: the first of them, upwards; or, backwards, the
        last of them, downwards."""

    def count(self, space: str) -> int:
        """How many entries a space has, without counting them one by one."""


class Transaction(Protocol):
    """Changes on their way, of which readers see nothing before ``commit``.

    Calls must not overlap, and may come from different threads. What was written may be larger than memory,
    as far as each row is small. When a call
    raises, the transaction has ended, and nothing of it is there.
    """

    @property
    def version(self) -> int:
        """The number that this commit will have: greater than all before it."""

    def get(self, space: str, keys: Sequence[Key]) -> list[bytes | None]:
        """As ``StoreSnapshot.get``, with what this transaction wrote."""

    def put(self, space: str, items: Sequence[Item]) -> None:
        """Write entries, over those that are there."""

    def delete(self, space: str, keys: Sequence[Key]) -> None:
        """Delete entries; those that are not there do not matter."""

    def drop(self, space: str) -> None:
        """Delete a space with all its entries."""

    def commit(self) -> int:
        """Make everything visible and durable at once; returns the new version.

        Raises:
            StoreUnavailable: nothing of it is there, or the outcome is unknown: open the store again.
            StoreFull: nothing of it is there, as long as there is no room.
            StoreRefused: nothing of it is there, and nothing will be: another writer took over.
        """

    def abort(self) -> None:
        """Forget everything. After ``commit`` it does nothing."""


class Store(Protocol):
    """Calls raise ``StoreUnavailable`` when the place cannot be reached, ``StoreRefused`` when it is of no use."""

    def lock(self) -> bool:
        """Become the only writer, until ``close``; False while another one is."""

    def begin(self) -> Transaction:
        """A transaction; one at a time, after ``lock``."""

    def read(self, query: Callable[[StoreSnapshot], Answer]) -> Answer:
        """What the query finds in the store as one commit left it.

        The query may run more than once, so it must have no effect. It must neither keep the snapshot
        nor ask the store.
        """

    def version(self) -> int:
        """The number of the last commit; cheap enough to be asked many times a second."""

    def size(self) -> StoreSize:
        """What it takes now."""

    def close(self) -> None:
        """Let it go; a transaction under way is forgotten."""
