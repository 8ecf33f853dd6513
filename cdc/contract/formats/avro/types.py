"""Says which Avro type the values of a column have, and which values it cannot hold.

| type | Avro |
|---|---|
| bool | boolean |
| int2, int4 | int |
| int8, oid | long |
| float4, float8 | float, double |
| numeric(p,s) with 0 ≤ s ≤ p ≤ 38 | bytes, decimal; otherwise string |
| date | int, date |
| timestamp, timestamptz | long, local-timestamp-micros and timestamp-micros |
| time | long, time-micros |
| uuid | string, uuid |
| bytea | bytes |
| json, jsonb, all others | string |
| array | array of null or the element's type; of types that are not built in: of null or string |

A value that its type cannot hold is *beyond* it: NaN and infinity of a decimal; infinity, BC and years from 10000 on;
``24:00:00``; an array that is not flat or has explicit bounds, and every other one that JSON writes as a string.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from cdc.contract.kinds import Kind, kind_of

"""What becomes of values that their Avro type cannot hold: the row is refused, or the field holds the server's text."""


class AvroForm(enum.Enum):
    """The form of a value that is not an array."""

    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    DECIMAL = "decimal"
    DATE = "date"
    TIME = "time-micros"
    TIMESTAMP = "local-timestamp-micros"
    TIMESTAMPTZ = "timestamp-micros"
    UUID = "uuid"
    BYTES = "bytes"
    DOCUMENT = "document"
    """A JSON document, which is a string whose text becomes a part of the object."""
    STRING = "string"
    ZONED = "zoned"
    """A timestamp in UTC as Debezium writes it, with ``precision`` digits after the second; only envelopes have it."""


AVRO_FORMS: Final[Mapping[Kind, AvroForm]] = {
    Kind.BOOL: AvroForm.BOOLEAN,
    **dict.fromkeys((Kind.INT16, Kind.INT32), AvroForm.INT),
    Kind.INT64: AvroForm.LONG,
    Kind.FLOAT32: AvroForm.FLOAT,
    Kind.FLOAT64: AvroForm.DOUBLE,
    Kind.DECIMAL: AvroForm.DECIMAL,
    Kind.DATE: AvroForm.DATE,
    Kind.TIMESTAMP: AvroForm.TIMESTAMP,
    Kind.TIMESTAMPTZ: AvroForm.TIMESTAMPTZ,
    Kind.BYTES: AvroForm.BYTES,
    Kind.DOCUMENT: AvroForm.DOCUMENT,
    **dict.fromkeys((Kind.ASCII, Kind.TEXT), AvroForm.STRING),
}
_ASCII_FORMS: Final = {"time": AvroForm.TIME, "uuid": AvroForm.UUID}
"""Types whose text is carried in JSON, while Avro has a type for them."""

_NARROW: Final = frozenset({AvroForm.DECIMAL, AvroForm.DATE, AvroForm.TIME, AvroForm.TIMESTAMP, AvroForm.TIMESTAMPTZ})
"""Forms that do not hold every value of their types."""
_UNDERLYING: Final = {
    AvroForm.DATE: "int",
    **dict.fromkeys((AvroForm.TIME, AvroForm.TIMESTAMP, AvroForm.TIMESTAMPTZ), "long"),
    AvroForm.UUID: "string",
}
_IN_C: Final = {
    **dict.fromkeys((AvroForm.INT, AvroForm.LONG), 1),
    **dict.fromkeys((AvroForm.STRING, AvroForm.UUID), 2),
    AvroForm.DOCUMENT: 3,
    AvroForm.BOOLEAN: 4,
    AvroForm.DOUBLE: 5,
    AvroForm.DECIMAL: 6,
    AvroForm.DATE: 7,
    AvroForm.TIME: 8,
    AvroForm.TIMESTAMP: 9,
    AvroForm.TIMESTAMPTZ: 10,
    AvroForm.BYTES: 11,
    AvroForm.ZONED: 12,
}
"""The numbers by which ``_avro_rows.pyx`` knows the forms that it writes and reads; it leaves all others to Python."""
_ARRAY_IN_C: Final = 32
_WITH_MODIFIER: Final = re.compile(r"([a-z0-9_]+)(?:\((-?[0-9]+)(?:,(-?[0-9]+))?\))?")


