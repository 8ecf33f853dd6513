"""Splits the text of a JSON object or array into the unchanged texts of its members. Pure.

Parsing into Python's values would lose what has to be compared: ``1.50``, 38 digits, ``1e2``, blanks in a document. So
the parser only says where each value ends, and the text is kept, blanks included. The bridge writes no blanks between
tokens, but a ``json`` document may begin or end with some.
"""

from __future__ import annotations

import json
import re
from typing import Final, NoReturn

from cdc.base.errors import DecodeError
from cdc.contract.json_members import member_texts

_BLANK: Final = " \t\n\r"
_blanks = re.compile(r"[ \t\n\r]*").match
_STRING: Final = r'"([^"\\\x00-\x1f]*)"'
_NUMBER: Final = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"
_plain_string = re.compile(_STRING).fullmatch
_SCALAR: Final = rf"{_STRING}|{_NUMBER}|true|false|null"
_plain_member = re.compile(rf"{_STRING}:({_SCALAR})([,}}])").match
"""Matches a member without blanks and escapes whose value is neither an object nor an array, and what follows it. Most
are so, and one match costs a fifth of the steps that any member needs."""

_plain_array = re.compile(rf"\[(?:(?:{_SCALAR})(?:,(?:{_SCALAR}))*+)?\]").fullmatch
_elements = re.compile(_SCALAR).finditer
_BRACES_AND_STRINGS: Final = re.compile(r'[\[\]{}]|"(?:[^"\\]|\\.)*+"', re.DOTALL).finditer


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


# Numbers stay text: Python refuses to convert more than 4300 digits to an int.
_END_OF_VALUE: Final = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_no_constant)


def split_object(text: str) -> dict[str, str]:
    """Returns the text of each member's value, by name and in order.

    Raises:
        DecodeError: the text is not exactly one JSON object, or a member comes twice.
    """
    members: dict[str, str] = {}
    place = _open(text, "{", "object")
    if text.startswith("}", place):
        _expect_end(text, place + 1)
        return members
    while True:
        if (plain := _plain_member(text, place)) is not None and (name := plain[1]) not in members:
            members[name] = plain[2]
            place = plain.end()
            if plain[4] == ",":
                continue
            _expect_end(text, place)
            return members
        place = _skip(text, place)
        if not text.startswith('"', place):
            raise _malformed(text, place, "a member's name")
        key, place = _value(text, place)
        name, place = str(key), _skip(text, place)
        if not text.startswith(":", place):
            raise _malformed(text, place, "':'")
        if name in members:
            raise DecodeError(f"the member {name!r} comes twice in the object {_excerpt(text, 0)}")
        start = place + 1
        place = _skip(text, _value(text, _skip(text, start))[1])
        members[name] = text[start:place]
        if text.startswith("}", place):
            _expect_end(text, place + 1)
            return members
        place = _comma(text, place, "}")


def split_array(text: str) -> list[str]:
    """Returns the elements' texts in order; a nested array is one element.

    Raises:
        DecodeError: the text is not exactly one JSON array.
    """
    if _plain_array(text) is not None:
        return [each[0] for each in _elements(text)]
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
    """Returns the content of a JSON string.

    Raises:
        DecodeError: the text is not exactly one JSON string.
    """
    if (plain := _plain_string(text)) is not None:
        return plain[1]
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
    # Blanks after the brace belong to the first element, if there is one.
    after = _skip(text, start + 1)
    return after if text[after : after + 1] in ("}", "]") else start + 1


def _value(text: str, place: int) -> tuple[object, int]:
    try:
        return _END_OF_VALUE.raw_decode(text, place)
    except ValueError as error:
        raise _malformed(text, place, "a JSON value") from error
    except RecursionError:
        end = _end_of_deep_value(text, place)
        try:
            member_texts(f'{{"deep":{text[place:end]}}}')
        except ValueError as error:
            raise _malformed(text, place, "a JSON value") from error
        return text, end


def _end_of_deep_value(text: str, place: int) -> int:
    """Returns where an object or array ends that is too deep for the parser; PostgreSQL took it."""
    depth = 0
    for token in _BRACES_AND_STRINGS(text, place):
        if token[0] in "[{":
            depth += 1
        elif token[0] in "]}":
            depth -= 1
            if not depth:
                return token.end()
    raise _malformed(text, place, "a JSON value")


def _comma(text: str, place: int, closing: str) -> int:
    if not text.startswith(",", place):
        raise _malformed(text, place, f"',' or {closing!r}")
    return place + 1


def _expect_end(text: str, place: int) -> None:
    place = _skip(text, place)
    if place != len(text):
        raise _malformed(text, place, "the end")


def _skip(text: str, place: int) -> int:
    if place < len(text) and text[place] not in _BLANK:
        return place
    match = _blanks(text, place)
    assert match is not None  # the pattern also matches the empty text
    return match.end()


def _malformed(text: str, place: int, expected: str) -> DecodeError:
    return DecodeError(f"expected {expected} at character {place}: {_excerpt(text, place)}")


def _excerpt(text: str, place: int) -> str:
    return repr(text[max(place - 20, 0) : place + 40])
