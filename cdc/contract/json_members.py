"""Takes JSON apart without reading it: members and elements as they are written, with every digit and blank. Pure.

PostgreSQL's ``json`` and ``jsonb`` hold more than parsers take: thousands of nested arrays, and in ``json`` half a
surrogate pair (``"\\ud800"``). msgspec takes apart what it can, because it is fast. What it refuses is read again
here, by RFC 8259 alone and without recursion.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

import msgspec

Source: TypeAlias = "bytes | str | msgspec.Raw"

_STRING: Final = rb'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4}))*+"'
_NUMBER: Final = rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_TOKEN: Final = re.compile(
    rb"[ \t\n\r]*(?:(?P<string>%b)|(?P<plain>%b|true|false|null)|(?P<mark>[\[\]{}:,]))" % (_STRING, _NUMBER)
).match
_BLANKS: Final = b" \t\n\r"

_decode_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_elements: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_name: Final = msgspec.json.Decoder(str).decode


def members(source: Source) -> dict[str, msgspec.Raw]:
    """Returns the values of an object by name; of two with one name, the last.

    Raises:
        msgspec.DecodeError: not a JSON object.
    """
    try:
        return _decode_members(source)
    except (msgspec.DecodeError, RecursionError) as error:
        return {_decode_name(name): value for name, value in _parts(source, b"{", error)}


def member_texts(source: str) -> dict[str, str]:
    """Returns the values of an object by name, as texts: numbers and documents keep their spelling.

    Raises:
        ValueError: not a JSON object.
    """
    try:
        return {name: bytes(value).decode().strip() for name, value in members(source).items()}
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from error


def elements(source: Source) -> list[msgspec.Raw]:
    """Returns the elements of an array.

    Raises:
        msgspec.DecodeError: not a JSON array.
    """
    try:
        return _decode_elements(source)
    except (msgspec.DecodeError, RecursionError) as error:
        return [value for _, value in _parts(source, b"[", error)]


def _parts(source: Source, opening: bytes, error: Exception) -> list[tuple[bytes, msgspec.Raw]]:
    """Returns names and values of an object, or elements of an array; raises an error where there is no such thing."""
    text = source.encode() if isinstance(source, str) else bytes(source)
    text = text.strip(_BLANKS)
    spans = _spans(text) if text.startswith(opening) else None
    if spans is None:
        raise msgspec.DecodeError(str(error)) from error
    return [(name, msgspec.Raw(text[start:end].strip(_BLANKS))) for name, start, end in spans]


def _spans(text: bytes) -> list[tuple[bytes, int, int]] | None:
    """Returns the name, begin and end of each value in the outermost object or array; None if it is not valid JSON."""
    spans: list[tuple[bytes, int, int]] = []
    open_marks = bytearray()
    name, start, place = b"", 1, 0
    # What may come next: a value, a name, a colon, or what follows a value. "first" also takes the closing mark
    expected, is_first = "value", False
    while place < len(text):
        token = _TOKEN(text, place)
        if token is None:
            return None
        mark, string = token["mark"], token["string"]
        if expected == "name" and string is not None:
            expected, is_first = "colon", False
            if len(open_marks) == 1:
                name = string
        elif expected == "colon" and mark == b":":
            expected = "value"
            if len(open_marks) == 1:
                start = token.end()
        elif expected == "value" and mark in (b"{", b"["):
            open_marks += mark
            expected, is_first = "name" if mark == b"{" else "value", True
        elif expected == "value" and mark is None:
            expected, is_first = "next", False
        elif mark == b"," and expected == "next" and open_marks:
            if len(open_marks) == 1:
                spans.append((name, start, token.start("mark")))
                start = token.end()
            expected = "name" if open_marks.endswith(b"{") else "value"
        elif open_marks and mark == (b"}" if open_marks.endswith(b"{") else b"]") and (expected == "next" or is_first):
            if len(open_marks) == 1 and not is_first:
                spans.append((name, start, token.start("mark")))
            del open_marks[-1:]
            expected, is_first = "next", False
        else:
            return None
        place = token.end()
    return spans if expected == "next" and not open_marks else None
