"""How spaces lie in one LMDB database, and the two ends that work on it: ``LmdbSnapshot`` and ``SpaceWriter``.

LMDB has named databases, which would be spaces by themselves. But one may only be opened while no other transaction of
the process opens another one, so readers would wait for the writer's long transactions; each costs something in every
transaction; and their number must be known when the store is opened. So all entries lie in one database, behind four
bytes: the number of their space. The catalog, at number 0, tells the number of each space and how many entries it has.

Numbers are never used again. To drop a space is to take it out of the catalog; its entries are deleted a few thousand
at a time by the transactions that follow.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

import lmdb

from cdc.store.port import MAX_ORDER, Item, Key

_NUMBER: Final = struct.Struct(">I")
_PLACE: Final = struct.Struct(">IQ")
_COUNTER: Final = struct.Struct(">Q")

_CATALOG: Final = _NUMBER.pack(0)
_SPACE: Final = _CATALOG + b"space/"
_DROPPED: Final = _CATALOG + b"dropped/"
_VERSION: Final = _CATALOG + b"version"
_NEXT: Final = _CATALOG + b"next"

_BOUND: Final = MAX_ORDER + 8
"""Of a bound of a range: what is cut off is longer than any key, so it decides nothing. LMDB refuses 511 bytes."""

_SWEPT: Final = 20_000
"""Entries of dropped spaces that one transaction deletes: some 20 ms. Ten million rows are gone after 500 commits."""


class _Place(NamedTuple):
    number: int
    entries: int


class LmdbSnapshot:
    """``Snapshot`` in a transaction of LMDB.

    Args:
        transaction: None while the store was never written.
    """

    __slots__ = ("_transaction",)

    def __init__(self, transaction: lmdb.Transaction[bytes] | None) -> None:
        self._transaction = transaction

    @property
    def version(self) -> int:
        """As ``Snapshot.version``."""
        return 0 if self._transaction is None else _counter(self._transaction, _VERSION)

    def get(self, space: str, keys: Sequence[Key]) -> list[bytes | None]:
        """As ``Snapshot.get``."""
        place = self._place(space)
        if place is None or self._transaction is None:
            return [None] * len(keys)
        prefix, get = _NUMBER.pack(place.number), self._transaction.get
        return [get(prefix + key.order) for key in keys]

    def scan(
        self, space: str, start: bytes = b"", stop: bytes | None = None, limit: int = 1000, *, backwards: bool = False
    ) -> list[Item]:
        """As ``Snapshot.scan``."""
        place = self._place(space)
        if place is None or self._transaction is None:
            return []
        first = _NUMBER.pack(place.number) + start[:_BOUND]
        behind = _NUMBER.pack(place.number + (stop is None)) + (stop or b"")[:_BOUND]
        with self._transaction.cursor() as cursor:
            return (_down if backwards else _up)(cursor, first, behind, limit)

    def count(self, space: str) -> int:
        """As ``Snapshot.count``."""
        place = self._place(space)
        return 0 if place is None else place.entries

    def _place(self, space: str) -> _Place | None:
        return None if self._transaction is None else _place(self._transaction, space)


class SpaceWriter:
    """Changes spaces in a writing transaction of LMDB, in the thread that began it."""

    def __init__(self, transaction: lmdb.Transaction[bytes]) -> None:
        self._transaction = transaction
        self._places: dict[str, _Place] = {}
        # A store that is made anew begins behind the versions of the one before: followers wait for greater ones.
        self.version: Final = (_counter(transaction, _VERSION) or time.time_ns() // 1_000) + 1

    def get(self, space: str, keys: Sequence[Key]) -> list[bytes | None]:
        """As ``Transaction.get``."""
        place = self._known(space)
        if place is None:
            return [None] * len(keys)
        prefix, get = _NUMBER.pack(place.number), self._transaction.get
        return [get(prefix + key.order) for key in keys]

    def put(self, space: str, items: Sequence[Item]) -> None:
        """As ``Transaction.put``."""
        place = self._known(space) or _Place(self._next_number(), 0)
        prefix, before = _NUMBER.pack(place.number), self._entries()
        with self._transaction.cursor() as cursor:
            cursor.putmulti([(prefix + key.order, value) for key, value in items])
        self._places[space] = place._replace(entries=place.entries + self._entries() - before)

    def delete(self, space: str, keys: Sequence[Key]) -> None:
        """As ``Transaction.delete``."""
        place = self._known(space)
        if place is None:
            return
        prefix, before, delete = _NUMBER.pack(place.number), self._entries(), self._transaction.delete
        for key in keys:
            delete(prefix + key.order)
        self._places[space] = place._replace(entries=place.entries + self._entries() - before)

    def drop(self, space: str) -> None:
        """As ``Transaction.drop``."""
        place = self._known(space)
        if place is not None:
            self._places.pop(space, None)
            self._transaction.delete(_SPACE + space.encode())
            self._transaction.put(_DROPPED + _NUMBER.pack(place.number), b"")

    def finish(self) -> None:
        """Write the catalog and sweep; afterwards the transaction can be committed."""
        for space, place in self._places.items():
            self._transaction.put(_SPACE + space.encode(), _PLACE.pack(*place))
        self._transaction.put(_VERSION, _COUNTER.pack(self.version))
        self._sweep()

    def _known(self, space: str) -> _Place | None:
        return self._places.get(space) or _place(self._transaction, space)

    def _next_number(self) -> int:
        number = _counter(self._transaction, _NEXT) + 1
        self._transaction.put(_NEXT, _COUNTER.pack(number))
        return number

    def _entries(self) -> int:
        """Of the whole database: the difference tells what a change of one space did to its number of entries."""
        return self._transaction.stat()["entries"]

    def _sweep(self) -> None:
        left = _SWEPT
        with self._transaction.cursor() as cursor:
            while left > 0 and cursor.set_range(_DROPPED) and cursor.key().startswith(_DROPPED):
                mark = cursor.key()
                prefix = mark.removeprefix(_DROPPED)
                found = cursor.set_range(prefix)
                while left > 0 and found and cursor.key().startswith(prefix):
                    found = cursor.delete() and bool(cursor.key())
                    left -= 1
                if left > 0:
                    self._transaction.delete(mark)


def _counter(transaction: lmdb.Transaction[bytes], key: bytes) -> int:
    raw = transaction.get(key)
    return 0 if raw is None else int(_COUNTER.unpack(raw)[0])


def _place(transaction: lmdb.Transaction[bytes], space: str) -> _Place | None:
    raw = transaction.get(_SPACE + space.encode())
    return None if raw is None else _Place(*_PLACE.unpack(raw))


def _up(cursor: lmdb.Cursor[bytes], first: bytes, behind: bytes, limit: int) -> list[Item]:
    found: list[Item] = []
    if limit > 0 and cursor.set_range(first):
        for key, value in cursor.iternext():
            if key >= behind:
                break
            found.append(Item(Key(key[4:], b""), value))
            if len(found) == limit:
                break
    return found


def _down(cursor: lmdb.Cursor[bytes], first: bytes, behind: bytes, limit: int) -> list[Item]:
    found: list[Item] = []
    there = cursor.prev() if cursor.set_range(behind) else cursor.last()
    if limit > 0 and there:
        for key, value in cursor.iterprev():
            if key < first:
                break
            found.append(Item(Key(key[4:], b""), value))
            if len(found) == limit:
                break
    return found
