"""Parses and writes array literals as PostgreSQL's ``array_out`` does: ``{a,"b c",NULL,{nested}}``, maybe with bounds.

https://www.postgresql.org/docs/current/arrays.html#ARRAYS-IO
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias

Array: TypeAlias = list[Any]
"""Nested lists of elements; None for NULL. (mypy does not support a recursive ``list[T | Array]``, which is invariant.)
"""

_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)


def _lexer(delimiter: str) -> Callable[[str, int], re.Match[str] | None]:
    # 1: brace or delimiter; 2: quoted element; 3: bare element. array_out writes no blanks between tokens.
    pattern = rf"""([{{}}{delimiter}])|"((?:[^"\\]|\\.)*)"|([^{{}}{delimiter}"\\]+)"""
    return re.compile(pattern, re.DOTALL).match


_LEXERS: Final = {delimiter: _lexer(delimiter) for delimiter in ",;"}
_QUOTE_NEEDED: Final = {delimiter: re.compile(rf'["\\{{}} \t\n\r\v\f{delimiter}]') for delimiter in ",;"}


def _bare(delimiter: str) -> Callable[[str], re.Match[str] | None]:
    element = rf'[^"\\{{}} \t\n\r\v\f{delimiter}]+'
    return re.compile(rf"\{{({element}(?:{delimiter}{element})*)\}}").fullmatch


_BARE: Final = {delimiter: _bare(delimiter) for delimiter in ",;"}


def bare_elements(literal: str, delimiter: str = ",") -> list[str] | None:
    """Returns the elements of a flat array if none has quotes or could be NULL; None for any other text.

    ``array_out`` writes these elements in this way. Parsing them costs much less than ``parse_array``.
    """
    match = _BARE[delimiter](literal)
    return None if match is None or "NULL" in literal.upper() else match[1].split(delimiter)


def parse_array(text: str, element: Callable[[str], Any], delimiter: str = ",") -> Array | None:
    """Parse a literal to nested lists; None if it has explicit bounds (``[2:3]={…}``), which JSON arrays cannot carry.

    Args:
        text: the server's text.
        element: applied to each element that is not NULL.
        delimiter: ``pg_type.typdelim`` of the element type: ``;`` for box.

    Raises:
        ValueError: not an array literal.
    """
    if text.startswith("["):
        return None
    match_at = _LEXERS[delimiter]
    top: Array = []
    open_lists = [top]
    offset, expects_value = 0, True
    while offset < len(text):
        token = match_at(text, offset)
        if token is None:
            raise ValueError(f"not an array literal at character {offset}")
        offset = token.end()
        mark, quoted, bare = token.groups()
        here = open_lists[-1]
        if mark == "{" and expects_value and (here is not top or not top):
            nested: Array = []
            here.append(nested)
            open_lists.append(nested)
        elif mark == "}" and here is not top and (not expects_value or not here):
            open_lists.pop()
            expects_value = False
        elif mark == delimiter and here is not top and not expects_value:
            expects_value = True
        elif mark is None and here is not top and expects_value:
            value = bare if quoted is None else _ESCAPE.sub(r"\1", quoted)
            here.append(None if bare == "NULL" else element(value))
            expects_value = False
        else:
            raise ValueError(f"not an array literal at character {token.start()}")
    if len(open_lists) != 1 or not top:
        raise ValueError("array literal without end")
    parsed: Array = top[0]
    return parsed


def array_literal(array: Array, delimiter: str = ",") -> str:
    """Returns the text that ``array_out`` would write for nested lists of strings and None."""
    needs_quotes = _QUOTE_NEEDED[delimiter].search

    def write(item: Any) -> str:
        if isinstance(item, list):
            return "{" + delimiter.join(map(write, item)) + "}"
        if item is None:
            return "NULL"
        text = str(item)
        if not text or text.upper() == "NULL" or needs_quotes(text):
            return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
        return text

    return write(array)
