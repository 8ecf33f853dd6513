"""When a key column is the one that it was: the rows then keep their keys. Pure; the only place that knows.

Theory of operation. A key column is its attribute number, its type, and the text that the type gives its values. Its
name says nothing: a column may be dropped and added again, or two columns may exchange their names. Rows that are there
already then have other keys without a word in the stream, so an UPDATE would write a second key and a DELETE would
leave the first one for ever.

A change of type keeps the keys only where it is on the list below. Each entry was tried against a server: the text is
the same before and after, and so are the bytes of the record's key. Of anything else nobody can tell.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from cdc.contract.record import SchemaColumn

_SPELLED: Final = re.compile(r"([a-z0-9]+)(?:\((\d+)(?:,(-?\d+))?\))?")
_UNLIMITED: Final = 1 << 32
_SAME_TEXT: Final[Mapping[str, frozenset[str]]] = {
    "int2": frozenset({"int4", "int8"}),
    "int4": frozenset({"int8"}),
    "varchar": frozenset({"text"}),
    "text": frozenset({"varchar"}),
}
"""Types without a limit that print every value of another one as it does, whatever that one's limit is."""

_GROWS: Final[Mapping[str, int]] = {
    "varchar": _UNLIMITED,
    "varbit": _UNLIMITED,
    **dict.fromkeys(("time", "timetz", "timestamp", "timestamptz", "interval"), 6),
}
"""Types whose limit may grow, with what it is when none is given. Fractions of a second end without zeros."""

_FIRST_OF_USERS: Final = 16384
"""FirstNormalObjectId: types from here on were made by somebody, domains among them."""


class _Spelled(NamedTuple):
    name: str
    limit: int | None
    scale: int | None


def keeps_text(was: str, now: str) -> bool:
    """Whether a column that gets another type keeps the text of every value.

    Args:
        was: a built-in type, as definitions spell it.
        now: likewise.
    """
    if was == now:
        return True
    old, new = _spelled(was), _spelled(now)
    if old is None or new is None:
        return False
    if old.name == new.name == "numeric":  # without a scale each value keeps its own
        return new.limit is None or (old.limit is not None and old.scale == new.scale and old.limit <= new.limit)
    if old.name == new.name and (usual := _GROWS.get(old.name)) is not None:
        return _limit(old, usual) <= _limit(new, usual)
    return new.limit is None and new.name in _SAME_TEXT.get(old.name, ())


def key_change(was: SchemaColumn, now: SchemaColumn) -> str:
    """Why rows have other keys by ``now``; completes "its key column x …". Empty when nothing known speaks for it."""
    if 0 != was.number != now.number != 0:
        return f"is another column than before (attribute {now.number}, and was {was.number})"
    is_same_type = was.type_oid == now.type_oid or 0 in (was.type_oid, now.type_oid)
    if is_same_type and was.sql_type.startswith('"') and now.sql_type.startswith('"'):  # it may have been renamed
        kept = dict(now.labels)
        if now.labels and any(kept.get(oid) != label for oid, label in was.labels):
            return f"has a type of which a value was renamed ({now.sql_type})"
        return "" if was.type_oid == now.type_oid or was.sql_type == now.sql_type else _retyped(was, now)
    if not is_same_type and max(was.type_oid, now.type_oid) >= _FIRST_OF_USERS:
        return _retyped(was, now)  # the stream tells no domain's limit
    return "" if keeps_text(was.sql_type, now.sql_type) else _retyped(was, now)


def is_uncertain(was: SchemaColumn, now: SchemaColumn) -> bool:
    """Whether it is not on record which column it was, so that nobody can say that it is still the same."""
    return bool((now.number and not was.number) or (now.labels and not was.labels))


def _retyped(was: SchemaColumn, now: SchemaColumn) -> str:
    if was.sql_type == now.sql_type:
        return f"has another type of the same name ({now.sql_type})"
    return f"has type {now.sql_type}, and had {was.sql_type}"


def _spelled(sql_type: str) -> _Spelled | None:
    match = _SPELLED.fullmatch(sql_type)
    if match is None:
        return None
    name, limit, scale = match.groups()
    return _Spelled(name, None if limit is None else int(limit), None if scale is None else int(scale))


def _limit(spelled: _Spelled, usual: int) -> int:
    return usual if spelled.limit is None else spelled.limit