class AvroType(NamedTuple):
    """The Avro type of a column's values.

    Attributes:
        form: the form of a value, or of an array's elements.
        precision: of a decimal: the most digits it has; of an integer: the number of its bits; otherwise 0.
        scale: of a decimal: the number of its digits after the point.
        is_array: whether the values are arrays.
        is_builtin: whether the type, or the array's element type, is PostgreSQL's own.
        delimiter: the character between an array's elements in PostgreSQL's text.
    """

    form: AvroForm
    precision: int
    scale: int
    is_array: bool
    is_builtin: bool
    delimiter: str

    @property
    def in_c(self) -> int:
        """The number by which ``_avro_rows.pyx`` knows the type; 0 leaves it to Python."""
        number = _IN_C.get(self.form, 0)
        if not self.is_array or not number:
            return number
        is_plain = self.is_builtin and self.delimiter == "," and self.form is not AvroForm.DOCUMENT
        return number + _ARRAY_IN_C if is_plain else 0

    @property
    def is_narrow(self) -> bool:
        """Whether the source's type has values that are beyond this one."""
        return self.is_array or self.form in _NARROW

    @property
    def schema(self) -> Any:
        """The type as a schema spells it, without NULL."""
        return {"type": "array", "items": ["null", self._element]} if self.is_array else self._element

    @property
    def _element(self) -> Any:
        if self.form is AvroForm.DECIMAL:
            return {"type": "bytes", "logicalType": "decimal", "precision": self.precision, "scale": self.scale}
        if (underlying := _UNDERLYING.get(self.form)) is not None:
            return {"type": underlying, "logicalType": self.form.value}
        return "string" if self.form is AvroForm.DOCUMENT else self.form.value


_NUMBERS: Final = frozenset({AvroForm.INT, AvroForm.LONG, AvroForm.FLOAT, AvroForm.DOUBLE})
_TEXTS: Final = frozenset({AvroForm.STRING, AvroForm.DOCUMENT, AvroForm.UUID})
_SAME_BYTES: Final = (
    frozenset({AvroForm.INT, AvroForm.LONG, AvroForm.DATE, AvroForm.TIME, AvroForm.TIMESTAMP, AvroForm.TIMESTAMPTZ}),
    frozenset(
        {AvroForm.FLOAT, AvroForm.DOUBLE, AvroForm.DATE, AvroForm.TIME, AvroForm.TIMESTAMP, AvroForm.TIMESTAMPTZ}
    ),
    frozenset({AvroForm.BYTES, AvroForm.DECIMAL, *_TEXTS}),
)
"""Forms that Avro's schema resolution reads as each other: by the bytes, without a look at the logical type."""


def are_told_apart(one: AvroType, other: AvroType) -> bool:
    """Whether a reader with one type reads values of the other as what they are, or gets an error."""
    if one.form is other.form:
        return one.scale == other.scale
    if {one.form, other.form} <= _NUMBERS or {one.form, other.form} <= _TEXTS:
        return True
    return not any({one.form, other.form} <= alike for alike in _SAME_BYTES)


_MOST_DIGITS: Final = 38
"""The most digits of a decimal that Spark, Flink, Arrow and most databases can hold; longer ones are strings."""
_BITS: Final = {Kind.INT16: 16, Kind.INT32: 32, Kind.INT64: 64}


def avro_type(sql_type: str) -> AvroType:
    """Returns the Avro type of a type as ``__schemas`` spells it."""
    kind, is_array, delimiter = kind_of(sql_type)
    element = sql_type.removesuffix("[]")
    is_builtin = not element.startswith('"') or element in ('"char"', '"bit"')
    precision, scale = _BITS.get(kind, 0), 0
    form = AVRO_FORMS[kind]
    match = _WITH_MODIFIER.fullmatch(element)
    if kind is Kind.ASCII and match is not None:
        form = _ASCII_FORMS.get(match[1], form)
    elif kind is Kind.DECIMAL:
        if match is not None and match[3] is not None and 0 <= int(match[3]) <= int(match[2]) <= _MOST_DIGITS:
            precision, scale = int(match[2]), int(match[3])
        else:
            form = AvroForm.STRING
    return AvroType(form, precision, scale, is_array, is_builtin, delimiter)
