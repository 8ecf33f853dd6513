"""The kinds of values: what a PostgreSQL type is to everybody who writes, reads or stores values of the topics.

A reader of kinds has one table with an entry for each of them, and does not name types itself; a test holds both. So a
type that is to be carried differently is moved to another kind here, and a new kind shows who has to say what becomes
of it. (Those that check the others, ``cdc.lab.proof`` and the readings of Spark's reconciler, have tables of their own:
what compares must not share the errors of what is compared. The test compares these tables with this one.)
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from cdc.contract.change import Column
from cdc.contract.pgtypes import CATALOG, element_name, split_type_name


class Kind(enum.Enum):
    """What a value that is no array is."""

    BOOL = enum.auto()
    INT16 = enum.auto()
    INT32 = enum.auto()
    INT64 = enum.auto()
    """``int8``, and ``oid``, which has no sign and so does not fit into 32 bits."""
    FLOAT32 = enum.auto()
    FLOAT64 = enum.auto()
    DECIMAL = enum.auto()
    """``numeric``: any number of digits, and NaN and the infinities."""
    DATE = enum.auto()
    TIMESTAMP = enum.auto()
    """Without a time zone."""
    TIMESTAMPTZ = enum.auto()
    BYTES = enum.auto()
    DOCUMENT = enum.auto()
    """``json``, ``jsonb``."""
    ASCII = enum.auto()
    """Another type whose text is ASCII without quote, backslash or control character, whatever the value."""
    TEXT = enum.auto()
    """Any text; types that are not built in are text, too."""


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
"""Name in ``pg_catalog`` → kind; all other types are text."""

_SPELLED: Final = re.compile(r'"(char|bit)"|([^" (]+)(?:[ (].*)?')


class ColumnKind(NamedTuple):
    """What the values of a column are.

    Attributes:
        kind: of a value; of an array's elements.
        is_array: as far as the type's name tells, see ``pgtypes.element_name``.
        delimiter: ``typdelim`` of the elements of a built-in array: what stands between them in PostgreSQL's text.
    """

    kind: Kind
    is_array: bool
    delimiter: str


def kind_of_column(column: Column) -> ColumnKind:
    """The kind of a column of the stream. A domain has its base type's kind: the stream names that."""
    element = element_name(column.type_name)
    namespace, name = split_type_name(element or column.type_name)
    return _kind(name if namespace == CATALOG else "", element is not None)


def kind_of(sql_type: str) -> ColumnKind:
    """The kind of a column by its type as ``__schemas`` spells it: ``numeric(12,2)``, ``int4[]``, ``"a"."mood"``."""
    element = sql_type.removesuffix("[]")
    match = _SPELLED.fullmatch(element)
    return _kind(match[1] or match[2] if match is not None else "", element != sql_type)


def _kind(builtin_name: str, is_array: bool) -> ColumnKind:
    kind = BUILTIN_KINDS.get(builtin_name, Kind.TEXT)
    return ColumnKind(kind, is_array, ";" if builtin_name == "box" else ",")
