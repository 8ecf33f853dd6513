"""Writes rows as ``before`` and ``after`` of envelopes in Avro, and reads them as the contract's objects. Pure.

What a value is in Debezium's form, ``types`` and ``texts`` say, in JSON. Connect's schema of the type then tells which
Avro stands for this JSON, as it does in Kafka Connect's converters. So no type is converted here a second time. Where
the bytes are those of ``format: avro``, the same code in C writes and reads them.
"""

from __future__ import annotations

import struct
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from cdc.contract import json_members
from cdc.contract.change import Column
from cdc.contract.floats import nearest_single
from cdc.contract.formats.avro import fields
from cdc.contract.formats.avro.binary import varint
from cdc.contract.formats.avro.fields import (
    NULL_BRANCH,
    VALUE_BRANCH,
    CellReader,
    FieldsReader,
    FieldsWriter,
    ReadField,
    WrittenField,
)
from cdc.contract.formats.avro.types import AvroForm, AvroType, avro_type
from cdc.contract.formats.cells import CellWriter, text_writer
from cdc.contract.formats.debezium import texts
from cdc.contract.formats.debezium.avro_schema import row_fields
from cdc.contract.formats.debezium.rows import problem_of_type
from cdc.contract.formats.debezium.texts import BeyondDebezium
from cdc.contract.formats.debezium.types import DebeziumType, InC, contract_reader, debezium_type
from cdc.contract.formats.format import NOT_ENCODABLE
from cdc.contract.pgtypes import sql_type
from cdc.contract.record import DebeziumModes, TableSchema

_DOUBLE: Final = struct.Struct("<d")
_BITS: Final[Mapping[str, int]] = {"int16": 16, "int32": 32, "int64": 64}
_SAME_BYTES: Final[Mapping[AvroForm, frozenset[tuple[str, str | None]]]] = {
    AvroForm.BOOLEAN: frozenset({("boolean", None)}),
    AvroForm.INT: frozenset({("int16", None), ("int32", None)}),
    AvroForm.LONG: frozenset({("int64", None)}),
    AvroForm.DOUBLE: frozenset({("double", None)}),
    AvroForm.DECIMAL: frozenset({("bytes", "org.apache.kafka.connect.data.Decimal")}),
    AvroForm.DATE: frozenset({("int32", "io.debezium.time.Date")}),
    AvroForm.TIME: frozenset({("int64", "io.debezium.time.MicroTime")}),
    AvroForm.TIMESTAMP: frozenset({("int64", "io.debezium.time.MicroTimestamp")}),
    AvroForm.BYTES: frozenset({("bytes", None)}),
    AvroForm.DOCUMENT: frozenset({("string", "io.debezium.data.Json")}),
}
"""Connect's types, with their names, whose values have the same bytes as a form of ``format: avro``."""

_decode_string = msgspec.json.Decoder(str).decode
_encode = msgspec.json.encode


def _plain_type(of: str, found: DebeziumType) -> AvroType | None:
    """Returns the type of ``format: avro`` that has the same bytes; None if none has."""
    plain = avro_type(of)
    form, places = found.in_c
    if form is InC.ZONED:
        return plain._replace(form=AvroForm.ZONED, precision=places, scale=0)
    element = found.schema.get("items", found.schema)
    if plain.is_array != (found.schema["type"] == "array") or (plain.is_array and not element["optional"]):
        return None
    if found.read is None and element["type"] == "string":
        return plain._replace(form=AvroForm.STRING, precision=0, scale=0)
    return plain if (element["type"], element.get("name")) in _SAME_BYTES.get(plain.form, ()) else None


class DebeziumAvroWriter(FieldsWriter):
    """Implements ``RowWriter`` with the records that Debezium makes of rows.

    Args:
        columns: the columns of the rows.
        modes: how their values are written.
        schema: the schema of the envelope.
    """

    __slots__ = ("_types",)

    def __init__(self, columns: Sequence[Column], modes: DebeziumModes, schema: str) -> None:
        self._types = tuple(map(sql_type, columns))
        optional = [type(each["type"]) is list for each in row_fields(schema)]
        super().__init__(
            b"",
            (
                _written_field(each, modes, is_optional=is_optional)
                for each, is_optional in zip(self._types, optional, strict=True)
            ),
        )

    def problem(self, place: int, cell: bytes) -> str:
        """Returns why this text cannot be encoded; empty if it can."""
        return problem_of_type(self._writers[place], cell, self._types[place])


def _written_field(of: str, modes: DebeziumModes, *, is_optional: bool) -> WrittenField:
    found = debezium_type(of, modes)
    branch, plain = VALUE_BRANCH if is_optional else b"", _plain_type(of, found)
    if plain is not None and not plain.is_array and plain.form in (AvroForm.STRING, AvroForm.DOCUMENT):
        return WrittenField(text_writer(branch, varint), branch, is_optional, plain)
    to_json, to_avro = found.write, _avro_of(found.schema)

    def write(cell: bytes) -> bytes:
        json = to_json(cell)
        try:
            return branch + to_avro(json)
        except msgspec.MsgspecError as error:
            raise ValueError(f"not text in UTF-8: {error}") from error

    return WrittenField(write, branch, is_optional, plain)


