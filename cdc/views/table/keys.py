"""Keys as bytes that sort as their values do, so that a store of sorted bytes answers prefixes and ranges. Pure.

A key is a tuple of values, one for each key column, and never a joined string: ``a:b`` with ``c`` and ``a`` with
``b:c`` are different keys. Each value is a tag for its kind, then bytes that sort as the values of that kind and mark
their own end. The scheme is the part that we need of FoundationDB's tuple layer (its page "Tuples").

Integers and floats sort by number, text by its UTF-8 bytes. Types that topics carry as text, ``numeric`` among them,
sort as that text.

Two spellings are two keys, even if the values are equal: ``0`` and ``-0``, or numbers in a document that are the same
double. Each spelling has records of its own, in a partition of its own, and a tombstone for one must not delete the row
of the other. In an index, ``0`` and ``-0`` are one value.
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
"""A value of a key: what JSON can express, with numbers as ``exact_json`` reads them; bytes, where keys are bytes."""

_EXACT: Final = 0x01
_NULL, _FALSE, _TRUE, _ZERO, _FLOAT, _TEXT, _DOCUMENT = 0x02, 0x03, 0x04, 0x20, 0x30, 0x40, 0x41
_NO_KEY: Final = 0xFE
END_OF_KEYS: Final = bytes((_NO_KEY,))
"""Sorts after all keys, and before the records whose key is not a key of their table."""
_DIGEST: Final = 16
_INDEXED: Final = 1000
"""How many bytes of one indexed value an index entry holds. Rows are looked up by whole values, never by ranges of
values, so a digest is enough for the rest, and an index of documents stays smaller than the documents."""


def order_of(values: Sequence[Value], floats: Sequence[bool] = ()) -> bytes:
    """Writes a tuple of values as sortable bytes.

    Args:
        values: as JSON has them.
        floats: which of them are floating point, because JSON writes their whole numbers like integers; none unless
            given.
    """
    parts = [_part(value, floats[place] if floats else False) for place, value in enumerate(values)]
    return b"".join(parts)


def prefix_range(values: Sequence[Value], floats: Sequence[bool] = (), text: str | None = None) -> tuple[bytes, bytes]:
    """The range of the keys that begin with these values; with ``text``, the value after them begins with that text."""
    start = b"".join(_part(value, floats[place] if floats else False) for place, value in enumerate(values))
    if text is not None:
        start += bytes((_TEXT,)) + _escaped(text.encode())
    return start, stop_of(start)


def index_order(values: Sequence[Value], row: bytes, floats: Sequence[bool] = ()) -> bytes:
    """The order of an index entry: the indexed values, then the row's own order."""
    return index_prefix(values, floats) + row


def index_prefix(values: Sequence[Value], floats: Sequence[bool] = ()) -> bytes:
    """The bytes that all index entries with these values begin with. Others do so with a chance of 1 in 2^128.

    Args:
        values: of the first columns of the index.
        floats: as for ``order_of``.
    """
    parts = [_part(_one_zero(value), floats[place] if floats else False) for place, value in enumerate(values)]
    return b"".join([part if len(part) <= _INDEXED else _cut(part) for part in parts])


def pointer(row: Key) -> bytes:
    """The value of an index entry: where its row stands."""
    return len(row.order).to_bytes(4, "big") + row.order + row.text


def pointed(value: bytes) -> Key:
    """The key of the row that an index entry leads to: the inverse of ``pointer``."""
    ends = 4 + int.from_bytes(value[:4], "big")
    return Key(value[4:ends], value[ends:])


def order_of_no_key(text: bytes | None, partition: int, offset: int) -> bytes:
    """The order of a record whose key is not a key of its table: after all keys. A record without a key sorts by its
    partition and offset."""
    if text is None:
        return bytes((_NO_KEY, _NO_KEY)) + struct.pack(">IQ", partition, offset)
    return bytes((_NO_KEY, _TEXT)) + text


def _cut(part: bytes) -> bytes:
    """Cuts a long value off and ends it with a digest of the whole. Byte 0xff marks the cut: values that are not cut
    never have it at this place."""
    return part[: _INDEXED - _DIGEST - 1] + b"\xff" + blake2b(part, digest_size=_DIGEST).digest()


def stop_of(start: bytes) -> bytes:
    """The smallest bytes that sort after everything with this prefix. Tags keep the first byte of a key below 0xff."""
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
        """Parses a record's key.

        Raises:
            ValueError: it is not JSON.
        """
        return exact_json.loads(text) if self._is_exact else orjson.loads(text)

    def order(self, text: bytes) -> bytes:
        """The order of a record's key; raises as ``values``."""
        return order_of(self.values(text), self.floats)

    def values(self, text: bytes) -> list[Value]:
        """The values of a record's key, in the order of the columns.

        Raises:
            ValueError: the key is not a JSON object with these columns.
        """
        found = self.read(text)
        if type(found) is not dict or len(found) != len(self.names):
            raise ValueError(f"not a key of ({', '.join(self.names)})")
        try:
            return [found[name] for name in self.names]
        except KeyError as error:
            raise ValueError(f"not a key of ({', '.join(self.names)}): column {error} is missing") from None


def is_respelled(sql_type: str) -> bool:
    """Whether a value of the type has spellings that ``orjson`` would read as one value."""
    kind, is_array, _ = kind_of(sql_type)
    return is_array or kind in FLOATS or kind is Kind.DOCUMENT


def raw_order(text: bytes) -> bytes:
    """The order of a key that is plain text or bytes: it sorts as it is."""
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
    # One's complement: of two negative numbers, the one with the greater magnitude sorts first.
    return bytes((_ZERO - size,)) + (value + (1 << 8 * size) - 1).to_bytes(size, "big")


def _double(value: float) -> bytes:
    if value != value:  # PostgreSQL sorts NaN after all other numbers
        return b"\xff" * 8
    # Positive doubles sort as bytes once the sign bit is set, negative ones once all bits are flipped.
    raw: bytes = struct.pack(">d", value)
    return bytes(byte ^ 0xFF for byte in raw) if raw[0] & 0x80 else bytes((raw[0] | 0x80,)) + raw[1:]


def _text(value: str) -> bytes:
    return bytes((_TEXT,)) + _escaped(value.encode()) + b"\0"


def _number(value: Decimal) -> bytes:
    """Sorts by the nearest double, then by spelling."""
    return bytes((_FLOAT,)) + _double(float(value)) + bytes((_EXACT,)) + _escaped(str(value).encode()) + b"\0"


def _one_zero(value: Value) -> Value:
    return 0.0 if type(value) is float and value == 0 else value


def _document(value: Value) -> bytes:
    return bytes((_DOCUMENT,)) + _escaped(exact_json.dumps(value)) + b"\0"


def _escaped(raw: bytes) -> bytes:
    # A plain zero ends a value, so that a prefix sorts before everything that is longer.
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
