"""COPY text lines: NULL, the empty string and every escape."""

from __future__ import annotations

import pytest

from cdc.bridge.decode.copy_text import parse_line


@pytest.mark.parametrize(
    ("line", "row"),
    [
        (b"1\tab\t\n", (b"1", b"ab", b"")),
        (b"\\N\t\\\\N\tN\n", (None, b"\\N", b"N")),
        (b"\\b\\f\\n\\r\\t\\v\\\\\n", (b"\b\f\n\r\t\v\\",)),
        (b"\\\\n\\\\\\n\n", (b"\\n\\\n",)),
        (b"\n", (b"",)),
        ("é\t\\\\x00\n".encode(), ("é".encode(), b"\\x00")),
    ],
)
def test_a_line(line: bytes, row: tuple[bytes | None, ...]) -> None:
    assert parse_line(line) == row
