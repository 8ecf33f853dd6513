"""Protobuf's numbers, tags and lengths, and the head of a value in Confluent's wire format. Pure.

The head is a zero byte, the schema's id in four bytes, and the place of the value's message in the schema: a zero byte
for the first message.
https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import enum
from typing import Final

from cdc.contract.formats import registered
from cdc.contract.formats.varints import unsigned

HEAD_BYTES: Final = registered.HEAD_BYTES + 1
"""The length of the head."""
_WHOLE: Final = (1 << 64) - 1
_SIGN: Final = 1 << 63


class WireType(enum.IntEnum):
    """How the bytes after a tag are to be counted."""

    VARINT = 0
    EIGHT_BYTES = 1
    COUNTED = 2
    FOUR_BYTES = 5


def varint(number: int) -> bytes:
    """Returns an integer of up to 64 bits; a negative one takes ten bytes."""
    return unsigned(number & _WHOLE)


def tag(number: int, wire_type: WireType) -> bytes:
    """Returns what precedes the value of a field with this number."""
    return varint(number << 3 | wire_type)


def signed(number: int) -> int:
    """Returns the number with sign that has these 64 bits."""
    return number - (_SIGN << 1) if number & _SIGN else number


def head(schema_id: int) -> bytes:
    """Returns the first bytes of a value.

    Raises:
        ValueError: such an id does not exist.
    """
    return registered.head(schema_id) + b"\0"


def check_head(value: bytes) -> None:
    """Check that a value has Confluent's wire format, and is the schema's first message.

    Raises:
        ValueError: it is not.
    """
    registered.check_head(value)
    if value[registered.HEAD_BYTES : HEAD_BYTES] != b"\0":
        raise ValueError(f"not the first message of its schema: {value[:HEAD_BYTES].hex()}")
