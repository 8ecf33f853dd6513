"""Numbers of variable length: seven bits a byte, the lowest first; the highest bit says that more bytes follow. Pure.

Avro (https://avro.apache.org/docs/1.12.0/specification/#binary-encoding) and Protobuf
(https://protobuf.dev/programming-guides/encoding/#varints) share them, and differ in where they put the sign.
"""

from __future__ import annotations

from typing import Final

# Two bytes at a time: numbers need up to five look-ups instead of ten steps.
_LAST: Final = [bytes((n,)) if n < 0x80 else bytes((n & 0x7F | 0x80, n >> 7)) for n in range(1 << 14)]
_MORE: Final = [bytes((n & 0x7F | 0x80, n >> 7 | 0x80)) for n in range(1 << 14)]


def unsigned(number: int) -> bytes:
    """Returns the bytes of a number without sign of up to 64 bits."""
    if number < 1 << 14:
        return _LAST[number]
    if number < 1 << 28:
        return _MORE[number & 0x3FFF] + _LAST[number >> 14]
    written = _MORE[number & 0x3FFF] + _MORE[number >> 14 & 0x3FFF]
    if number < 1 << 42:
        return written + _LAST[number >> 28]
    if number < 1 << 56:
        return written + _MORE[number >> 28 & 0x3FFF] + _LAST[number >> 42]
    return written + _MORE[number >> 28 & 0x3FFF] + _MORE[number >> 42 & 0x3FFF] + _LAST[number >> 56]


def read_unsigned(value: bytes, place: int) -> tuple[int, int]:
    """Returns the number that begins at a place, and the place after it.

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
