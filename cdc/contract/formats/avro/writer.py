"""Writes rows as Avro values. Pure, and hot: a function for each column is chosen once, by the table's schema.

Nothing is rounded, shifted or guessed. A value that its Avro type cannot hold becomes the server's text if the schema
has a place for texts, and otherwise an error that names ``topics.beyond``.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from datetime import date
from typing import Final

import orjson

from cdc.contract.change import Column
from cdc.contract.floats import nearest_single
from cdc.contract.formats.avro.binary import varint
from cdc.contract.formats.avro.fields import NULL_BRANCH, VALUE_BRANCH, FieldsWriter, WrittenField
from cdc.contract.formats.avro.schema import AvroColumn, read_schema
from cdc.contract.formats.avro.types import AvroForm, AvroType
from cdc.contract.formats.cells import (
    BeyondType,
    CellWriter,
    bytes_writer,
    integer_writer,
    problem_of,
    text_writer,
)
from cdc.contract.formats.elements import splitter
from cdc.contract.formats.moments import CLOCKS, DIGITS_AS_ZEROS, micros_of
from cdc.contract.formats.registered import head
from cdc.contract.formats.values import converter_of
from cdc.contract.pgtypes import sql_type

_TEXT_BRANCH: Final = b"\x04"
_KEY_BRANCH: Final = b"\x00"
_KEY_TEXT_BRANCH: Final = b"\x02"

_FIRST_DAY: Final = date(1970, 1, 1).toordinal()
_ZERO: Final = ord("0")
_DOUBLE: Final = struct.Struct("<d")


class AvroWriter(FieldsWriter):
    """Implements ``RowWriter`` with Avro values.

    Args:
        columns: the columns of the rows.
        schema: the schema of the table that has these columns, as ``avro_schema`` makes it.
        schema_id: the schema's id in the registry.

    Raises:
        ValueError: the schema is not in this form, or describes other columns.
    """

    __slots__ = ()

    def __init__(self, columns: Sequence[Column], schema: str, schema_id: int) -> None:
        described = read_schema(schema).columns
        given = [(column.name, sql_type(column)) for column in columns]
        if given != [(column.name, column.sql_type) for column in described]:
            raise ValueError("the schema describes other columns")
        super().__init__(
            head(schema_id),
            (WrittenField(_column_writer(each), _branches(each)[0], not each.is_key, each.type) for each in described),
        )

    def problem(self, place: int, cell: bytes) -> str:
        """Returns why this text cannot be encoded; empty if it can."""
        return problem_of(self._writers[place], cell)


def _column_writer(column: AvroColumn) -> CellWriter:
    """Returns the writer of a column's texts. If the field is a union, it writes the branch as well."""
    branch, text_branch = _branches(column)
    beyond = _text_writer(column, text_branch) if column.has_text else _refuser(column)
    if column.type.is_array:
        return _array_writer(column.type, branch, beyond)
    return _scalar_writer(column.type, branch, beyond)


def _branches(column: AvroColumn) -> tuple[bytes, bytes]:
    """Returns what precedes a value and a text in a field; nothing if the field is not a union."""
    if column.is_key:
        return (_KEY_BRANCH, _KEY_TEXT_BRANCH) if column.has_text else (b"", b"")
    return VALUE_BRANCH, _TEXT_BRANCH


def _refuser(column: AvroColumn) -> CellWriter:
    def refuse(cell: bytes) -> bytes:
        raise BeyondType(
            f"the {column.sql_type} {cell[:60]!r} does not fit into Avro's {orjson.dumps(column.type.schema).decode()}"
            "; with topics.beyond: text, the field holds such values as text"
        )

    return refuse


def _text_writer(column: AvroColumn, branch: bytes) -> CellWriter:
    """Returns the writer of texts that are beyond a type; it refuses those that JSON could not carry either."""
    convert, write, is_array = converter_of(column.sql_type), text_writer(branch, varint), column.type.is_array

    def write_text(cell: bytes) -> bytes:
        if convert(cell) != orjson.dumps(cell.decode()) and not is_array:
            raise ValueError("not a text of its type")
        return write(cell)

    return write_text


