"""LSN: a byte position in PostgreSQL's write-ahead log."""

from __future__ import annotations

import re

_TEXT = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


class LSN(int):
    """A WAL position: totally ordered, ``X/Y`` as text, and a number of bytes in arithmetic.

    https://www.postgresql.org/docs/current/datatype-pg-lsn.html
    """

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> LSN:
        """Parse the server's ``X/Y`` form.

        Raises:
            ValueError: the text is not an LSN.
        """
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError(f"invalid LSN {text!r}: write X/Y, for instance 0/1925728")
        return cls(int(match[1], 16) << 32 | int(match[2], 16))

    def __str__(self) -> str:
        return f"{int(self) >> 32:X}/{int(self) & 0xFFFFFFFF:X}"

    def __repr__(self) -> str:
        return f"LSN({self})"


ZERO = LSN(0)
