"""Values are absolute: what a delta hides in is refused before it is written.

A compacted topic keeps the last record of a key. If that record says ``balanceDelta: 10``, the balance is lost, and a
record that is written twice counts twice. ``balance: 110`` survives both.

The rule looks at names, because values do not tell. A field is taken for a delta when

- ``delta``, ``increment`` or ``decrement`` is one of the words of its name (``balanceDelta``, ``stock_delta``,
  ``incrementBy``); "deltas" and "incremental" are other words;
- or the last of several words is ``by`` and its value is a number (``changedBy: 3``; ``createdBy: "ann"`` is none).

A name that the rule takes for a delta and is none goes into ``absolute_fields``.
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
    """Look at every field, at any depth.

    Args:
        value: as JSON has it.
        absolute_fields: names that are no deltas, whatever they look like.

    Raises:
        ValueRefused: a field looks like a delta.
    """
    for field, content in _fields(value):
        if field not in absolute_fields and looks_like_delta(field, content):
            raise ValueRefused(
                f"field {field!r} looks like a delta, and a compacted topic keeps only the last one of a key",
                remedy="write the value that results (balance, not balanceDelta), or append deltas to an EventSourced "
                f"topic; if it is none, say so: absolute_fields=({field!r},)",
            )


def looks_like_delta(field: str, content: object) -> bool:
    """Whether a field of this name with this value is taken for a delta."""
    words = _words(field)
    if _DELTA_WORDS.intersection(words):
        return True
    is_number = isinstance(content, int | float) and not isinstance(content, bool)
    return is_number and len(words) > 1 and words[-1] == "by"


@lru_cache(maxsize=4096)
def _words(field: str) -> tuple[str, ...]:
    """Of a name; the same few come again and again."""
    return tuple(word.lower() for word in _WORD.findall(field))


def _fields(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for field, content in value.items():
            yield field, content
            yield from _fields(content)
    elif isinstance(value, list):
        for content in value:
            yield from _fields(content)
