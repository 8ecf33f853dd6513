"""Turns lines of ``COPY … TO STDOUT`` in text format into rows, with the values' text as in the stream.

https://www.postgresql.org/docs/current/sql-copy.html#SQL-COPY-FILE-FORMATS
"""

from __future__ import annotations

import re
from typing import Final

from cdc.contract.change import Row

_ESCAPE: Final = re.compile(rb"\\(.)", re.DOTALL)
_ESCAPED: Final = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


def parse_line(line: bytes) -> Row:
    r"""Returns one row. ``\N`` becomes NULL; a backslash before any other character that the server escapes is undone.

    Args:
        line: the line as one CopyData message holds it, with its line end.
    """
    cells = line[:-1].split(b"\t")
    if b"\\" not in line:
        return tuple(cells)
    return tuple([cell if b"\\" not in cell else None if cell == b"\\N" else _unescape(cell) for cell in cells])


def _unescape(cell: bytes) -> bytes:
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]), cell)
