"""Refuses values that contain a delta, before they are written: values of a compacted topic must be absolute.

A compacted topic keeps the last record of a key. If that record says ``balanceDelta: 10``, the balance is lost; and if
it is written twice, it counts twice. ``balance: 110`` survives both.

The rule looks at field names, because values do not tell. A field is taken for a delta in two cases:

- One word of its name is ``delta``, ``increment`` or ``decrement``, as in ``balanceDelta``, ``stock_delta`` or
  ``incrementBy``. "deltas" and "incremental" are other words.
- The last of several words is ``by``, and the value is a number: ``changedBy: 3``, but not ``createdBy: "ann"``.

If the rule is wrong about a field, name the field in ``absolute_fields``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Any, Final

from cdc.base.errors import ValueRefused

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_DELTA_WORDS: Final = frozenset({"delta", "increment", "decrement"})


def refuse_deltas(value: Any, absolute_fields: Collection[str] = ()) -> None:
    """Checks every field, at any depth.

    Args:
        value: a parsed JSON value.
        absolute_fields: names of fields that are not deltas, whatever they look like.

    Raises:
        ValueRefused: a field looks like a delta.
    """
    for field, content in _fields(value):
        if field not in absolute_fields and looks_like_delta(field, content):
            raise ValueRefused(
                f"field {field!r} looks like a delta, and a compacted topic keeps only the last delta of a key",
                remedy="write the resulting value (balance, not balanceDelta), or append deltas to an EventSourced "
                f"topic; if the field is not a delta, say so: absolute_fields=({field!r},)",
            )


def looks_like_delta(field: str, content: object) -> bool:
    """Returns whether a field with this name and value is taken for a delta."""
    words = _words(field)
    if _DELTA_WORDS.intersection(words):
        return True
    is_number = isinstance(content, int | float) and not isinstance(content, bool)
    return is_number and len(words) > 1 and words[-1] == "by"


@lru_cache(maxsize=4096)
def _words(field: str) -> tuple[str, ...]:
    """Splits a name into its words in lower case. Cached, because values have the same few names."""
    return tuple(word.lower() for word in _WORD.findall(field))


def _fields(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for field, content in value.items():
            yield field, content
            yield from _fields(content)
    elif isinstance(value, list):
        for content in value:
            yield from _fields(content)
