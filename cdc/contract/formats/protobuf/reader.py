"""Reads Protobuf values as the JSON objects that ``JsonFormat`` writes for the same rows, byte for byte. Pure.

What comes from a topic may be damaged or come from another program. So every length is compared with what is left, and
every number with its range. A value has only one form, so each field has to be in its place and may come only once;
Protobuf's own readers would take the last one, and pass over unknown ones. Only a JSON document is passed on unread, as
everywhere. Protobuf does not tell where a value ends: a value that was cut between two fields looks whole.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, cast

import msgspec
import orjson

from cdc.base.compiled import twin
from cdc.contract.floats import double_text, single_text
from cdc.contract.formats.moments import moment
from cdc.contract.formats.protobuf.schema import (
    ProtobufColumn,
    ProtobufTable,
    is_same_schema,
    misread,
    protobuf_schema,
    read_schema,
    succeeding,
)
from cdc.contract.formats.protobuf.types import ProtobufForm, ProtobufType
from cdc.contract.formats.protobuf.wire import HEAD_BYTES, WireType, check_head, signed, tag
from cdc.contract.formats.protobuf.writer import ELEMENT, NANOS, SECONDS, ProtobufWriter
from cdc.contract.formats.registered import RegisteredFormat
from cdc.contract.formats.values import converter_of, floating
from cdc.contract.formats.varints import read_unsigned

CellReader: TypeAlias = Callable[[bytes, int, int], tuple[bytes, int]]
"""Reads what begins at a place of a value and ends before an end; returns its JSON and the place after it."""

_SECOND: Final = 1_000_000
_DOUBLE: Final = struct.Struct("<d")

_is_json = msgspec.json.Decoder(msgspec.Raw).decode
_dumps = orjson.dumps


class ProtobufReader:
    """Reads the values of one schema.

    Args:
        schema: as ``protobuf_schema`` or ``succeeding`` made it.

    Raises:
        ValueError: the schema is not in this form; the message names what is foreign.

    Attributes:
        table: the bridge's name and the table's definition, as the schema has them.
    """

    __slots__ = ("_compiled", "_empty", "_fields", "_names", "_template", "table")

    def __init__(self, schema: str) -> None:
        self.table: ProtobufTable = read_schema(schema)
        columns = self.table.columns
        self._names = [column.name for column in columns]
        order = sorted(range(len(columns)), key=lambda place: columns[place].number)
        ranks = {place: rank for rank, place in enumerate(order)}
        # By tags: the column's rank in a value, its place in the object, and its reader
        self._fields: dict[int, tuple[int, int, CellReader]] = {}
        for place, column in enumerate(columns):
            self._fields[column.number << 3 | column.type.field_wire_type] = ranks[place], place, _field(column)
            if column.text_number:
                self._fields[column.text_number << 3 | WireType.COUNTED] = ranks[place], place, _text(column)
        self._empty = [b"" if column.is_key else b"null" for column in columns]
        members = [orjson.dumps(name).replace(b"%", b"%%") + b":%b" for name in self._names]
        self._template = b"{" + b",".join(members) + b"}"
        self._compiled = _compiled(self.table) if order == [*range(len(columns))] else None

    def json(self, value: bytes) -> bytes:
        """Returns the object of a row. The caller has chosen this reader by the value's schema id.

        Raises:
            ValueError: the bytes are not such a value; the message names the column and says what is wrong.
        """
        found = self.in_c(value)
        return self.in_python(value) if found is None else found

    def in_python(self, value: bytes) -> bytes:
        """Returns the same object, or says what is wrong with the value.

        Raises:
            ValueError: as ``json`` does.
        """
        check_head(value)
        cells, fields = self._empty.copy(), self._fields
        place, end, last, column = HEAD_BYTES, len(value), -1, -1
        try:
            while place < end:
                label, place = read_unsigned(value, place)
                if label not in fields:
                    raise ValueError(f"then comes tag {label}: field {label >> 3} has another type, or is none of it")
                rank, column, read = fields[label]
                if rank <= last:
                    raise ValueError("the field comes twice, or at the wrong place")
                last = rank
                cells[column], place = read(value, place, end)
        except (IndexError, struct.error):
            raise ValueError(f"{self._place(column)}: the value ends too early") from None
        except ValueError as error:
            raise ValueError(f"{self._place(column)}: {error}") from error
        if b"" in cells:
            raise ValueError(f"{self._place(cells.index(b''))}: a column of the key is missing")
        return self._template % tuple(cells)

    def in_c(self, value: bytes) -> bytes | None:
        """Returns the same object, made in C; None if the value is damaged or unusual, or nothing was compiled."""
        return None if self._compiled is None else cast(bytes | None, self._compiled.json(value))

    def _place(self, column: int) -> str:
        where = f"column {self._names[column]!r}" if column >= 0 else "at its beginning"
        return f"not a value of its schema, {where}"


def _compiled(table: ProtobufTable) -> Any:
    """Returns a reader in C that makes the same objects, and declines some values; None if it was not compiled."""
    module = twin("cdc.contract.formats._protobuf_rows")
    if module is None or not table.columns:
        return None
    columns = (
        (
            orjson.dumps(column.name),
            tag(column.number, column.type.field_wire_type),
            0 if column.type.form is ProtobufForm.DOUBLE else column.type.in_c,
            tag(1, column.type.wire_type)[0],
            not column.is_key,
            column.type.bits,
            _field(column),
        )
        for column in table.columns
    )
    return module.ValueReader(HEAD_BYTES, list(columns))


def _field(column: ProtobufColumn) -> CellReader:
    return _array(column.type) if column.type.is_array else _scalar(column.type)


_NOT_CONVERTIBLE: Final = (ValueError, TypeError, LookupError, RecursionError, msgspec.MsgspecError)
"""What converters raise for a text that is not an array's. ``TypeError`` is orjson's for one nested too deep."""


def _text(column: ProtobufColumn) -> CellReader:
    """Returns the reader of texts that are beyond a type: they become what JSON makes of the server's text."""
    if not column.type.is_array:
        return _string
    convert = converter_of(column.sql_type)

    def read(value: bytes, place: int, end: int) -> tuple[bytes, int]:
        text, place = _counted(value, place, end)
        try:
            text.decode()
            array = convert(text)
            _is_json(array)
        except _NOT_CONVERTIBLE as error:
            raise ValueError(f"not the text of an array: {error}") from error
        return array, place

    return read


