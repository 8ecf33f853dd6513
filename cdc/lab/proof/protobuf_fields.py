"""Turns a value in Protobuf into the JSON of each column, with Google's compiler and Google's reader.

This is deliberately a second implementation, as ``server_text`` is. It shares no code with
``contract/formats/protobuf``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, unknown_fields
from grpc_tools import protoc

from cdc.lab.proof.comparison import FORMS
from cdc.lab.proof.json_texts import moment_text, number_text
from cdc.lab.proof.server_text import FormError, TypeForm
from cdc.lab.proof.topic_side import ReadFields

_EPOCH: Final = datetime(1970, 1, 1)
_FILE: Final = "value.proto"
_MESSAGE, _FIELD, _FIRST = 4, 2, 0  # a path in a file's comments: its message types, the first one, its fields


class CompiledSchema(NamedTuple):
    """A schema as Google's compiler understands it: the class of its first message, and its fields' comments."""

    message: Any
    comments: Mapping[int, str]


class _FieldsOfColumn(NamedTuple):
    """A column: its own name, its type in PostgreSQL, and its fields, the second of which holds texts."""

    name: str
    sql_type: str
    fields: list[Any]


def compiled(schema: str) -> CompiledSchema:
    """Compile a schema.

    Raises:
        ValueError: the compiler refuses it; the message is the compiler's.
    """
    known = descriptor_pb2.FileDescriptorSet()
    with TemporaryDirectory(prefix="cdc-protoc-") as folder:
        (Path(folder) / _FILE).write_text(schema, encoding="utf-8")
        known.ParseFromString(_descriptors(folder))
    pool = descriptor_pool.DescriptorPool()
    for each in known.file:
        pool.Add(each)
    own = known.file[-1]
    name = f"{own.package}.{own.message_type[0].name}"
    comments = {
        each.path[-1]: each.leading_comments
        for each in own.source_code_info.location
        if [*each.path[:-1]] == [_MESSAGE, _FIRST, _FIELD] and each.leading_comments
    }
    return CompiledSchema(message_factory.GetMessageClass(pool.FindMessageTypeByName(name)), comments)


def reader_of(schema: str) -> ReadFields:
    """Returns a function that reads values of a schema, without what precedes the message."""
    made = compiled(schema)
    columns = list(_columns(made))

    def fields(body: bytes) -> dict[str, bytes]:
        if body[:1] != b"\0":
            raise FormError(f"the value's message has the index {body[:1]!r}, not that of the schema's first one")
        row = made.message()
        row.ParseFromString(body[1:])
        # What came twice is written once; what is not known is kept aside
        if len(unknown_fields.UnknownFieldSet(row)) or len(body) - 1 != row.ByteSize() + _left_out(row, columns):
            raise FormError("the value has a field that its schema does not have, or one twice")
        return {column.name: _json(row, column).encode() for column in columns}

    return fields


def _descriptors(folder: str) -> bytes:
    target = Path(folder) / "descriptors"
    arguments = (f"-I{folder}", f"-I{files('grpc_tools') / '_proto'}", "--include_imports", "--include_source_info")
    if protoc.main(["protoc", *arguments, f"--descriptor_set_out={target}", _FILE]) != 0:
        raise ValueError("protoc refuses the schema; it says why on standard error")
    return target.read_bytes()


def _columns(made: CompiledSchema) -> Iterator[_FieldsOfColumn]:
    column: _FieldsOfColumn | None = None
    for place, field in enumerate(made.message.DESCRIPTOR.fields):
        if place in made.comments:
            if column is not None:
                yield column
            said = json.loads(made.comments[place])
            column = _FieldsOfColumn(said["name"], said["type"], [field])
        elif column is not None:
            column.fields.append(field)
    if column is not None:
        yield column


def _left_out(row: Any, columns: list[_FieldsOfColumn]) -> int:
    """Returns how many bytes of a row Google's writer would leave out: those of zeros in columns of the key."""
    left_out = 0
    for column in columns:
        field = column.fields[0]
        if not field.has_presence and not getattr(row, field.name) and not _is_negative_zero(getattr(row, field.name)):
            zero = {field.CPPTYPE_FLOAT: 4, field.CPPTYPE_DOUBLE: 8}.get(field.cpp_type, 1)
            left_out += _length(field.number << 3) + zero
    return left_out


def _is_negative_zero(value: Any) -> bool:
    return isinstance(value, float) and str(value) == "-0.0"


def _length(number: int) -> int:
    return max(1, -(-number.bit_length() // 7))


def _json(row: Any, column: _FieldsOfColumn) -> str:
    """Returns a column as the topic contract writes it in JSON."""
    field, *texts = column.fields
    if texts and row.HasField(texts[0].name):
        if row.HasField(field.name):
            raise FormError(f"column {column.name} has both a value and a text")
        return json.dumps(getattr(row, texts[0].name), ensure_ascii=False)
    if field.has_presence and not row.HasField(field.name):
        return "null"
    value, is_document = getattr(row, field.name), FORMS.get(column.sql_type.removesuffix("[]")) is TypeForm.DOCUMENT
    if not column.sql_type.endswith("[]"):
        return _value(value, field, is_document=is_document)
    elements = []
    for each in value.elements:
        (inner,) = each.DESCRIPTOR.fields
        is_null = not each.HasField(inner.name)
        elements.append("null" if is_null else _value(getattr(each, inner.name), inner, is_document=is_document))
    return f"[{','.join(elements)}]"


def _value(value: Any, field: Any, *, is_document: bool) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return number_text(value, is_single=field.type == field.TYPE_FLOAT)
        case bytes():
            return f'"\\\\x{value.hex()}"'
        case str():
            return value if is_document else json.dumps(value, ensure_ascii=False)
    moment = _EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1_000)
    return f'"{moment_text(moment.isoformat(" "))}+00"'
