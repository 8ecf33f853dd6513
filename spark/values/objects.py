"""The text of one JSON object or array → the text of each member, as it stands there. Pure.

Parsing into Python's numbers would lose what is to be compared: ``1.50``, 38 digits, ``1e2``, a document's blanks. So
the parser only says where each value ends, and the text in between is kept, blanks included: the bridge writes none
between tokens, but a ``json`` document may begin or end with some.
"""

from __future__ import annotations

import json
import re
from typing import Final, NoReturn

from cdc.base.errors import DecodeError

_blanks = re.compile(r"[ \t\n\r]*").match


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


# Numbers stay text: Python refuses to make an int of more than 4300 digits.
_END_OF_VALUE: Final = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_no_constant)


def split_object(text: str) -> dict[str, str]:
    """Member name → its value's text, in order.

    Raises:
        DecodeError: not one JSON object and nothing else, or a member comes twice.
    """
    members: dict[str, str] = {}
    place = _open(text, "{", "object")
    if text.startswith("}", place):
        _expect_end(text, place + 1)
        return members
    while True:
        place = _skip(text, place)
        if not text.startswith('"', place):
            raise _malformed(text, place, "a member's name")
        name, place = _value(text, place)
        place = _skip(text, place)
        if not text.startswith(":", place):
            raise _malformed(text, place, "':'")
        if name in members:
            raise DecodeError(f"the member {name!r} comes twice in the object {_excerpt(text, 0)}")
        start = place + 1
        place = _skip(text, _value(text, _skip(text, start))[1])
        members[str(name)] = text[start:place]
        if text.startswith("}", place):
            _expect_end(text, place + 1)
            return members
        place = _comma(text, place, "}")


def split_array(text: str) -> list[str]:
    """The elements' texts, in order; nested arrays are elements.

    Raises:
        DecodeError: not one JSON array and nothing else.
    """
    elements: list[str] = []
    place = _open(text, "[", "array")
    if text.startswith("]", place):
        _expect_end(text, place + 1)
        return elements
    while True:
        start = place
        place = _skip(text, _value(text, _skip(text, start))[1])
        elements.append(text[start:place])
        if text.startswith("]", place):
            _expect_end(text, place + 1)
            return elements
        place = _comma(text, place, "]")


def unquote(text: str) -> str:
    """The content of a JSON string.

    Raises:
        DecodeError: not one JSON string and nothing else.
    """
    start = _skip(text, 0)
    if not text.startswith('"', start):
        raise _malformed(text, start, "a string")
    content, place = _value(text, start)
    _expect_end(text, place)
    return str(content)


def _open(text: str, brace: str, what: str) -> int:
    start = _skip(text, 0)
    if not text.startswith(brace, start):
        raise _malformed(text, start, f"an {what}")
    # Blanks behind the brace are an element's, unless there is none.
    after = _skip(text, start + 1)
    return after if text[after : after + 1] in ("}", "]") else start + 1


def _value(text: str, place: int) -> tuple[object, int]:
    try:
        return _END_OF_VALUE.raw_decode(text, place)
    except ValueError as error:
        raise _malformed(text, place, "a JSON value") from error
    except RecursionError as error:
        raise DecodeError(f"nested too deeply to be read: {_excerpt(text, place)}") from error


def _comma(text: str, place: int, closing: str) -> int:
    if not text.startswith(",", place):
        raise _malformed(text, place, f"',' or {closing!r}")
    return place + 1


def _expect_end(text: str, place: int) -> None:
    place = _skip(text, place)
    if place != len(text):
        raise _malformed(text, place, "the end")


def _skip(text: str, place: int) -> int:
    match = _blanks(text, place)
    assert match is not None  # it matches nothing, too
    return match.end()


def _malformed(text: str, place: int, expected: str) -> DecodeError:
    return DecodeError(f"expected {expected} at character {place}: {_excerpt(text, place)}")


def _excerpt(text: str, place: int) -> str:
    return repr(text[max(place - 20, 0) : place + 40])
