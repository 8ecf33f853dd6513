"""How one input of the fuzzer becomes several arguments.

Parts are separated by a mark, not by lengths: then cutting, joining and copying parts, which is what a fuzzer does,
leaves the other parts as they are.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final

from cdc.contract.change import UNCHANGED_TOAST, Column, Row
from tests.support import random_rows

_MARK: Final = b"\xfe\xfd\xfc"
_NULL: Final = b"\xfaN"
_TOAST: Final = b"\xfaU"
LAYOUTS: Final = 16
SEEDS: Final = 40


def joined(choice: int, parts: Iterable[bytes]) -> bytes:
    """The inverse of ``split``."""
    return bytes((choice,)) + _MARK.join(parts)


def split(data: bytes) -> tuple[int, list[bytes]]:
    """A number below 256 that chooses something, and the parts."""
    return (data[0], data[1:].split(_MARK)) if data else (0, [b""])


@cache
def layout(number: int) -> tuple[Column, ...]:
    """The columns of one of ``LAYOUTS`` tables."""
    return random_rows.columns(random.Random(number % LAYOUTS))


def cells(parts: Sequence[bytes]) -> Row:
    """Parts as cells of a row."""
    return tuple([None if part == _NULL else UNCHANGED_TOAST if part == _TOAST else part for part in parts])


def parts_of(row: Row) -> list[bytes]:
    """The inverse of ``cells``."""
    return [_NULL if cell is None else _TOAST if cell is UNCHANGED_TOAST else cell for cell in row]