def _unfit(_: bytes) -> bytes:
    raise ValueError("the element does not fit into its Avro type")


def _scalar_writer(kind: AvroType, branch: bytes, beyond: CellWriter) -> CellWriter:
    match kind.form:
        case AvroForm.BOOLEAN:
            return {b"t": branch + b"\x01", b"f": branch + b"\x00"}.__getitem__
        case AvroForm.INT | AvroForm.LONG:
            return integer_writer(branch, kind.precision, varint)
        case AvroForm.FLOAT:
            return lambda cell: branch + nearest_single(cell.decode())
        case AvroForm.DOUBLE:
            pack = _DOUBLE.pack
            return lambda cell: branch + pack(float(cell))
        case AvroForm.DECIMAL:
            return _decimal(branch, kind, beyond)
        case AvroForm.DATE:
            return _date(branch, beyond)
        case AvroForm.TIME:
            return _time(branch, beyond)
        case AvroForm.TIMESTAMP:
            return _timestamp(branch, beyond, b"")
        case AvroForm.TIMESTAMPTZ:
            return _timestamp(branch, beyond, b"+00")
        case AvroForm.BYTES:
            return bytes_writer(branch, varint)
    return text_writer(branch, varint)


def _decimal(branch: bytes, kind: AvroType, beyond: CellWriter) -> CellWriter:
    limit, longest = 10**kind.precision, kind.precision + len("-0.")
    point = rb"\.[0-9]{%d}" % kind.scale if kind.scale else b""
    is_exact = re.compile(rb"-?(?:0|[1-9][0-9]*)" + point).fullmatch

    def write(cell: bytes) -> bytes:
        if is_exact(cell) is None or len(cell) > longest:
            return beyond(cell)
        number = int(cell.replace(b".", b""))
        if not -limit < number < limit or (not number and cell[0] == 0x2D):
            return beyond(cell)
        size = (number if number >= 0 else ~number).bit_length() // 8 + 1  # -128 takes one byte, 128 two
        return branch + varint(size) + number.to_bytes(size, "big", signed=True)

    return write


def _date(branch: bytes, beyond: CellWriter) -> CellWriter:
    def write(cell: bytes) -> bytes:
        if cell.translate(DIGITS_AS_ZEROS) != b"0000-00-00":
            return beyond(cell)
        try:
            days = date.fromisoformat(cell.decode()).toordinal() - _FIRST_DAY
        except ValueError:
            return beyond(cell)
        return branch + varint(days)

    return write


def _time(branch: bytes, beyond: CellWriter) -> CellWriter:
    def write(cell: bytes) -> bytes:
        if cell.translate(DIGITS_AS_ZEROS) not in CLOCKS or (len(cell) > 8 and cell[-1] == _ZERO):
            return beyond(cell)
        hour, minute, second = int(cell[:2]), int(cell[3:5]), int(cell[6:8])
        if hour > 23 or minute > 59 or second > 59:
            return beyond(cell)
        micros = int(cell[9:].ljust(6, b"0")) if len(cell) > 8 else 0
        return branch + varint(((hour * 60 + minute) * 60 + second) * 1_000_000 + micros)

    return write


def _timestamp(branch: bytes, beyond: CellWriter, zone: bytes) -> CellWriter:
    """Returns the writer of timestamps that end with an offset from UTC, which is empty for those without time zone."""
    micros_in = micros_of(zone)

    def write(cell: bytes) -> bytes:
        micros = micros_in(cell)
        return beyond(cell) if micros is None else branch + varint(micros)

    return write


def _array_writer(kind: AvroType, branch: bytes, beyond: CellWriter) -> CellWriter:
    write_element = _scalar_writer(kind, VALUE_BRANCH, _unfit)
    is_document = kind.form is AvroForm.DOCUMENT
    split = splitter(kind.delimiter, is_builtin=kind.is_builtin, is_document=is_document)

    def write(cell: bytes) -> bytes:
        try:
            items = [NULL_BRANCH if each is None else write_element(each) for each in split(cell)]
        except ValueError:
            return beyond(cell)
        if not items:
            return branch + b"\x00"
        return branch + varint(len(items)) + b"".join(items) + b"\x00"

    return write
