"""Says which Protobuf type the values of a column have, and which values it cannot hold.

| type | Protobuf |
|---|---|
| bool | bool |
| int2, int4 | int32 |
| int8, oid | int64 |
| float4, float8 | float, double |
| bytea | bytes |
| timestamptz | google.protobuf.Timestamp |
| all others | string |
| array | a message with a list of elements, each of which has a value or is NULL |

A value that its type cannot hold is *beyond* it: infinity, BC and years from 10000 on of a ``timestamptz``; an array
that is not flat or has explicit bounds, and every other one that JSON writes as a string.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, NamedTuple

from cdc.contract.formats.protobuf.wire import WireType
from cdc.contract.kinds import Kind, kind_of


class ProtobufForm(enum.Enum):
    """The form of a value that is not an array."""

    BOOL = "bool"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT = "float"
    DOUBLE = "double"
    BYTES = "bytes"
    STRING = "string"
    DOCUMENT = "document"
    """A JSON document, which is a string whose text becomes a part of the object."""
    TIMESTAMP = "timestamp"


PROTOBUF_FORMS: Final[Mapping[Kind, ProtobufForm]] = {
    Kind.BOOL: ProtobufForm.BOOL,
    **dict.fromkeys((Kind.INT16, Kind.INT32), ProtobufForm.INT32),
    Kind.INT64: ProtobufForm.INT64,
    Kind.FLOAT32: ProtobufForm.FLOAT,
    Kind.FLOAT64: ProtobufForm.DOUBLE,
    Kind.BYTES: ProtobufForm.BYTES,
    Kind.TIMESTAMPTZ: ProtobufForm.TIMESTAMP,
    Kind.DOCUMENT: ProtobufForm.DOCUMENT,
    **dict.fromkeys((Kind.DECIMAL, Kind.DATE, Kind.TIMESTAMP, Kind.ASCII, Kind.TEXT), ProtobufForm.STRING),
}

TIMESTAMP: Final = "google.protobuf.Timestamp"

_WIRE_TYPES: Final[Mapping[ProtobufForm, WireType]] = {
    **dict.fromkeys((ProtobufForm.BOOL, ProtobufForm.INT32, ProtobufForm.INT64), WireType.VARINT),
    ProtobufForm.FLOAT: WireType.FOUR_BYTES,
    ProtobufForm.DOUBLE: WireType.EIGHT_BYTES,
}
_IN_C: Final = {
    **dict.fromkeys((ProtobufForm.INT32, ProtobufForm.INT64), 1),
    ProtobufForm.STRING: 2,
    ProtobufForm.DOCUMENT: 3,
    ProtobufForm.BOOL: 4,
    ProtobufForm.DOUBLE: 5,
    ProtobufForm.TIMESTAMP: 6,
    ProtobufForm.BYTES: 7,
}
"""The numbers by which ``_protobuf_rows.pyx`` knows the forms that it writes and reads; Python does all others."""
_ARRAY_IN_C: Final = 32
_BITS: Final = {Kind.INT16: 16, Kind.INT32: 32, Kind.INT64: 64}


class ProtobufType(NamedTuple):
    """The Protobuf type of a column's values.

    Attributes:
        form: the form of a value, or of an array's elements.
        bits: of an integer: the number of its bits; otherwise 0.
        is_array: whether the values are arrays.
        is_builtin: whether the type, or the array's element type, is PostgreSQL's own.
        delimiter: the character between an array's elements in PostgreSQL's text.
    """

    form: ProtobufForm
    bits: int
    is_array: bool
    is_builtin: bool
    delimiter: str

    @property
    def in_c(self) -> int:
        """The number by which ``_protobuf_rows.pyx`` knows the type; 0 leaves it to Python."""
        number = _IN_C.get(self.form, 0)
        if not self.is_array or not number:
            return number
        is_plain = self.is_builtin and self.delimiter == "," and self.form is not ProtobufForm.DOCUMENT
        return number + _ARRAY_IN_C if is_plain else 0

    @property
    def is_narrow(self) -> bool:
        """Whether the source's type has values that are beyond this one."""
        return self.is_array or self.form is ProtobufForm.TIMESTAMP

    @property
    def wire_type(self) -> WireType:
        """How the bytes of a value are counted; for an array, of an element."""
        return _WIRE_TYPES.get(self.form, WireType.COUNTED)

    @property
    def field_wire_type(self) -> WireType:
        """How the bytes of the whole field are counted."""
        return WireType.COUNTED if self.is_array else self.wire_type

    @property
    def element(self) -> str:
        """The type of a value, or of an array's elements, as a schema spells it."""
        if self.form is ProtobufForm.TIMESTAMP:
            return f".{TIMESTAMP}"
        return "string" if self.form is ProtobufForm.DOCUMENT else self.form.value

    @property
    def array(self) -> str:
        """The name of the message for arrays of such elements."""
        return f"{self.element.rpartition('.')[2].capitalize()}Array"


def protobuf_type(sql_type: str) -> ProtobufType:
    """Returns the Protobuf type of a type as ``__schemas`` spells it."""
    kind, is_array, delimiter = kind_of(sql_type)
    element = sql_type.removesuffix("[]")
    is_builtin = not element.startswith('"') or element in ('"char"', '"bit"')
    return ProtobufType(PROTOBUF_FORMS[kind], _BITS.get(kind, 0), is_array, is_builtin, delimiter)
