"""Writes rows as Protobuf values. Pure, and hot: a function for each column is chosen once, by the table's schema.

Nothing is rounded, shifted or guessed. A value that its type cannot hold becomes the server's text, in a field of its
own, if the schema has one; and otherwise an error that names ``topics.beyond``.

Fields are written in the order of their columns' numbers, NULL as nothing, and everything else even where Protobuf
would leave out zeros. So a value has one form only.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

import orjson

from cdc.base.compiled import twin
from cdc.contract.change import Column, Row
from cdc.contract.floats import nearest_single
from cdc.contract.formats.cells import (
    BeyondType,
    CellWriter,
    bytes_writer,
    integer_writer,
    null_documents,
    problem_of,
    text_writer,
)
from cdc.contract.formats.elements import splitter
from cdc.contract.formats.moments import micros_of
from cdc.contract.formats.protobuf.schema import ProtobufColumn, read_schema
from cdc.contract.formats.protobuf.types import ProtobufForm, ProtobufType
from cdc.contract.formats.protobuf.wire import WireType, head, tag, varint
from cdc.contract.formats.values import converter_of
from cdc.contract.pgtypes import sql_type

ELEMENT: Final = tag(1, WireType.COUNTED)
SECONDS: Final = tag(1, WireType.VARINT)
NANOS: Final = tag(2, WireType.VARINT)
_DOUBLE: Final = struct.Struct("<d")


class ProtobufWriter:
    """Implements ``RowWriter`` with Protobuf values.

    Args:
        columns: the columns of the rows.
        schema: the schema of the table that has these columns.
        schema_id: the schema's id in the registry.

    Raises:
        ValueError: the schema is not in the form that cdc writes, or describes other columns.
    """

    __slots__ = ("_columns", "_documents", "_head", "_keys", "_places", "_writers")

    def __init__(self, columns: Sequence[Column], schema: str, schema_id: int) -> None:
        described = read_schema(schema).columns
        given = [(column.name, sql_type(column)) for column in columns]
        if given != [(column.name, column.sql_type) for column in described]:
            raise ValueError("the schema describes other columns")
        self._columns = described
        self._head = head(schema_id)
        self._writers = tuple(map(_column_writer, described))
        order = sorted(range(len(described)), key=lambda place: described[place].number)
        self._places = None if order == [*range(len(described))] else order
        self._keys = tuple(i for i, column in enumerate(described) if column.is_key)
        types = [column.type for column in described]
        self._documents = tuple(
            i for i, each in enumerate(types) if each.form is ProtobufForm.DOCUMENT and not each.is_array
        )

    @property
    def bare_template(self) -> None:
        """There is no template that makes Protobuf values."""
        return None

    @property
    def compiled(self) -> Any:
        """A writer in C that makes the same values, and declines some rows; None if it was not compiled.

        It writes the fields in the order of the columns, so these have to come in the order of their numbers.
        """
        module = twin("cdc.contract.formats._protobuf_rows")
        if module is None or not self._columns or self._places is not None:
            return None
        columns = (
            (
                column.type.in_c,
                tag(column.number, column.type.field_wire_type),
                tag(1, column.type.wire_type)[0],
                not column.is_key,
                column.type.bits,
                write,
            )
            for column, write in zip(self._columns, self._writers, strict=True)
        )
        return module.ValueWriter(self._head, list(columns))

    def encode(self, row: Row) -> bytes:
        """Returns the row's value.

        Raises:
            NOT_ENCODABLE: a cell was not sent, does not have its type's form or does not fit into its type, NULL in a
                key column, or the row has another width.
        """
        for place in self._keys:
            if row[place] is None:
                raise ValueError("NULL in a key column")
        fields = [
            b"" if cell is None else write(cell)  # type: ignore[arg-type]  # UNCHANGED_TOAST raises
            for write, cell in zip(self._writers, row, strict=True)
        ]
        if self._places is not None:
            fields = [fields[place] for place in self._places]
        return self._head + b"".join(fields)

    def null_documents(self, row: Row) -> tuple[int, ...]:
        """Returns the indexes of json and jsonb columns with the document ``null``, which looks like NULL in JSON."""
        return null_documents(row, self._documents)

    def problem(self, place: int, cell: bytes) -> str:
        """Returns why this text cannot be encoded; empty if it can."""
        return problem_of(self._writers[place], cell)


def _column_writer(column: ProtobufColumn) -> CellWriter:
    beyond = _text_writer(column) if column.text_number else _refuser(column)
    label = tag(column.number, column.type.field_wire_type)
    return (_array_writer if column.type.is_array else _scalar_writer)(column.type, label, beyond)


def _refuser(column: ProtobufColumn) -> CellWriter:
    name = column.type.array if column.type.is_array else column.type.element.lstrip(".")

    def refuse(cell: bytes) -> bytes:
        raise BeyondType(
            f"the {column.sql_type} {cell[:60]!r} does not fit into Protobuf's {name}; with topics.beyond: text, a "
            "second field holds such values as text"
        )

    return refuse


def _text_writer(column: ProtobufColumn) -> CellWriter:
    """Returns the writer of texts that are beyond a type; it refuses those that JSON could not carry either."""
    convert, is_array = converter_of(column.sql_type), column.type.is_array
    write = text_writer(tag(column.text_number, WireType.COUNTED), varint)

    def write_text(cell: bytes) -> bytes:
        if convert(cell) != orjson.dumps(cell.decode()) and not is_array:
            raise ValueError("not a text of its type")
        return write(cell)

    return write_text


def _unfit(_: bytes) -> bytes:
    raise ValueError("the element does not fit into its Protobuf type")


def _scalar_writer(kind: ProtobufType, label: bytes, beyond: CellWriter) -> CellWriter:
    match kind.form:
        case ProtobufForm.BOOL:
            return {b"t": label + b"\x01", b"f": label + b"\x00"}.__getitem__
        case ProtobufForm.INT32 | ProtobufForm.INT64:
            return integer_writer(label, kind.bits, varint)
        case ProtobufForm.FLOAT:
            return lambda cell: label + nearest_single(cell.decode())
        case ProtobufForm.DOUBLE:
            pack = _DOUBLE.pack
            return lambda cell: label + pack(float(cell))
        case ProtobufForm.TIMESTAMP:
            return _timestamp(label, beyond)
        case ProtobufForm.BYTES:
            return bytes_writer(label, varint)
    return text_writer(label, varint)


def _timestamp(label: bytes, beyond: CellWriter) -> CellWriter:
    micros_in = micros_of(b"+00")

    def write(cell: bytes) -> bytes:
        micros = micros_in(cell)
        if micros is None:
            return beyond(cell)
        seconds, rest = divmod(micros, 1_000_000)  # both are as Timestamp wants them before 1970, too
        body = (SECONDS + varint(seconds) if seconds else b"") + (NANOS + varint(rest * 1_000) if rest else b"")
        return label + varint(len(body)) + body

    return write


def _array_writer(kind: ProtobufType, label: bytes, beyond: CellWriter) -> CellWriter:
    write_value = _scalar_writer(kind, tag(1, kind.wire_type), _unfit)
    is_document = kind.form is ProtobufForm.DOCUMENT
    split = splitter(kind.delimiter, is_builtin=kind.is_builtin, is_document=is_document)

    def write(cell: bytes) -> bytes:
        try:
            values = [b"" if each is None else write_value(each) for each in split(cell)]
        except ValueError:
            return beyond(cell)
        body = b"".join([ELEMENT + varint(len(each)) + each for each in values])
        return label + varint(len(body)) + body

    return write
