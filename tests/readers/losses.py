"""What a reader cannot hold of what the topic says, value by value; docs/readers.md tells each of them.

A test expects just these differences: a reader that loses more fails, and so does one that loses less.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from tests.readers.canonical import Rows, Value
from tests.readers.fed import ValueFormat


class Loss(NamedTuple):
    """One kind of value that a reader holds as another.

    Attributes:
        says: as the page says it.
        columns: that have such values.
        becomes: what is held instead of a value; other values stay.
    """

    says: str
    columns: tuple[str, ...]
    becomes: Callable[[Value], Value]


JSON_NULL: Final = Loss(
    "the document `null` is read as NULL", ("doc",), lambda value: None if value == "null" else value
)
NAN_IS_NULL: Final = Loss(
    "`NaN` in a float column becomes NULL", ("ratio", "measure"), lambda value: None if value == "nan" else value
)


def _as_doubles(value: Value) -> Value:
    for digits, held in (("12345678901234567890.10", "12345678901234567000.0"), ("1.10", "1.1")):
        value = value.replace(f'"{digits}"', f'"{held}"') if isinstance(value, str) else value
    return value


DOUBLES_IN_DOCUMENTS: Final = Loss("numbers in documents become doubles", ("doc",), _as_doubles)

LOSSES: Final[Mapping[tuple[str, ValueFormat], Sequence[Loss]]] = {
    ("pandas", "json"): [NAN_IS_NULL],
    ("pandas", "avro"): [NAN_IS_NULL],
    ("DuckDB", "json"): [DOUBLES_IN_DOCUMENTS],
}


def losses(reader: str, value_format: ValueFormat) -> Sequence[Loss]:
    """What a reader cannot hold in this format."""
    return [*([JSON_NULL] if value_format == "json" else []), *LOSSES.get((reader, value_format), ())]


def altered(rows: Rows, loss: Loss) -> Rows:
    """The rows as a reader with this loss holds them."""
    return {
        key: {name: loss.becomes(value) if name in loss.columns else value for name, value in row.items()}
        for key, row in rows.items()
    }
