"""Keys as bytes that sort as their values do, so that a store of sorted bytes answers prefixes and ranges. Pure.

A key is a tuple of values, one for each key column, and never a joined string: ``a:b`` with ``c`` and ``a`` with
``b:c`` are different keys. Each value is written so that it ends by itself: a tag for its kind, then bytes that sort as
the values of that kind. The scheme is that of FoundationDB's tuple layer (its page "Tuples"), as far as it is needed.

Integers and floats sort by number, text by its UTF-8 bytes. Types that topics carry as text, ``numeric`` among them,
sort as that text.

Two keys are one only if they are written alike. ``0`` and ``-0``, or numbers of a document that are the same double,
are two keys: each has records of its own, in a partition of its own, and a tombstone of one must not take the row of
the other away. In an index they are one value.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from hashlib import blake2b
from typing import Any, Final, TypeAlias

import orjson

from cdc.contract.kinds import FLOATS, Kind, kind_of
from cdc.views.store.port import Key
from cdc.views.table import exact_json

Value: TypeAlias = Any
"""What JSON can say, numbers as ``exact_json`` has them; bytes, where keys are bytes."""

_EXACT: Final = 0x01
_NULL, _FALSE, _TRUE, _ZERO, _FLOAT, _TEXT, _DOCUMENT = 0x02, 0x03, 0x04, 0x20, 0x30, 0x40, 0x41
_NO_KEY: Final = 0xFE
END_OF_KEYS: Final = bytes((_NO_KEY,))
"""The orders of all keys lie before it; what is no key of its table lies behind it."""
_DIGEST: Final = 16
_INDEXED: Final = 1000
"""Bytes of one indexed value that an index entry has. Rows are looked for by whole values, never by ranges of them, so
a digest will do for the rest; and an index of documents does not grow as large as they are."""


def order_of(values: Sequence[Value], floats: Sequence[bool] = ()) -> bytes:
    """The tuple as sortable bytes.

    Args:
        values: as JSON has them.
        floats: which of them are floating point, whose whole numbers JSON writes like integers; none unless given.
    """
    parts = [_part(value, floats[place] if floats else False) for place, value in enumerate(values)]
    return b"".join(parts)


def prefix_range(values: Sequence[Value], floats: Sequence[bool] = (), text: str | None = None) -> tuple[bytes, bytes]:
    """Where the keys that begin with these values start and stop; with ``text``, the next value begins with it."""
    start = b"".join(_part(value, floats[place] if floats else False) for place, value in enumerate(values))
    if text is not None:
        start += bytes((_TEXT,)) + _escaped(text.encode())
    return start, stop_of(start)


def index_order(values: Sequence[Value], row: bytes, floats: Sequence[bool] = ()) -> bytes:
    """An index entry: the indexed values, then the row's own order."""
    return index_prefix(values, floats) + row


def index_prefix(values: Sequence[Value], floats: Sequence[bool] = ()) -> bytes:
    """What all index entries with these values begin with, and no others but by a chance of 1 in 2^128.

    Args:
        values: of the index's first columns.
        floats: as for ``order_of``.
    """
    parts = [_part(_one_zero(value), floats[place] if floats else False) for place, value in enumerate(values)]
    return b"".join([part if len(part) <= _INDEXED else _cut(part) for part in parts])


def pointer(row: Key) -> bytes:
    """What an index entry holds: where its row stands."""
    return len(row.order).to_bytes(4, "big") + row.order + row.text


def pointed(value: bytes) -> Key:
    """The row that an index entry leads to: what ``pointer`` wrote."""
    ends = 4 + int.from_bytes(value[:4], "big")
    return Key(value[4:ends], value[ends:])


def order_of_no_key(text: bytes | None, partition: int, offset: int) -> bytes:
    """Of a record whose key is not one of its table: behind all keys that are. Without a key, by its place."""
    if text is None:
        return bytes((_NO_KEY, _NO_KEY)) + struct.pack(">IQ", partition, offset)
    return bytes((_NO_KEY, _TEXT)) + text


def _cut(part: bytes) -> bytes:
    """The beginning before a digest of all; never the beginning of what was not cut: no value has that byte there."""
    return part[: _INDEXED - _DIGEST - 1] + b"\xff" + blake2b(part, digest_size=_DIGEST).digest()