def _counted(value: bytes, place: int, end: int) -> tuple[bytes, int]:
    """Returns bytes that their length precedes, and the place after them."""
    after, place = _end(value, place, end)
    return value[place:after], after


def _end(value: bytes, place: int, end: int) -> tuple[int, int]:
    """Returns where something ends that its length precedes, and where it begins."""
    size, place = read_unsigned(value, place)
    after = place + size
    if after > end:
        raise ValueError(f"a length of {size} is longer than the rest")
    return after, place


def _string(value: bytes, place: int, end: int) -> tuple[bytes, int]:
    text, place = _counted(value, place, end)
    return _dumps(text.decode()), place


def _document(value: bytes, place: int, end: int) -> tuple[bytes, int]:
    text, place = _counted(value, place, end)
    if not text:
        raise ValueError("a document is empty")
    if not text.isascii():
        text.decode()
    return text, place


def _bytes(value: bytes, place: int, end: int) -> tuple[bytes, int]:
    raw, place = _counted(value, place, end)
    return b'"\\\\x%b"' % raw.hex().encode(), place


def _bool(value: bytes, place: int, _: int) -> tuple[bytes, int]:
    byte = value[place]
    if byte > 1:
        raise ValueError(f"not a boolean: {byte}")
    return b"true" if byte else b"false", place + 1


def _single(value: bytes, place: int, _: int) -> tuple[bytes, int]:
    return floating(single_text(value[place : place + 4]).encode()), place + 4


def _double(value: bytes, place: int, _: int) -> tuple[bytes, int]:
    (number,) = _DOUBLE.unpack_from(value, place)
    return floating(double_text(number).encode()), place + 8


def _integer(bits: int) -> CellReader:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def read(value: bytes, place: int, _: int) -> tuple[bytes, int]:
        number, place = read_unsigned(value, place)
        number = signed(number)
        if not low <= number <= high:
            raise ValueError(f"a number of more than {bits} bits: {number}")
        return b"%d" % number, place

    return read


def _timestamp(value: bytes, place: int, end: int) -> tuple[bytes, int]:
    after, place = _end(value, place, end)
    seconds = nanos = 0
    if value[place : place + 1] == SECONDS and place < after:
        seconds, place = read_unsigned(value, place + 1)
        seconds = signed(seconds)
    if value[place : place + 1] == NANOS and place < after:
        nanos, place = read_unsigned(value, place + 1)
    if place != after or nanos % 1_000 or not 0 <= nanos // 1_000 < _SECOND:
        raise ValueError("not a timestamp of whole microseconds")
    return b'"%b+00"' % moment(seconds * _SECOND + nanos // 1_000).encode(), place


_SCALARS: Final[Mapping[ProtobufForm, CellReader]] = {
    ProtobufForm.BOOL: _bool,
    ProtobufForm.FLOAT: _single,
    ProtobufForm.DOUBLE: _double,
    ProtobufForm.BYTES: _bytes,
    ProtobufForm.STRING: _string,
    ProtobufForm.DOCUMENT: _document,
    ProtobufForm.TIMESTAMP: _timestamp,
}


def _scalar(kind: ProtobufType) -> CellReader:
    return _integer(kind.bits) if kind.bits else _SCALARS[kind.form]


def _array(kind: ProtobufType) -> CellReader:
    (element,), (own,) = ELEMENT, tag(1, kind.wire_type)
    read_value = _scalar(kind)

    def read(value: bytes, place: int, end: int) -> tuple[bytes, int]:
        after, place = _end(value, place, end)
        elements: list[bytes] = []
        while place < after:
            if value[place] != element:
                raise ValueError(f"not an element of an array: tag {value[place]}")
            until, place = _end(value, place + 1, after)
            if place == until:
                elements.append(b"null")
                continue
            if value[place] != own:
                raise ValueError(f"not the value of an element: tag {value[place]}")
            text, place = read_value(value, place + 1, until)
            if place != until:
                raise ValueError("an element does not end with its value")
            elements.append(text)
        return b"[" + b",".join(elements) + b"]", place

    return read


PROTOBUF: Final = RegisteredFormat(
    "PROTOBUF", protobuf_schema, is_same_schema, misread, ProtobufWriter, ProtobufReader, succeeding
)
"""Protobuf, as bridge and readers use it."""
