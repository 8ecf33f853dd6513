"""How spaces lie in one LMDB database, and the two classes that work on it: ``LmdbSnapshot`` and ``SpaceWriter``.

LMDB's named databases could be spaces. But a process may open one only while it has no other transaction that opens
one, so readers would wait for the writer's long transactions. Each named database also costs time in every transaction,
and their number must be known when the store is opened. So all entries lie in one database, and eight bytes at the
front of each key are the number of its space. The catalog, space 0, has the number of each space and how many entries
it has.

Numbers are never used again. Dropping a space removes it from the catalog; the transactions that follow delete its
entries, a few thousand at a time.

A key of LMDB has at most 511 bytes, but an order may have more. Then the first 480 bytes of the order, with a zero
after them, lead to the number of another space, which has no name. The rest of the order stands there, cut in the same
way if it is still too long. So long orders sort as short ones do, and cost one lookup for every 480 bytes.

Each value ends with the CRC-32 of key and value. A disk may return other bytes than it was given, and LMDB would not
notice: a value that does not fit its checksum is damage, and never an answer.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple
from zlib import crc32

import lmdb

from cdc.base.errors import StoreDamaged
from cdc.views.store.port import Item, Key

_NUMBER: Final = struct.Struct(">Q")
_PLACE: Final = struct.Struct(">QQ")
_COUNTER: Final = struct.Struct(">Q")
_PREFIX: Final = _NUMBER.size

_CATALOG: Final = _NUMBER.pack(0)
_SPACE: Final = _CATALOG + b"space/"
_DROPPED: Final = _CATALOG + b"dropped/"
_VERSION: Final = _CATALOG + b"version"
_NEXT: Final = _CATALOG + b"next"

_PART: Final = 480
"""Bytes of an order that one LMDB key takes. With the number before them and the zero after them, they fit into 511."""
_MORE: Final = b"\0"
"""Ends a key that leads on. So that key sorts directly after the entry whose order is just that part."""

_RESIDUE: Final = 0x2144DF1C
"""The CRC-32 of any bytes that are followed by their own CRC-32."""

_SWEPT: Final = 20_000
"""Entries of dropped spaces that one transaction deletes: about 20 ms. Ten million rows are gone after 500 commits."""


class _Place(NamedTuple):
    number: int
    entries: int


class SpacesThen:
    """The version of a commit, and the spaces that were looked up in it. A file numbers its commits, so what was read
    once is true of all transactions with that number.

    Args:
        transaction: shows the commit.
    """

    __slots__ = ("_places", "commit", "version")

    def __init__(self, transaction: lmdb.Transaction[bytes]) -> None:
        self.commit: Final = transaction.id()
        self.version: Final = _counter(transaction, _VERSION)
        self._places: dict[str, _Place | None] = {}

    def place(self, transaction: lmdb.Transaction[bytes], space: str) -> _Place | None:
        """Returns where a space lies, asked in a transaction that shows this commit."""
        try:
            return self._places[space]
        except KeyError:
            place = self._places[space] = _place(transaction, space)
            return place


class LmdbSnapshot:
    """A ``StoreSnapshot`` in a transaction of LMDB.

    Args:
        transaction: the transaction; None while the store was never written.
        spaces: those of the commit that the transaction shows.
    """

    __slots__ = ("_spaces", "_transaction", "version")

    def __init__(self, transaction: lmdb.Transaction[bytes] | None, spaces: SpacesThen | None) -> None:
        self._transaction = transaction
        self._spaces = spaces
        self.version: Final = 0 if spaces is None else spaces.version
        """The number of the commit that this snapshot shows."""

    def get(self, space: str, keys: Sequence[Key]) -> list[bytes | None]:
        """Returns the values of entries, None for each that does not exist."""
        place = self._place(space)
        if place is None or self._transaction is None:
            return [None] * len(keys)
        return _values(self._transaction, place.number, keys)

    def scan(
        self, space: str, start: bytes = b"", stop: bytes | None = None, limit: int = 1000, *, backwards: bool = False
    ) -> list[Item]:
        """Returns the first entries within bounds, or the last ones."""
        place = self._place(space)
        if place is None or self._transaction is None or limit <= 0:
            return []
        return _scan(self._transaction, _NUMBER.pack(place.number), start, stop, limit, backwards=backwards)

    def count(self, space: str) -> int:
        """Returns how many entries a space has."""
        place = self._place(space)
        return 0 if place is None else place.entries

    def _place(self, space: str) -> _Place | None:
        if self._transaction is None or self._spaces is None:
            return None
        return self._spaces.place(self._transaction, space)


class SpaceWriter:
    """Changes spaces in a write transaction of LMDB, in the thread that began it."""

    def __init__(self, transaction: lmdb.Transaction[bytes]) -> None:
        self._transaction = transaction
        self._places: dict[str, _Place] = {}
        self._leading = 0
        # A store that is made anew begins after all versions of the former one: followers wait for greater versions.
        self.version: Final = (_counter(transaction, _VERSION) or time.time_ns() // 1_000) + 1

    def get(self, space: str, keys: Sequence[Key]) -> list[bytes | None]:
        """Returns the values of entries, including those that this transaction wrote."""
        place = self._known(space)
        return [None] * len(keys) if place is None else _values(self._transaction, place.number, keys)

    def put(self, space: str, items: Sequence[Item]) -> None:
        """Writes entries; those that exist are replaced."""
        place = self._known(space) or _Place(self._next_number(), 0)
        prefix, before = _NUMBER.pack(place.number), self._entries()
        sealed = []
        for (order, _), value in items:
            key = prefix + order if len(order) <= _PART else self._lead(prefix, order)
            sealed.append((key, value + crc32(value, crc32(key)).to_bytes(4, "little")))
        with self._transaction.cursor() as cursor:
            cursor.putmulti(sealed)
        self._places[space] = place._replace(entries=place.entries + self._entries() - before)

    def delete(self, space: str, keys: Sequence[Key]) -> None:
        """Deletes entries; ignores those that do not exist."""
        place = self._known(space)
        if place is None:
            return
        prefix, before, delete = _NUMBER.pack(place.number), self._entries(), self._transaction.delete
        for key in keys:
            if len(key.order) <= _PART:
                delete(prefix + key.order)
            else:
                self._delete_long(prefix, key.order)
        self._places[space] = place._replace(entries=place.entries + self._entries() - before)

    def drop(self, space: str) -> None:
        """Takes a space out of the catalog; later transactions delete its entries."""
        place = self._known(space)
        if place is not None:
            self._places.pop(space, None)
            self._transaction.delete(_SPACE + space.encode())
            self._put(_DROPPED + _NUMBER.pack(place.number), b"")

    def finish(self) -> None:
        """Writes the catalog and sweeps. Afterwards the transaction can be committed."""
        for space, place in self._places.items():
            self._put(_SPACE + space.encode(), _PLACE.pack(*place))
        self._put(_VERSION, _COUNTER.pack(self.version))
        self._sweep()

    def _known(self, space: str) -> _Place | None:
        return self._places.get(space) or _place(self._transaction, space)

    def _put(self, key: bytes, value: bytes) -> None:
        self._transaction.put(key, value + crc32(value, crc32(key)).to_bytes(4, "little"))

    def _next_number(self) -> int:
        number = _counter(self._transaction, _NEXT) + 1
        self._put(_NEXT, _COUNTER.pack(number))
        return number

    def _entries(self) -> int:
        """Counts the entries of the whole database, without those that lead on. Taken before and after one space is
        changed, the difference is how many entries that space has gained."""
        return self._transaction.stat()["entries"] - self._leading

    def _lead(self, prefix: bytes, order: bytes) -> bytes:
        """The key of a long order. Makes the entries that lead there if they do not exist yet."""
        while len(order) > _PART:
            at = prefix + order[:_PART] + _MORE
            following = _value(self._transaction, at)
            if following is None:
                following = _NUMBER.pack(self._next_number())
                self._put(at, following)
                self._leading += 1
            prefix, order = following, order[_PART:]
        return prefix + order

    def _delete_long(self, prefix: bytes, order: bytes) -> None:
        """Deletes an entry, and the entries that led only to it."""
        path = []
        while len(order) > _PART:
            at = prefix + order[:_PART] + _MORE
            following = _value(self._transaction, at)
            if following is None:
                return
            path.append((at, following))
            prefix, order = following, order[_PART:]
        self._transaction.delete(prefix + order)
        with self._transaction.cursor() as cursor:
            for at, following in reversed(path):
                if cursor.set_range(following) and cursor.key().startswith(following):
                    return
                self._transaction.delete(at)
                self._leading -= 1

    def _sweep(self) -> None:
        left = _SWEPT
        with self._transaction.cursor() as cursor:
            while left > 0 and cursor.set_range(_DROPPED) and cursor.key().startswith(_DROPPED):
                mark = cursor.key()
                prefix = mark.removeprefix(_DROPPED)
                led = []
                found = cursor.set_range(prefix)
                while left > 0 and found and cursor.key().startswith(prefix):
                    if len(cursor.key()) > _PREFIX + _PART:
                        led.append(_checked(*cursor.item()))
                    found = cursor.delete() and bool(cursor.key())
                    left -= 1
                for number in led:
                    self._put(_DROPPED + number, b"")
                if left > 0:
                    self._transaction.delete(mark)


class SpacesReading:
    """Yields all entries of all spaces, checked: the number of the space, and the number that an entry leads to.

    Args:
        transaction: the transaction in which to read.

    Attributes:
        places: number and recorded entries of each named space that was read so far.
    """

    def __init__(self, transaction: lmdb.Transaction[bytes]) -> None:
        self._transaction = transaction
        self.places: dict[str, tuple[int, int]] = {}

    def __iter__(self) -> Iterator[tuple[int, int | None]]:
        last = b""
        with self._transaction.cursor() as cursor:
            for key, stored in cursor.iternext():
                if key <= last:
                    raise StoreDamaged("keys are not in order")
                last, value = key, _checked(key, stored)
                if key.startswith(_SPACE):
                    self.places[key.removeprefix(_SPACE).decode()] = _Place(*_PLACE.unpack(value))
                number = _NUMBER.unpack_from(key)[0]
                yield number, _NUMBER.unpack(value)[0] if len(key) > _PREFIX + _PART else None


def _checked(key: bytes, stored: bytes) -> bytes:
    """Returns the value of an entry.

    Raises:
        StoreDamaged: it does not fit its checksum.
    """
    if crc32(stored, crc32(key)) != _RESIDUE:
        raise StoreDamaged(f"an entry of {len(stored)} bytes does not fit its checksum")
    return stored[:-4]


def _value(transaction: lmdb.Transaction[bytes], key: bytes) -> bytes | None:
    stored = transaction.get(key)
    return None if stored is None else _checked(key, stored)


def _counter(transaction: lmdb.Transaction[bytes], key: bytes) -> int:
    raw = _value(transaction, key)
    return 0 if raw is None else int(_COUNTER.unpack(raw)[0])


def _place(transaction: lmdb.Transaction[bytes], space: str) -> _Place | None:
    raw = _value(transaction, _SPACE + space.encode())
    return None if raw is None else _Place(*_PLACE.unpack(raw))


def _values(transaction: lmdb.Transaction[bytes], number: int, keys: Sequence[Key]) -> list[bytes | None]:
    first, found = _NUMBER.pack(number), []
    for key in keys:
        prefix: bytes | None = first
        order = key.order
        while len(order) > _PART and prefix is not None:
            prefix = _value(transaction, prefix + order[:_PART] + _MORE)
            order = order[_PART:]
        found.append(None if prefix is None else _value(transaction, prefix + order))
    return found


class _Level(NamedTuple):
    """A space that a scan is in, below the space that led to it.

    Attributes:
        entries: the entries that are left.
        before: the bytes with which all of their orders begin.
        start: the lower bound for the rest of the order.
        stop: the upper bound; None for the end of the space.
    """

    entries: Iterator[tuple[bytes, bytes]]
    before: bytes
    start: bytes
    stop: bytes | None


def _scan(
    transaction: lmdb.Transaction[bytes],
    prefix: bytes,
    start: bytes,
    stop: bytes | None,
    limit: int,
    *,
    backwards: bool,
) -> list[Item]:
    told = _down if backwards else _up
    found: list[Item] = []
    levels = [_Level(told(transaction, prefix, start, stop), b"", start, stop)]
    while levels:
        entries, before, start, stop = levels[-1]
        for key, stored in entries:
            value, order = _checked(key, stored), key[_PREFIX:]
            if len(order) > _PART:  # it leads on
                part = order[:_PART]
                low = start[_PART:] if start.startswith(part) else b""
                high = stop[_PART:] if stop is not None and len(stop) > _PART and stop.startswith(part) else None
                levels.append(_Level(told(transaction, value, low, high), before + part, low, high))
                break
            found.append(Item(Key(before + order, b""), value))
            if len(found) == limit:
                return found
        else:
            levels.pop()
    return found


def _bounds(prefix: bytes, start: bytes, stop: bytes | None) -> tuple[bytes, bytes]:
    """The first key of a space within bounds, and a key after the last. Keys in between may lead to orders outside."""
    first = start if len(start) <= _PART else start[:_PART] + _MORE
    if stop is None:
        return prefix + first, _NUMBER.pack(_NUMBER.unpack(prefix)[0] + 1)
    return prefix + first, prefix + (stop if len(stop) <= _PART else stop[:_PART] + _MORE + _MORE)


def _up(
    transaction: lmdb.Transaction[bytes], prefix: bytes, start: bytes, stop: bytes | None
) -> Iterator[tuple[bytes, bytes]]:
    first, after = _bounds(prefix, start, stop)
    with transaction.cursor() as cursor:
        if cursor.set_range(first):
            for entry in cursor.iternext():
                if entry[0] >= after:
                    return
                yield entry


def _down(
    transaction: lmdb.Transaction[bytes], prefix: bytes, start: bytes, stop: bytes | None
) -> Iterator[tuple[bytes, bytes]]:
    first, after = _bounds(prefix, start, stop)
    with transaction.cursor() as cursor:
        if cursor.prev() if cursor.set_range(after) else cursor.last():
            for entry in cursor.iterprev():
                if entry[0] < first:
                    return
                yield entry
