"""Prepares values of rows for display: marks what differs, cuts long ones in the middle, makes everything visible."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Final, Literal, TypeAlias

Span: TypeAlias = tuple[int, int]

# Longer values are cut. A whole hash or a document of a few lines fits; a page of text does not.
SHOWN_CHARACTERS: Final = 320
_EDGE: Final = 90
# The cost of comparing character by character is the product of both lengths.
_COMPARED_CHARACTERS: Final = 400
_CONTROL_NAMES: Final = """NUL SOH STX ETX EOT ENQ ACK BEL BS TAB LF VT FF CR SO SI
DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB ESC FS GS RS US"""
_CONTROL: Final = tuple(_CONTROL_NAMES.split())
_NAMED: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}


@dataclass(frozen=True, slots=True)
class ValuePiece:
    """A part of a value: plain text, one invisible character, or a note about a part that was left out."""

    text: str
    kind: Literal["plain", "invisible", "left_out"]
    differs: bool


def differing_spans(one: str, other: str) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """Returns where two texts differ, as spans of the one and spans of the other."""
    start = _common(one, other)
    tail = min(_common(one[::-1], other[::-1]), len(one) - start, len(other) - start)
    left, right = one[start : len(one) - tail], other[start : len(other) - tail]
    if not left or not right or max(len(left), len(right)) > _COMPARED_CHARACTERS:
        return _span(start, len(left)), _span(start, len(right))
    matcher = SequenceMatcher(None, left, right, autojunk=False)
    if matcher.ratio() < 0.5:
        # Two unlike texts share single letters by chance; marking around those would tell nothing.
        return _span(start, len(left)), _span(start, len(right))
    changes = [code for code in matcher.get_opcodes() if code[0] != "equal"]
    return (
        tuple((start + a, start + b) for _, a, b, _, _ in changes if a < b),
        tuple((start + a, start + b) for _, _, _, a, b in changes if a < b),
    )


def pieces(value: str, differing: tuple[Span, ...] = ()) -> Iterator[ValuePiece]:
    """Divides a value into the parts that a view shows one after the other."""
    end = 0
    for first, last in _kept(len(value), differing):
        if first > end:
            hidden = any(a < first and b > end for a, b in differing)
            yield ValuePiece(f"{first - end:,} characters left out", "left_out", hidden)
        yield from _runs(value, first, last, differing)
        end = last


def ascii_text(value: str | None) -> str:
    """Writes a value on one line of plain ASCII, with escapes for everything else; a long one is cut in the middle."""
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
    """Returns a sentence or a label, without its middle if it is long."""
    return "".join(f" [{each.text}] " if each.kind == "left_out" else each.text for each in pieces(text))


def picture(letter: str) -> str:
    """Returns what to show for an invisible character: its ASCII name or its number, which any font can show."""
    code = ord(letter)
    return _CONTROL[code] if code < len(_CONTROL) else f"U+{code:04X}"


def escaped(letter: str) -> str:
    """Returns a printable ASCII character unchanged, and the escape of any other."""
    code = ord(letter)
    if 32 <= code < 127:
        return letter
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"


def is_invisible(letter: str) -> bool:
    """Tells whether a character is invisible or changes how its neighbours are shown."""
    return unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") or letter == "\xa0"


def _common(one: str, other: str) -> int:
    for index, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return index
    return min(len(one), len(other))


def _span(start: int, length: int) -> tuple[Span, ...]:
    return ((start, start + length),) if length else ()


def _kept(length: int, differing: tuple[Span, ...]) -> list[Span]:
    """Returns the spans to show of a long value: head, tail, and the surroundings of the first difference."""
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
