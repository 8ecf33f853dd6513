"""Bounds-checked big-endian reads: the only module of the decoder that uses ``struct``.

Cold messages go through ``Reader``. The tuple loop imports the precompiled unpackers and checks its bounds itself.
"""

from __future__ import annotations

import struct
from typing import Final

from cdc.base.errors import DecodeError

StructError = struct.error

_U16 = struct.Struct(">H")
_U32 = struct.Struct(">I")
_I32 = struct.Struct(">i")
_U64 = struct.Struct(">Q")
_I64 = struct.Struct(">q")

unpack_u16 = _U16.unpack_from
unpack_u32 = _U32.unpack_from
unpack_length = struct.Struct(">xI").unpack_from  # a text cell's length, which follows the byte for its kind
unpack_row_head = struct.Struct(">IB").unpack_from  # relation id, tuple tag

STANDBY_STATUS: Final = struct.Struct(">BQQQqB")
XLOG_DATA: Final = struct.Struct(">QQq")
KEEPALIVE: Final = struct.Struct(">QqB")

POSTGRES_EPOCH_US: Final = 946_684_800_000_000
"""2000-01-01 UTC in µs since 1970. The server counts time from there."""


class Reader:
    """Reads one message from front to back.

    Args:
        kind: the message's name, for errors.
        data: the whole message.
        offset: where to begin.
    """

    __slots__ = ("_data", "_kind", "offset")

    def __init__(self, kind: str, data: bytes, offset: int = 0) -> None:
        self._kind = kind
        self._data = data
        self.offset = offset

    def u8(self) -> int:
        return self.raw(1)[0]

    def flag(self) -> bool:
        """Returns a byte that must be 0 or 1; any other bit would mean something that we do not know."""
        value = self.u8()
        if value > 1:
            raise self.error(f"unknown flags 0x{value:02x}", self.offset - 1)
        return value == 1

    def u16(self) -> int:
        return int(_U16.unpack(self.raw(2))[0])

    def u32(self) -> int:
        return int(_U32.unpack(self.raw(4))[0])

    def i32(self) -> int:
        return int(_I32.unpack(self.raw(4))[0])

    def u64(self) -> int:
        return int(_U64.unpack(self.raw(8))[0])

    def unix_us(self) -> int:
        """Returns a server timestamp as µs since 1970."""
        return int(_I64.unpack(self.raw(8))[0]) + POSTGRES_EPOCH_US

    def raw(self, length: int) -> bytes:
        """Returns exactly ``length`` bytes."""
        start, self.offset = self.offset, self.offset + length
        if self.offset > len(self._data):
            raise self.error(f"truncated: {length} bytes wanted, {len(self._data) - start} left", start)
        return self._data[start : self.offset]

    def string(self) -> str:
        """Returns a string up to its NUL."""
        start = self.offset
        end = self._data.find(b"\0", start)
        if end < 0:
            raise self.error("truncated: string without end", start)
        self.offset = end + 1
        try:
            return self._data[start:end].decode()
        except UnicodeDecodeError as error:
            raise self.error("string is not UTF-8", start) from error

    def end(self) -> None:
        """Refuse a message that goes on."""
        if self.offset != len(self._data):
            raise self.error(f"{len(self._data) - self.offset} bytes too many", self.offset)

    def error(self, problem: str, offset: int) -> DecodeError:
        return decode_error(self._kind, offset, problem)


def decode_error(kind: str, offset: int, problem: str) -> DecodeError:
    """Returns an error that says which message it is, where in it, and what is wrong; the only form of such errors."""
    return DecodeError(
        f"{kind} message, byte {offset}: {problem}",
        remedy="report this with the server's version; the slot keeps the data, nothing was confirmed",
    )
