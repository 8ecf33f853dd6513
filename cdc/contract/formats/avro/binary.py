"""Avro's binary numbers. Pure.

https://avro.apache.org/docs/1.12.0/specification/#binary-encoding
"""

from __future__ import annotations

from cdc.contract.formats.varints import read_unsigned, unsigned


def varint(number: int) -> bytes:
    """Returns an ``int`` or a ``long``: zig-zag, which makes small negative numbers short."""
    return unsigned(number << 1 if number >= 0 else ~(number << 1))


def read_varint(value: bytes, place: int) -> tuple[int, int]:
    """Returns the number that begins at a place, and the place after it. Raises what ``read_unsigned`` raises."""
    number, after = read_unsigned(value, place)
    return number >> 1 ^ -(number & 1), after
