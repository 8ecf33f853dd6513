"""Decides whether a key column is still the same column, so that rows keep their keys. Pure; no other module decides.

Theory of operation. A key column is defined by its attribute number, its type, and the text form of the type's values.
Its name does not define it: a column may be dropped and added again, or two columns may swap names. Then existing rows
have other keys, and the stream does not say so: an UPDATE would write a second key, and a DELETE would leave the first
one for ever.

A change of type keeps the keys only if it is on the list below. Each entry was tested against a server: the text is the
same before and after, and so are the bytes of the record's key. Any other change may alter them.
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
"""The types without a limit that print all values of a type as it does, whatever its limit is; by that type."""

_GROWS: Final[Mapping[str, int]] = {
    "varchar": _UNLIMITED,
    "varbit": _UNLIMITED,
    **dict.fromkeys(("time", "timetz", "timestamp", "timestamptz", "interval"), 6),
}
"""Types whose limit may grow, with the limit that applies when none is given. Times print without trailing zeros in
the fraction, so a larger precision does not change their text."""

_FIRST_OF_USERS: Final = 16384
"""FirstNormalObjectId: types with this oid or a greater one are user-defined, domains among them."""


class _Spelled(NamedTuple):
    name: str
    limit: int | None
    scale: int | None


def keeps_text(was: str, now: str) -> bool:
    """Whether every value keeps its text when a column's type changes.

    Args:
        was: the old type: a built-in type, as definitions spell it.
        now: the new type, spelled in the same way.
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
    """Returns why rows have other keys with ``now``, to complete "its key column x …"; empty if nothing suggests it."""
    if 0 != was.number != now.number != 0:
        return f"is another column than before (attribute {now.number}, before {was.number})"
    is_same_type = was.type_oid == now.type_oid or 0 in (was.type_oid, now.type_oid)
    if is_same_type and was.sql_type.startswith('"') and now.sql_type.startswith('"'):  # it may have been renamed
        kept = dict(now.labels)
        if now.labels and any(kept.get(oid) != label for oid, label in was.labels):
            return f"has a type of which a value was renamed ({now.sql_type})"
        return "" if was.type_oid == now.type_oid or was.sql_type == now.sql_type else _retyped(was, now)
    if not is_same_type and max(was.type_oid, now.type_oid) >= _FIRST_OF_USERS:
        return _retyped(was, now)  # it may be a domain, and the stream does not tell a domain's limit
    return "" if keeps_text(was.sql_type, now.sql_type) else _retyped(was, now)


def is_uncertain(was: SchemaColumn, now: SchemaColumn) -> bool:
    """Whether the record does not say which column it was, so that nobody can tell whether it is still the same."""
    return bool((now.number and not was.number) or (now.labels and not was.labels))


def _retyped(was: SchemaColumn, now: SchemaColumn) -> str:
    if was.sql_type == now.sql_type:
        return f"has another type of the same name ({now.sql_type})"
    return f"has type {now.sql_type}, before {was.sql_type}"


def _spelled(sql_type: str) -> _Spelled | None:
    match = _SPELLED.fullmatch(sql_type)
    if match is None:
        return None
    name, limit, scale = match.groups()
    return _Spelled(name, None if limit is None else int(limit), None if scale is None else int(scale))


def _limit(spelled: _Spelled, usual: int) -> int:
    return usual if spelled.limit is None else spelled.limit
