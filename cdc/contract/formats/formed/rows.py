"""Writes rows in other forms than JSON has by default, and reads them as the contract's objects, byte for byte. Pure.

The definition says in which form each column is, and the fingerprint in the record's header depends on that.

With Connect's schemas, each value is ``{"schema":…,"payload":…}``. Kafka Connect's JsonConverter makes 0 or NULL of
what does not fit the schema, without an error, so such a value is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import orjson

from cdc.base.compiled import twin
from cdc.contract.change import Column, Row
from cdc.contract.formats.cells import null_documents
from cdc.contract.formats.format import NOT_ENCODABLE
from cdc.contract.formats.formed.cells import Reader, converters
from cdc.contract.formats.formed.connect import row_schema
from cdc.contract.formats.objects import ObjectForm
from cdc.contract.formats.values import Converter, converter, document, text
from cdc.contract.kinds import FLOATS, Kind, kind_of
from cdc.contract.record import TableSchema

_BLANKS: Final = b" \t\n\r"
_SCHEMA: Final = b'{"schema":'
_PAYLOAD: Final = b',"payload":'
_SCHEMA_END: Final = b"}"
_STRING: Final = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_FLAT: Final = rb'[^"\[\]{}]*(?:%b[^"\[\]{}]*)*' % _STRING
_VALUE: Final = rb'%b|[^"\[\]{},\s]+|\[%b\]|\{%b\}' % (_STRING, _FLAT, _FLAT)
"""Matches a value without nested ones; there is only one way to match it."""
_TOKENS: Final = re.compile(rb"%b|[\[\]{},]" % _STRING, re.DOTALL).finditer
"""Finds strings, and what begins, separates or ends values."""


class BeyondConnect(ValueError):
    """A value that Kafka Connect's converter would change, because it does not fit its schema."""


def _fitting_float(write: Converter) -> Converter:
    def write_float(cell: bytes) -> bytes:
        written = write(cell)
        if written[:1] == b'"':
            raise BeyondConnect
        return written

    return write_float


def _fitting_array(write: Converter, *, is_of_floats: bool) -> Converter:
    def write_array(cell: bytes) -> bytes:
        written = write(cell)
        if written[:1] != b"[" or written[:2] == b"[[" or (is_of_floats and b'"' in written):
            raise BeyondConnect
        return written

    return write_array


def _fitting(sql_type: str, write: Converter) -> Converter:
    """Returns the writer that refuses what Kafka Connect's converter would change."""
    kind, is_array, _ = kind_of(sql_type)
    if is_array:
        return _fitting_array(write, is_of_floats=kind in FLOATS)
    return _fitting_float(write) if kind in FLOATS else write


class FormedWriter:
    """Implements ``RowWriter`` with objects whose values are in other forms than JSON has by default.

    Args:
        columns: the columns of the rows.
        schema: their definition, which says in which form each is.
    """

    __slots__ = ("_columns", "_documents", "_form", "_head", "_names", "_tail", "_writers")

    def __init__(self, columns: Sequence[Column], schema: TableSchema) -> None:
        self._columns = schema.columns
        self._names = [column.name for column in columns]
        self._writers: list[Converter] = []
        for column, said in zip(columns, schema.columns, strict=True):
            pair = converters(said.sql_type, said.form)
            write = converter(column) if pair is None else pair[0]
            self._writers.append(_fitting(said.sql_type, write) if schema.is_connects else write)
        kinds = [kind_of(each.sql_type) for each in schema.columns]
        self._documents = tuple(i for i, each in enumerate(kinds) if each.kind is Kind.DOCUMENT and not each.is_array)
        self._head, self._tail = _around(schema)
        self._form = ObjectForm(self._names, self._writers)

    @property
    def bare_template(self) -> None:
        """Some cell is always converted."""
        return None

    @property
    def compiled(self) -> Any:
        """A writer in C that makes the same values, and declines some rows; None if it was not compiled."""
        module = twin("cdc.contract.formats._objects")
        if module is None or not self._names:
            return None
        writers = [
            _string_in_c if i in self._documents and each is not document else each
            for i, each in enumerate(self._writers)
        ]
        return module.ObjectWriter([orjson.dumps(name) for name in self._names], writers, self._head, self._tail)

    def encode(self, row: Row) -> bytes:
        """Returns the row's value.

        Raises:
            NOT_ENCODABLE: as ``ObjectForm.encode``, or Kafka Connect's converter would change a value.
        """
        written = self._form.encode(row)
        return b"%b%b%b" % (self._head, written, self._tail) if self._head else written

    def null_documents(self, row: Row) -> tuple[int, ...]:
        """Returns the indexes of json and jsonb columns with the document ``null``, as for rows in the default form."""
        return null_documents(row, self._documents)

    def problem(self, place: int, cell: bytes) -> str:
        """Returns why this text cannot be encoded; empty if it can."""
        try:
            self._writers[place](cell).decode()
        except BeyondConnect:
            return (
                f"the {self._columns[place].sql_type} {cell[:60]!r} does not fit Kafka Connect's schema, and its "
                "JsonConverter would change it; leave out values.schemas for this table"
            )
        except NOT_ENCODABLE as error:
            return f"{type(error).__name__} {error} in {cell[:60]!r}"
        return ""


