"""Avro's binary numbers, and Confluent's head of a value: a zero byte and the schema's id. Pure.

https://avro.apache.org/docs/1.12.0/specification/#binary-encoding
"""

from __future__ import annotations

from typing import Final

HEAD_BYTES: Final = 5
"""The length of the head."""
_MOST_IDS: Final = 1 << 32

# Two bytes at a time: numbers need up to five look-ups instead of ten steps.
_LAST: Final = [bytes((n,)) if n < 0x80 else bytes((n & 0x7F | 0x80, n >> 7)) for n in range(1 << 14)]
_MORE: Final = [bytes((n & 0x7F | 0x80, n >> 7 | 0x80)) for n in range(1 << 14)]


def varint(number: int) -> bytes:
    """Returns an ``int`` or a ``long``: zig-zag, seven bits a byte, the lowest first."""
    rest = number << 1 if number >= 0 else ~(number << 1)
    if rest < 1 << 14:
        return _LAST[rest]
    if rest < 1 << 28:
        return _MORE[rest & 0x3FFF] + _LAST[rest >> 14]
    written = _MORE[rest & 0x3FFF] + _MORE[rest >> 14 & 0x3FFF]
    if rest < 1 << 42:
        return written + _LAST[rest >> 28]
    if rest < 1 << 56:
        return written + _MORE[rest >> 28 & 0x3FFF] + _LAST[rest >> 42]
    return written + _MORE[rest >> 28 & 0x3FFF] + _MORE[rest >> 42 & 0x3FFF] + _LAST[rest >> 56]


def read_varint(value: bytes, place: int) -> tuple[int, int]:
    """Returns the number that begins at a place, and the place after it.

    Raises:
        IndexError: the value ends too early.
        ValueError: the number has more than 64 bits, or more bytes than it needs.
    """
    byte = value[place]
    if byte < 0x80:
        return byte >> 1 ^ -(byte & 1), place + 1
    number, shift = byte & 0x7F, 7
    while True:
        place += 1
        byte = value[place]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise ValueError("a number is longer than 10 bytes")
    if number >> 64:
        raise ValueError("a number has more than 64 bits")
    if not byte:
        raise ValueError("a number is longer than it needs to be")
    return number >> 1 ^ -(number & 1), place + 1


def head(schema_id: int) -> bytes:
    """Returns the first bytes of a value.

    Raises:
        ValueError: such an id does not exist.
    """
    if not 0 <= schema_id < _MOST_IDS:
        raise ValueError(f"not a schema id: {schema_id}")
    return b"\0" + schema_id.to_bytes(4, "big")


def schema_id(value: bytes) -> int:
    """Returns the id of the schema with which a value was written.

    Raises:
        ValueError: the value does not have Confluent's wire format.
    """
    if len(value) < HEAD_BYTES:
        raise ValueError(f"not an Avro value in Confluent's wire format: it has only {len(value)} bytes")
    if value[0]:
        raise ValueError(f"not an Avro value in Confluent's wire format: it begins with {value[0]:#04x} instead of 0")
    return int.from_bytes(value[1:HEAD_BYTES], "big")
