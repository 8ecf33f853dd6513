"""The kinds of values: how each PostgreSQL type is treated by all code that writes, reads or stores topic values.

Such code has one table with an entry for each kind, and does not name types itself; a test enforces both. So to carry a
type differently, move it to another kind here. When you add a kind, the test shows which tables need an entry.
(``cdc.lab.proof`` and Spark's reconciler, which check the others, have tables of their own: a comparison must not share
the errors of what it compares. The test compares their tables with this one.)
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from cdc.contract.change import Column
from cdc.contract.pgtypes import CATALOG, element_name, split_type_name


class Kind(enum.Enum):
    """The kind of a value that is not an array."""

    BOOL = enum.auto()
    INT16 = enum.auto()
    INT32 = enum.auto()
    INT64 = enum.auto()
    """``int8``, and ``oid``, which is unsigned and so does not fit into 32 bits with a sign."""
    FLOAT32 = enum.auto()
    FLOAT64 = enum.auto()
    DECIMAL = enum.auto()
    """``numeric``: numbers with any number of digits, NaN, and the infinities."""
    DATE = enum.auto()
    TIMESTAMP = enum.auto()
    """``timestamp``, without a time zone."""
    TIMESTAMPTZ = enum.auto()
    BYTES = enum.auto()
    DOCUMENT = enum.auto()
    """A JSON document: ``json``, ``jsonb``."""
    ASCII = enum.auto()
    """Any other type whose text is always ASCII without quotes, backslashes and control characters."""
    TEXT = enum.auto()
    """Any text; types that are not built in are text as well."""


INTEGERS: Final = frozenset({Kind.INT16, Kind.INT32, Kind.INT64})
FLOATS: Final = frozenset({Kind.FLOAT32, Kind.FLOAT64})

BUILTIN_KINDS: Final[Mapping[str, Kind]] = {
    "bool": Kind.BOOL,
    "int2": Kind.INT16,
    "int4": Kind.INT32,
    **dict.fromkeys(("int8", "oid"), Kind.INT64),
    "float4": Kind.FLOAT32,
    "float8": Kind.FLOAT64,
    "numeric": Kind.DECIMAL,
    "date": Kind.DATE,
    "timestamp": Kind.TIMESTAMP,
    "timestamptz": Kind.TIMESTAMPTZ,
    "bytea": Kind.BYTES,
    **dict.fromkeys(("json", "jsonb"), Kind.DOCUMENT),
    **dict.fromkeys(("time", "timetz", "interval", "uuid", "bit", "varbit"), Kind.ASCII),
    **dict.fromkeys(("inet", "cidr", "macaddr", "macaddr8", "pg_lsn", "tid", "xid", "cid", "xid8"), Kind.ASCII),
    **dict.fromkeys(("int2vector", "oidvector"), Kind.ASCII),
    **dict.fromkeys(("point", "lseg", "path", "box", "polygon", "line", "circle"), Kind.ASCII),
}
"""Maps names in ``pg_catalog`` to kinds; all other types are text."""

_SPELLED: Final = re.compile(r'"(char|bit)"|([^" (]+)(?:[ (].*)?')


class ColumnKind(NamedTuple):
    """The kind of a column's values.

    Attributes:
        kind: the kind of a value, or of an array's elements.
        is_array: whether it is an array, as far as the type's name tells (``pgtypes.element_name``).
        delimiter: ``typdelim`` of a built-in array's elements: the character between them in PostgreSQL's text.
    """

    kind: Kind
    is_array: bool
    delimiter: str


def kind_of_column(column: Column) -> ColumnKind:
    """Returns the kind of a column in the stream. A domain has its base type's kind, because the stream names that."""
    element = element_name(column.type_name)
    namespace, name = split_type_name(element or column.type_name)
    return _kind(name if namespace == CATALOG else "", element is not None)


def kind_of(sql_type: str) -> ColumnKind:
    """Returns the kind of a type as ``__schemas`` spells it: ``numeric(12,2)``, ``int4[]``, ``"a"."mood"``."""
    element = sql_type.removesuffix("[]")
    match = _SPELLED.fullmatch(element)
    return _kind(match[1] or match[2] if match is not None else "", element != sql_type)


def _kind(builtin_name: str, is_array: bool) -> ColumnKind:
    kind = BUILTIN_KINDS.get(builtin_name, Kind.TEXT)
    return ColumnKind(kind, is_array, ";" if builtin_name == "box" else ",")
