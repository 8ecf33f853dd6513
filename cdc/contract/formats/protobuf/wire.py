"""Protobuf's numbers, tags and lengths, and the head of a value in Confluent's wire format. Pure.

The head is a zero byte, the schema's id in four bytes, and the place of the value's message in the schema: a zero byte
for the first message.
https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import enum
from typing import Final

HEAD_BYTES: Final = 6
"""The length of the head."""
_MOST_IDS: Final = 1 << 32
_WHOLE: Final = (1 << 64) - 1
_SIGN: Final = 1 << 63

# Two bytes at a time, as in Avro's binary.py
_LAST: Final = [bytes((n,)) if n < 0x80 else bytes((n & 0x7F | 0x80, n >> 7)) for n in range(1 << 14)]
_MORE: Final = [bytes((n & 0x7F | 0x80, n >> 7 | 0x80)) for n in range(1 << 14)]


class WireType(enum.IntEnum):
    """How the bytes after a tag are to be counted."""

    VARINT = 0
    EIGHT_BYTES = 1
    COUNTED = 2
    FOUR_BYTES = 5


def varint(number: int) -> bytes:
    """Returns an integer of up to 64 bits: seven bits a byte, the lowest first; a negative one takes ten bytes."""
    rest = number & _WHOLE
    if rest < 1 << 14:
        return _LAST[rest]
    written = b""
    while rest >= 1 << 14:
        written += _MORE[rest & 0x3FFF]
        rest >>= 14
    return written + _LAST[rest]


def tag(number: int, wire_type: WireType) -> bytes:
    """Returns what precedes the value of a field with this number."""
    return varint(number << 3 | wire_type)


def read_varint(value: bytes, place: int) -> tuple[int, int]:
    """Returns the number without sign that begins at a place, and the place after it.

    Raises:
        IndexError: the value ends too early.
        ValueError: the number has more than 64 bits, or more bytes than it needs.
    """
    byte = value[place]
    if byte < 0x80:
        return byte, place + 1
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
    return number, place + 1


def signed(number: int) -> int:
    """Returns the number with sign that has these 64 bits."""
    return number - (_SIGN << 1) if number & _SIGN else number


def head(schema_id: int) -> bytes:
    """Returns the first bytes of a value.

    Raises:
        ValueError: such an id does not exist.
    """
    if not 0 <= schema_id < _MOST_IDS:
        raise ValueError(f"not a schema id: {schema_id}")
    return b"\0" + schema_id.to_bytes(4, "big") + b"\0"


def check_head(value: bytes) -> None:
    """Check that a value has Confluent's wire format, and is the schema's first message.

    Raises:
        ValueError: it is not.
    """
    if len(value) < HEAD_BYTES:
        raise ValueError(f"not a Protobuf value in Confluent's wire format: it has only {len(value)} bytes")
    if value[0]:
        raise ValueError(
            f"not a Protobuf value in Confluent's wire format: it begins with {value[0]:#04x} instead of 0"
        )
    if value[HEAD_BYTES - 1]:
        raise ValueError(f"not the first message of its schema: byte {value[HEAD_BYTES - 1]:#04x} follows the id")
