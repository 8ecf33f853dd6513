"""The secondary indexes of one table: which columns, and where a row stands in each. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import orjson

from cdc.view.keys import KeyForm, index_order

_NULL: Final = msgspec.Raw(b"null")
_decode_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Indexes:
    """Where rows stand.

    Args:
        columns: of each index.
        types: type by column, as ``__schemas`` spells it; of a column that is not there, values are null.
    """

    def __init__(self, columns: Sequence[Sequence[str]], types: Mapping[str, str]) -> None:
        self.columns = tuple(map(tuple, columns))
        self._forms = [KeyForm([(name, types.get(name, "text")) for name in each]) for each in columns]

    @property
    def floats(self) -> tuple[tuple[bool, ...], ...]:
        """Which columns sort as floating point: what else than their names decides where rows stand."""
        return tuple(form.floats for form in self._forms)

    def __len__(self) -> int:
        return len(self.columns)

    def orders(self, row: bytes, order: bytes) -> tuple[bytes, ...]:
        """Where a row stands in each index.

        Args:
            row: JSON text.
            order: its own.

        Raises:
            ValueError: not a JSON object.
        """
        members = _members(row)
        return tuple(_order(form, members, order) for form in self._forms)


def _order(form: KeyForm, members: Mapping[str, bytes | msgspec.Raw], row: bytes) -> bytes:
    values = [_value(members.get(name, _NULL)) for name in form.names]
    if not any(form.floats):
        return index_order(values, row)
    pairs = zip(values, form.floats, strict=True)
    return index_order(values, row, [is_float and _is_number(value) for value, is_float in pairs])


def _is_number(value: Any) -> bool:
    """Of a column whose type was another one once, or which was made anew, older rows have other values."""
    try:
        float(value)
    except (TypeError, ValueError):
        return value is None
    return True


def _members(row: bytes) -> Mapping[str, bytes | msgspec.Raw]:
    try:
        return _decode_members(row)
    except RecursionError:
        return {}  # a document of a thousand levels: the row stands in its indexes as if all of it were null
    except msgspec.MsgspecError:
        return {name: json.dumps(value).encode() for name, value in json.loads(row).items()}


def _value(raw: bytes | msgspec.Raw) -> Any:
    """A document is its text if only PostgreSQL's json understands it (a lone surrogate, a number beyond a float), or
    if it has more levels than can be written again."""
    text = bytes(raw)
    try:
        value = orjson.loads(text)
        if isinstance(value, (list, dict)):
            orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return text.decode(errors="replace")
    return value