def _string_in_c(cell: bytes) -> bytes:
    """Converts a document, but declines ``null``, which the record's header has to mention."""
    if cell.strip() == b"null":
        raise ValueError("Python has to make the header")
    return text(cell)


def _around(schema: TableSchema) -> tuple[bytes, bytes]:
    if not schema.is_connects:
        return b"", b""
    described = row_schema(schema.columns, required=schema.key, is_optional=False) | {"name": f"{schema.topic}.Value"}
    return _SCHEMA + orjson.dumps(described) + _PAYLOAD, _SCHEMA_END


class FormedReader:
    """Reads the values of one definition.

    Args:
        schema: the definition.

    Raises:
        ValueError: it has a form that is not for the column's type.
    """

    __slots__ = ("_columns", "_formed", "_head", "_is_connects", "_plain")

    def __init__(self, schema: TableSchema) -> None:
        self._is_connects = schema.is_connects
        self._head, _ = _around(schema)
        self._columns: list[tuple[str, bytes, Reader | None]] = []
        members = []
        for each in schema.columns:
            pair = converters(each.sql_type, each.form)
            label = orjson.dumps(each.name) + b":"
            self._columns.append((each.name, label, None if pair is None else pair[1]))
            members.append(re.escape(label) + (b"(?:%b)" if pair is None else b"(%b)") % _VALUE)
        self._formed = [(name, read) for name, _, read in self._columns if read is not None]
        self._plain = re.compile(b"{%b}" % b",".join(members), re.DOTALL).fullmatch

    def json(self, value: bytes) -> bytes:
        """Returns the row as the object that the topic contract describes.

        Raises:
            ValueError: not such a value; the message says what is wrong.
        """
        row = value
        if self._is_connects:
            is_known = value.startswith(self._head) and value.endswith(_SCHEMA_END)
            row = value[len(self._head) : -len(_SCHEMA_END)] if is_known else _payload(value)
        match = self._plain(row)
        if match is None:
            return self._member_by_member(row)
        parts: list[bytes] = []
        place = 0
        for number, (name, read) in enumerate(self._formed, 1):
            if (cell := match[number]) != b"null":
                start, end = match.span(number)
                parts += row[place:start], _read(name, read, cell)
                place = end
        return b"".join((*parts, row[place:]))

    def _member_by_member(self, row: bytes) -> bytes:
        """Does the same for a row that has nested values, or blanks around a document, or is damaged."""
        parts: list[bytes] = []
        place = 0
        for name, label, read in self._columns:
            # The members come in the order of their definition, so that each is found at once
            start = place + 1 + len(label)
            if row[place : place + 1] != (b"," if parts else b"{") or row[place + 1 : start] != label:
                raise ValueError(f"member {name!r} does not stand where the definition has it")
            place = _end(row, start)
            cell = row[start:place]  # with the blanks around a document, which belong to it
            if read is not None and (stripped := cell.strip(_BLANKS)) != b"null":
                cell = _read(name, read, stripped)
            parts.append(label + cell)
        if row[place:] != b"}":
            raise ValueError("the row has more members than its definition has columns, or does not end")
        return b"{%b}" % b",".join(parts)


def _read(name: str, read: Reader, cell: bytes) -> bytes:
    try:
        return read(cell)
    except (*NOT_ENCODABLE, msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"column {name!r}: not in the form that its definition says: {error}") from error


def _payload(value: bytes) -> bytes:
    place = _end(value, len(_SCHEMA)) if value.startswith(_SCHEMA) else 0
    start = place + len(_PAYLOAD)
    if not place or value[place:start] != _PAYLOAD or not value.endswith(_SCHEMA_END):
        raise ValueError("the value does not consist of a schema and a payload")
    return value[start : -len(_SCHEMA_END)]


def _end(text: bytes, place: int) -> int:
    """Returns where a member ends: at the comma or brace after its value, which may be deeper than parsers go."""
    depth = 0
    for token in _TOKENS(text, place):
        mark = token[0]
        if mark in b"[{":
            depth += 1
        elif depth == 0 and mark in b",]}":
            return token.start()
        elif mark in b"]}":
            depth -= 1
    raise ValueError("the object does not end")