def _avro_of(schema: Mapping[str, Any]) -> CellWriter:
    """Returns what makes Avro of JSON, both as Kafka Connect's converters make them of values with this schema."""
    match schema["type"]:
        case "boolean":
            return {b"true": b"\x01", b"false": b"\x00"}.__getitem__
        case "int16" | "int32" | "int64":
            return _integer(_BITS[schema["type"]])
        case "float":
            return lambda json: nearest_single(json.strip(b'"').decode())
        case "double":
            return lambda json: _DOUBLE.pack(float(json.strip(b'"')))
        case "string":
            return lambda json: _counted(_decode_string(json).encode())
        case "bytes":
            return lambda json: _counted(b64decode(_decode_string(json), validate=True))
        case "array":
            return _array(_value(schema["items"]))
        case "map":
            return _map(_value(schema["values"]))
    return _record([(each["field"], _value(each)) for each in schema["fields"]])


def _value(schema: Mapping[str, Any]) -> CellWriter:
    write = _avro_of(schema)
    if not schema["optional"]:
        return write
    return lambda json: NULL_BRANCH if json == b"null" else VALUE_BRANCH + write(json)


def _counted(raw: bytes) -> bytes:
    return varint(len(raw)) + raw


def _blocks(items: Sequence[bytes]) -> bytes:
    return varint(len(items)) + b"".join(items) + b"\x00" if items else b"\x00"


def _integer(bits: int) -> CellWriter:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def write(json: bytes) -> bytes:
        number = int(json)
        if not low <= number <= high:
            raise ValueError(f"it has more than {bits} bits")
        return varint(number)

    return write


def _array(write: CellWriter) -> CellWriter:
    def write_array(json: bytes) -> bytes:
        if json[:1] != b"[":
            raise BeyondDebezium  # an array by its type's name only
        return _blocks([write(each) for each in texts.elements(json)])

    return write_array


def _map(write: CellWriter) -> CellWriter:
    def write_map(json: bytes) -> bytes:
        return _blocks(
            [_counted(name.encode()) + write(bytes(raw)) for name, raw in json_members.members(json).items()]
        )

    return write_map


def _record(members: Sequence[tuple[str, CellWriter]]) -> CellWriter:
    def write_record(json: bytes) -> bytes:
        found = json_members.members(json)
        return b"".join([write(bytes(found[name])) for name, write in members])

    return write_record


def row_reader(table: TableSchema, modes: DebeziumModes) -> FieldsReader:
    """Returns the reader of a definition's rows, as the objects that the topic contract describes."""
    return FieldsReader(
        _read_column(each.name, each.sql_type, modes, is_key=each.name in table.key) for each in table.columns
    )


def _read_column(name: str, of: str, modes: DebeziumModes, *, is_key: bool) -> ReadField:
    found = debezium_type(of, modes)
    read_json, to_contract = _json_of(found.schema), contract_reader(of, modes)
    read = read_json if to_contract is None else _converted(read_json, to_contract)
    return ReadField(name, read, None if is_key else {0: fields.null, 2: read}, _plain_type(of, found))


def _converted(read: CellReader, convert: CellWriter) -> CellReader:
    def read_converted(value: bytes, place: int, cells: list[bytes]) -> int:
        found: list[bytes] = []
        place = read(value, place, found)
        try:
            cells.append(convert(found[0]))
        except (*NOT_ENCODABLE, msgspec.MsgspecError, RecursionError) as error:
            raise ValueError(f"not a value of its type in Debezium's form: {error}") from error
        return place

    return read_converted


def read_field(schema: Mapping[str, Any]) -> ReadField:
    """Returns how a field of a struct of Connect's is read, as the JSON that JsonConverter makes of it."""
    read = _json_of(schema)
    plain = _PLAIN.get(schema["type"])
    return ReadField(schema["field"], read, _branches(schema, read) if schema["optional"] else None, plain)


_PLAIN: Final = {
    "string": AvroType(AvroForm.STRING, 0, 0, is_array=False, is_builtin=True, delimiter=","),
    "int64": AvroType(AvroForm.LONG, 64, 0, is_array=False, is_builtin=True, delimiter=","),
}


def _branches(schema: Mapping[str, Any], read: CellReader) -> Mapping[int, CellReader]:
    return {0: read, 2: fields.null} if "default" in schema else {0: fields.null, 2: read}


def _json_of(schema: Mapping[str, Any]) -> CellReader:
    """Returns the reader of what ``_avro_of`` writes."""
    match schema["type"]:
        case "boolean":
            return fields.boolean
        case "int16" | "int32" | "int64":
            return fields.integer(_BITS[schema["type"]])
        case "float":
            return fields.single
        case "double":
            return fields.double
        case "string":
            return fields.string
        case "bytes":
            return _bytes
        case "array":
            return fields.array(_any(schema["items"]))
        case "map":
            return _read_map(_any(schema["values"]))
    return _struct(schema["fields"])


def _any(schema: Mapping[str, Any]) -> CellReader:
    read = _json_of(schema)
    return fields.union(_branches(schema, read)) if schema["optional"] else read


def _bytes(value: bytes, place: int, cells: list[bytes]) -> int:
    raw, place = fields.counted(value, place)
    cells.append(b'"%b"' % b64encode(raw))
    return place


def _read_map(read: CellReader) -> CellReader:
    def read_member(value: bytes, place: int, cells: list[bytes]) -> int:
        found: list[bytes] = []
        place = read(value, fields.string(value, place, found), found)
        cells.append(b":".join(found))
        return place

    read_members = fields.items(read_member)

    def read_map(value: bytes, place: int, cells: list[bytes]) -> int:
        found, place = read_members(value, place)
        cells.append(b"{" + b",".join(found) + b"}")
        return place

    return read_map


def _struct(members: Sequence[Mapping[str, Any]]) -> CellReader:
    reader = FieldsReader([read_field(each) for each in members])

    def read_struct(value: bytes, place: int, cells: list[bytes]) -> int:
        found, place = reader.read(value, place)
        cells.append(found)
        return place

    return read_struct