def stop_of(start: bytes) -> bytes:
    """The least bytes behind everything that begins with these; tags keep them below 0xff at the front."""
    kept = start.rstrip(b"\xff")
    return kept[:-1] + bytes((kept[-1] + 1,)) if kept else b"\xff"


class KeyForm:
    """The keys of one table.

    Args:
        columns: name and type of each key column, the type as ``__schemas`` spells it.
    """

    def __init__(self, columns: Sequence[tuple[str, str]]) -> None:
        self.names: Final = tuple(name for name, _ in columns)
        kinds = [kind_of(sql_type) for _, sql_type in columns]
        self.floats: Final = tuple(kind in FLOATS and not is_array for kind, is_array, _ in kinds)
        self._is_exact: Final = any(map(is_respelled, (sql_type for _, sql_type in columns)))

    def read(self, text: bytes) -> Any:
        """What a record's key says.

        Raises:
            ValueError: it is no JSON.
        """
        return exact_json.loads(text) if self._is_exact else orjson.loads(text)

    def order(self, text: bytes) -> bytes:
        """Of a record's key; raises as ``values``."""
        return order_of(self.values(text), self.floats)

    def values(self, text: bytes) -> list[Value]:
        """Of a record's key, in the order of the columns.

        Raises:
            ValueError: not a JSON object with these columns.
        """
        found = self.read(text)
        if type(found) is not dict or len(found) != len(self.names):
            raise ValueError(f"not a key of ({', '.join(self.names)})")
        try:
            return [found[name] for name in self.names]
        except KeyError as error:
            raise ValueError(f"not a key of ({', '.join(self.names)}): it lacks {error}") from None


def is_respelled(sql_type: str) -> bool:
    """Whether a value of the type may be written in more ways than what ``orjson`` reads can be."""
    kind, is_array, _ = kind_of(sql_type)
    return is_array or kind in FLOATS or kind is Kind.DOCUMENT


def raw_order(text: bytes) -> bytes:
    """Of a key that is just bytes or text: sorts as it is."""
    return bytes((_TEXT,)) + _escaped(text) + b"\0"


def _part(value: Value, is_float: bool) -> bytes:
    if is_float and not isinstance(value, bool) and value is not None:
        if isinstance(value, (list, dict)):
            raise ValueError("expected a number, not a document")
        return bytes((_FLOAT,)) + _double(float(value))
    write = _WRITERS.get(type(value), _document)
    return write(value)


def _integer(value: int) -> bytes:
    if value == 0:
        return bytes((_ZERO,))
    size = (abs(value).bit_length() + 7) // 8
    if size > 8:
        raise ValueError(f"{value} is beyond 64 bits")
    if value > 0:
        return bytes((_ZERO + size,)) + value.to_bytes(size, "big")
    return bytes((_ZERO - size,)) + (value + (1 << 8 * size) - 1).to_bytes(size, "big")


def _double(value: float) -> bytes:
    if value != value:  # PostgreSQL sorts NaN behind everything
        return b"\xff" * 8
    raw: bytes = struct.pack(">d", value)
    return bytes(byte ^ 0xFF for byte in raw) if raw[0] & 0x80 else bytes((raw[0] | 0x80,)) + raw[1:]


def _text(value: str) -> bytes:
    return bytes((_TEXT,)) + _escaped(value.encode()) + b"\0"


def _number(value: Decimal) -> bytes:
    """As the nearest double, then by how it is written."""
    return bytes((_FLOAT,)) + _double(float(value)) + bytes((_EXACT,)) + _escaped(str(value).encode()) + b"\0"


def _one_zero(value: Value) -> Value:
    return 0.0 if type(value) is float and value == 0 else value


def _document(value: Value) -> bytes:
    return bytes((_DOCUMENT,)) + _escaped(exact_json.dumps(value)) + b"\0"


def _escaped(raw: bytes) -> bytes:
    return raw.replace(b"\0", b"\0\xff")


_WRITERS: Final[dict[type, Callable[[Any], bytes]]] = {
    type(None): lambda _: bytes((_NULL,)),
    bool: lambda value: bytes((_TRUE if value else _FALSE,)),
    int: _integer,
    float: lambda value: bytes((_FLOAT,)) + _double(value),
    Decimal: _number,
    str: _text,
    bytes: lambda value: bytes((_TEXT,)) + _escaped(value) + b"\0",
}
