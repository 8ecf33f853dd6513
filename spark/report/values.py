"""Values of rows, made fit to be looked at: what differs in them, long ones cut in the middle, nothing invisible."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Final, Literal, TypeAlias

Span: TypeAlias = tuple[int, int]

# Longer ones are cut. A document of some lines or a hash in full fits; a page of text does not.
SHOWN_CHARACTERS: Final = 320
_EDGE: Final = 90
# Comparing character by character costs the product of both lengths.
_COMPARED_CHARACTERS: Final = 400
_CONTROL_NAMES: Final = """NUL SOH STX ETX EOT ENQ ACK BEL BS TAB LF VT FF CR SO SI
DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB ESC FS GS RS US"""
_CONTROL: Final = tuple(_CONTROL_NAMES.split())
_NAMED: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}


@dataclass(frozen=True, slots=True)
class ValuePiece:
    """A part of a value: as it is, a character that has no picture, or a note about a part left out."""

    text: str
    kind: Literal["plain", "invisible", "left_out"]
    differs: bool


def differing_spans(one: str, other: str) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """Where two texts differ: spans of the one, spans of the other."""
    start = _common(one, other)
    tail = min(_common(one[::-1], other[::-1]), len(one) - start, len(other) - start)
    left, right = one[start : len(one) - tail], other[start : len(other) - tail]
    if not left or not right or max(len(left), len(right)) > _COMPARED_CHARACTERS:
        return _span(start, len(left)), _span(start, len(right))
    matcher = SequenceMatcher(None, left, right, autojunk=False)
    if matcher.ratio() < 0.5:
        # Marks on single letters that two unlike words happen to share say nothing.
        return _span(start, len(left)), _span(start, len(right))
    changes = [code for code in matcher.get_opcodes() if code[0] != "equal"]
    return (
        tuple((start + a, start + b) for _, a, b, _, _ in changes if a < b),
        tuple((start + a, start + b) for _, _, _, a, b in changes if a < b),
    )


def pieces(value: str, differing: tuple[Span, ...] = ()) -> Iterator[ValuePiece]:
    """A value in the parts that a view shows one after the other."""
    end = 0
    for first, last in _kept(len(value), differing):
        if first > end:
            hidden = any(a < first and b > end for a, b in differing)
            yield ValuePiece(f"{first - end:,} characters left out", "left_out", hidden)
        yield from _runs(value, first, last, differing)
        end = last


def ascii_text(value: str | None) -> str:
    """A value on one line of plain ASCII: escapes for all else, cut in the middle when long."""
    if value is None:
        return "NULL"
    parts = [
        f" [{piece.text}] "
        if piece.kind == "left_out"
        else "".join(_NAMED.get(letter) or escaped(letter) for letter in piece.text)
        for piece in pieces(value)
    ]
    return "'" + "".join(parts).replace("'", "''") + "'"


def shortened(text: str) -> str:
    """A sentence or a label as it is, or with its middle left out when it is long."""
    return "".join(f" [{each.text}] " if each.kind == "left_out" else each.text for each in pieces(text))


def picture(letter: str) -> str:
    """What stands for a character that has no picture: its ASCII name, else its number. Any font can show it."""
    code = ord(letter)
    return _CONTROL[code] if code < len(_CONTROL) else f"U+{code:04X}"


def escaped(letter: str) -> str:
    """A character as it is when it is printable ASCII, else its escape."""
    code = ord(letter)
    if 32 <= code < 127:
        return letter
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"


def is_invisible(letter: str) -> bool:
    """Whether a character has no picture, or changes how its neighbours are shown."""
    return unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") or letter == "\xa0"


def _common(one: str, other: str) -> int:
    for index, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return index
    return min(len(one), len(other))


def _span(start: int, length: int) -> tuple[Span, ...]:
    return ((start, start + length),) if length else ()


def _kept(length: int, differing: tuple[Span, ...]) -> list[Span]:
    """Head, tail, and the neighbourhood of the first difference."""
    if length <= SHOWN_CHARACTERS:
        return [(0, length)]
    spans = [(0, _EDGE), (length - _EDGE // 2, length)]
    if differing:
        first = differing[0][0]
        spans.append((max(0, first - _EDGE // 2), min(length, first + _EDGE)))
    merged: list[Span] = []
    for first, last in sorted(spans):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged


def _runs(value: str, first: int, last: int, differing: tuple[Span, ...]) -> Iterator[ValuePiece]:
    edges = sorted({first, last, *(edge for span in differing for edge in span if first < edge < last)})
    for start, end in pairwise(edges):
        differs = any(a <= start < b for a, b in differing)
        run = start
        for index in range(start, end):
            if is_invisible(value[index]):
                if run < index:
                    yield ValuePiece(value[run:index], "plain", differs)
                yield ValuePiece(value[index], "invisible", differs)
                run = index + 1
        if run < end:
            yield ValuePiece(value[run:end], "plain", differs)
