"""Reads Avro values as the JSON objects that ``JsonFormat`` writes for the same rows, byte for byte. Pure.

Only a JSON document is passed on unread, as everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Final

import msgspec

from cdc.contract.formats.avro import fields
from cdc.contract.formats.avro.binary import read_varint
from cdc.contract.formats.avro.fields import CellReader, FieldsReader, ReadField, counted
from cdc.contract.formats.avro.schema import AvroColumn, AvroTable, avro_schema, is_same_schema, misread, read_schema
from cdc.contract.formats.avro.types import AvroForm, AvroType
from cdc.contract.formats.avro.writer import AvroWriter
from cdc.contract.formats.moments import moment
from cdc.contract.formats.registered import HEAD_BYTES, RegisteredFormat, check_head
from cdc.contract.formats.values import converter_of

_FIRST_DAY: Final = date(1970, 1, 1).toordinal()
_LAST_DAY: Final = date.max.toordinal()
_DAY: Final = 86_400_000_000

_is_json = msgspec.json.Decoder(msgspec.Raw).decode


class AvroReader:
    """Reads the values of one schema.

    Args:
        schema: as ``avro_schema`` made it.

    Raises:
        ValueError: the schema is not in this form; the message names what is foreign.

    Attributes:
        table: the bridge's name and the table's definition, as the schema has them.
    """

    __slots__ = ("_record", "table")

    def __init__(self, schema: str) -> None:
        self.table: AvroTable = read_schema(schema)
        self._record = FieldsReader(map(_field, self.table.columns))

    def json(self, value: bytes) -> bytes:
        """Returns the object of a row. The caller has chosen this reader by the value's id.

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
        row, place = self._record.in_python(value, HEAD_BYTES)
        if place != len(value):
            raise ValueError(f"{len(value) - place} bytes follow the last column")
        return row

    def in_c(self, value: bytes) -> bytes | None:
        """Returns the same object, made in C; None if the value is damaged or unusual, or nothing was compiled."""
        found = self._record.in_c(value, HEAD_BYTES)
        return None if found is None or found[1] != len(value) else found[0]


def _field(column: AvroColumn) -> ReadField:
    read = _array(column.type) if column.type.is_array else _scalar(column.type)
    # A branch is written as the number of its place, in zig-zag form: 0, 2, 4
    branches: dict[int, CellReader]
    if not column.is_key:
        branches = {0: fields.null, 2: read}
    elif column.has_text:
        branches = {0: read}
    else:
        return ReadField(column.name, read, None, column.type)
    if column.has_text:
        branches[2 * len(branches)] = _text(column)
    return ReadField(column.name, read, branches, column.type)


_NOT_CONVERTIBLE: Final = (ValueError, TypeError, LookupError, RecursionError, msgspec.MsgspecError)
"""What converters raise for a text that is not an array's. ``TypeError`` is orjson's for one nested too deep."""


def _text(column: AvroColumn) -> CellReader:
    """Returns the reader of texts that are beyond a type: they become what JSON makes of the server's text."""
    if not column.type.is_array:
        return fields.string
    convert = converter_of(column.sql_type)

    def read(value: bytes, place: int, cells: list[bytes]) -> int:
        text, place = counted(value, place)
        try:
            text.decode()
            array = convert(text)
            _is_json(array)
        except _NOT_CONVERTIBLE as error:
            raise ValueError(f"not the text of an array: {error}") from error
        cells.append(array)
        return place

    return read


def _document(value: bytes, place: int, cells: list[bytes]) -> int:
    text, place = counted(value, place)
    if not text.isascii():
        text.decode()
    cells.append(text)
    return place


def _bytes(value: bytes, place: int, cells: list[bytes]) -> int:
    raw, place = counted(value, place)
    cells.append(b'"\\\\x%b"' % raw.hex().encode())
    return place


def _date(value: bytes, place: int, cells: list[bytes]) -> int:
    days, place = read_varint(value, place)
    if not 1 <= days + _FIRST_DAY <= _LAST_DAY:
        raise ValueError(f"the date is outside the years 1 to 9999: {days} days since 1970")
    cells.append(b'"%b"' % date.fromordinal(days + _FIRST_DAY).isoformat().encode())
    return place


def _time(value: bytes, place: int, cells: list[bytes]) -> int:
    micros, place = read_varint(value, place)
    if not 0 <= micros < _DAY:
        raise ValueError(f"not a time of day: {micros} µs")
    cells.append(b'"%b"' % moment(micros)[11:].encode())
    return place


def _timestamp(value: bytes, place: int, cells: list[bytes]) -> int:
    micros, place = read_varint(value, place)
    cells.append(b'"%b"' % moment(micros).encode())
    return place


def _timestamptz(value: bytes, place: int, cells: list[bytes]) -> int:
    micros, place = read_varint(value, place)
    cells.append(b'"%b+00"' % moment(micros).encode())
    return place


def _decimal(kind: AvroType) -> CellReader:
    limit, scale = 10**kind.precision, kind.scale

    def read(value: bytes, place: int, cells: list[bytes]) -> int:
        raw, place = counted(value, place)
        number = int.from_bytes(raw, "big", signed=True)
        if not raw or not -limit < number < limit:
            raise ValueError(f"not a decimal of at most {kind.precision} digits: {raw[:20]!r}")
        digits = (b"%d" % abs(number)).zfill(scale + 1)
        sign = b"-" if number < 0 else b""
        cells.append(b'"%b%b.%b"' % (sign, digits[:-scale], digits[-scale:]) if scale else b'"%b%b"' % (sign, digits))
        return place

    return read


_SCALARS: Final[Mapping[AvroForm, CellReader]] = {
    AvroForm.BOOLEAN: fields.boolean,
    AvroForm.FLOAT: fields.single,
    AvroForm.DOUBLE: fields.double,
    AvroForm.DATE: _date,
    AvroForm.TIME: _time,
    AvroForm.TIMESTAMP: _timestamp,
    AvroForm.TIMESTAMPTZ: _timestamptz,
    AvroForm.BYTES: _bytes,
    AvroForm.DOCUMENT: _document,
    **dict.fromkeys((AvroForm.UUID, AvroForm.STRING), fields.string),
}


def _scalar(kind: AvroType) -> CellReader:
    if kind.form in (AvroForm.INT, AvroForm.LONG):
        return fields.integer(kind.precision)
    return _decimal(kind) if kind.form is AvroForm.DECIMAL else _SCALARS[kind.form]


def _array(kind: AvroType) -> CellReader:
    return fields.array(fields.union({0: fields.null, 2: _scalar(kind)}))


AVRO: Final = RegisteredFormat("AVRO", avro_schema, is_same_schema, misread, AvroWriter, AvroReader)
"""Avro, as bridge and readers use it."""
