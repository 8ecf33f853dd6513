"""The secondary indexes of one table: their columns, and where a row stands in each. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import orjson

from cdc.contract.formats.canonical import Identity, reading_of
from cdc.contract.json_members import members
from cdc.views.table.keys import KeyForm, index_order

_NULL: Final = msgspec.Raw(b"null")


class IndexForm:
    """The columns of one index.

    Args:
        columns: name and type of each, the type as ``__schemas`` spells it.
    """

    def __init__(self, columns: Sequence[tuple[str, str]]) -> None:
        self.names: Final = tuple(name for name, _ in columns)
        self.floats: Final = KeyForm(columns).floats
        readings = [reading_of(sql_type) for _, sql_type in columns]
        normals = [(place, each.normal) for place, each in enumerate(readings) if each.identity is Identity.VALUE]
        self._normals = [(place, normal) for place, normal in normals if not self.floats[place]]

    @property
    def place(self) -> tuple[object, ...]:
        """The properties of the types that decide where a row stands."""
        return (*self.floats, *[(place, normal.__qualname__) for place, normal in self._normals])

    def one_of_equals(self, values: list[Any]) -> list[Any]:
        """The values, with those that PostgreSQL calls equal made one: ``1.50`` and ``1.5`` of a ``numeric``."""
        for place, normal in self._normals:
            if place < len(values) and isinstance(values[place], str):
                values[place] = normal(values[place])
        return values


class Indexes:
    """Places rows in the indexes of a table.

    Args:
        columns: the columns of each index.
        types: type by column, as ``__schemas`` spells it. A column that is missing here has only null values.
    """

    def __init__(self, columns: Sequence[Sequence[str]], types: Mapping[str, str]) -> None:
        self.columns = tuple(map(tuple, columns))
        self._forms = [IndexForm([(name, types.get(name, "text")) for name in each]) for each in columns]

    @property
    def places(self) -> tuple[tuple[object, ...], ...]:
        """What decides where rows stand, apart from the columns' names."""
        return tuple(form.place for form in self._forms)

    def __len__(self) -> int:
        return len(self.columns)

    def orders(self, row: bytes, order: bytes) -> tuple[bytes, ...]:
        """Returns the row's place in each index.

        Args:
            row: JSON text.
            order: the row's own order.

        Raises:
            ValueError: the row is not a JSON object.
        """
        named = members(row)
        return tuple(_order(form, named, order) for form in self._forms)


def _order(form: IndexForm, named: Mapping[str, msgspec.Raw], row: bytes) -> bytes:
    values = form.one_of_equals([_value(named.get(name, _NULL)) for name in form.names])
    if not any(form.floats):
        return index_order(values, row)
    pairs = zip(values, form.floats, strict=True)
    return index_order(values, row, [is_float and _is_number(value) for value, is_float in pairs])


def _is_number(value: Any) -> bool:
    """Whether a value sorts as a number. Rows written before a column got its present type may hold other values."""
    try:
        float(value)
    except (TypeError, ValueError):
        return value is None
    return True


def _value(raw: msgspec.Raw) -> Any:
    """A value to index. A document is indexed as text if only PostgreSQL's ``json`` understands it (a lone surrogate, a
    number too large for a double), or if it has too many levels to be written again."""
    text = bytes(raw)
    try:
        value = orjson.loads(text)
        if isinstance(value, (list, dict)):
            orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return text.decode(errors="replace")
    return value
