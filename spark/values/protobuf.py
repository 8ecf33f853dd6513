"""Reads values in Protobuf as the JSON objects of the same rows, in the workers' Python.

Spark's own reader of Protobuf is another jar, and no help: it passes over fields that it does not know, and takes the
last of those that come twice. Nothing here is the bridge's: the schema's text is read anew, and so are the bytes. Only
the digits of floating point numbers come from ``cdc.contract``, where they are compared with a real server's. A value
that cannot be read becomes a text in parentheses, which every job refuses as it refuses damaged JSON.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final, NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as fn

from cdc.contract.floats import double_text, single_text
from cdc.contract.kinds import FLOATS, INTEGERS, Kind, kind_of
from cdc.spark.errors import TopicUnreadable

DAMAGED: Final = "(Protobuf that is cut or damaged)"

_HEAD: Final = 6
_EPOCH: Final = datetime(1970, 1, 1)
_FIELD: Final = re.compile(
    r"  // (.*)\n  (optional )?([.\w]+) \w+ = (\d+)[^\n]*;\n(?:  optional string \w+ = (\d+)[^\n]*;\n)?"
)
_VARINT, _EIGHT, _COUNTED, _FOUR = 0, 1, 2, 5


def protobuf_object(schema: str, value: Column) -> Column:
    """Returns the JSON objects of values with a schema; what other values become is of no use.

    Raises:
        TopicUnreadable: cdc did not write the schema.
    """
    try:
        _decoder(schema)
    except ForeignSchema as error:
        raise TopicUnreadable(
            f"the schemas topic holds a Protobuf schema that cdc did not write ({error}): {schema[:200]}",
            remedy="find out who else writes into it",
        ) from error
    # Spark calls it with every value, whatever the condition around it says
    return fn.udf(lambda each: _object(schema, each), "string", useArrow=True)(value)


@lru_cache(maxsize=1024)
def _decoder(schema: str) -> ProtobufDecoder:
    return ProtobufDecoder(schema)


def _object(schema: str, value: bytes | None) -> str | None:
    return _decoder(schema).object(bytes(value)) if value is not None and bytes(value[:1]) == b"\0" else None


class _ReadColumn(NamedTuple):
    """A column of a schema.

    Attributes:
        name: its name in the table.
        read: makes JSON of the bytes, or of the number, in its field.
        is_key: whether it has to be there.
    """

    name: str
    read: Callable[[Any], str]
    is_key: bool


class ForeignSchema(ValueError):
    """A schema that cdc did not write."""


class ProtobufDecoder:
    """Reads values of one schema.

    Args:
        schema: the schema's text.

    Raises:
        ForeignSchema: cdc did not write it.
    """

    def __init__(self, schema: str) -> None:
        self._columns: list[_ReadColumn] = []
        self._fields: dict[tuple[int, int], tuple[int, Callable[[Any], str]]] = {}
        for place, (said, optional, kind, number, text_number) in enumerate(_FIELD.findall(schema)):
            try:
                origin = json.loads(said)
                name, sql_type = origin["name"], origin["type"]
                wire_type, read = _reading(kind, sql_type)
            except (ValueError, KeyError, TypeError) as error:
                raise ForeignSchema(f"{error!r}") from error
            self._columns.append(_ReadColumn(name, read, not optional))
            self._fields[int(number), wire_type] = place, read
            if text_number:
                self._fields[int(text_number), _COUNTED] = place, _text_of_array(sql_type)
        if not self._columns and "message " not in schema:
            raise ForeignSchema("there is no message")
        self._names = [json.dumps(column.name, ensure_ascii=False) + ":" for column in self._columns]

    def object(self, value: bytes) -> str:
        """Returns the object of a row; a text in parentheses if the value cannot be read."""
        cells: dict[int, str] = {}
        try:
            if len(value) < _HEAD or value[_HEAD - 1]:
                return DAMAGED
            for number, wire_type, content in _parts(value[_HEAD:]):
                place, read = self._fields[number, wire_type]
                if place in cells:
                    return DAMAGED
                cells[place] = read(content)
        except (ValueError, LookupError, OverflowError, struct.error):
            return DAMAGED
        if any(column.is_key and place not in cells for place, column in enumerate(self._columns)):
            return DAMAGED
        members = (f"{name}{cells.get(place, 'null')}" for place, name in enumerate(self._names))
        return "{" + ",".join(members) + "}"


def _parts(content: bytes) -> Iterator[tuple[int, int, Any]]:
    """Yields the number of each field, how it is counted, and its content: a number without sign, or bytes."""
    place = 0
    while place < len(content):
        label, place = _number(content, place)
        wire_type = label & 7
        found: int | bytes
        if wire_type == _VARINT:
            found, place = _number(content, place)
        else:
            size = {_EIGHT: 8, _FOUR: 4}.get(wire_type)
            if size is None:
                size, place = _number(content, place)
            found, place = content[place : place + size], place + size
            if place > len(content):
                raise ValueError("cut")
        yield label >> 3, wire_type, found


def _number(content: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = content[place]
        number |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            break
    if number >> 64 or (not byte and shift > 7):
        raise ValueError("not a number as the bridge writes it")
    return number, place


def _reading(kind: str, sql_type: str) -> tuple[int, Callable[[Any], str]]:
    """Returns how a field is counted, and what reads it."""
    if not sql_type.endswith("[]"):
        return _scalar(kind, sql_type)
    element = kind.rpartition(".")[2].rstrip("_").removesuffix("Array")
    counted, read = _scalar(element if element == "Timestamp" else element.lower(), sql_type.removesuffix("[]"))

    def read_array(content: bytes) -> str:
        elements = []
        for number, wire_type, inner in _parts(content):
            values = list(_parts(inner)) if (number, wire_type) == (1, _COUNTED) else [(0, 0, 0)] * 2
            if len(values) > 1 or (values and values[0][:2] != (1, counted)):
                raise ValueError("not an element")
            elements.append(read(values[0][2]) if values else "null")
        return f"[{','.join(elements)}]"

    return _COUNTED, read_array


def _scalar(kind: str, sql_type: str) -> tuple[int, Callable[[Any], str]]:
    of_source = kind_of(sql_type).kind
    if kind in ("int32", "int64"):
        return _VARINT, _integer({Kind.INT16: 16, Kind.INT32: 32}.get(of_source, 64))
    if kind == "string" and of_source is Kind.DOCUMENT:
        return _COUNTED, _document
    if kind.endswith("Timestamp"):
        return _COUNTED, _timestamp
    return _SCALARS[kind]


def _integer(bits: int) -> Callable[[int], str]:
    def read(number: int) -> str:
        number -= number >> 63 << 64
        if not -(1 << bits - 1) <= number < 1 << bits - 1:
            raise ValueError("too many bits")
        return str(number)

    return read


def _string(content: bytes) -> str:
    return json.dumps(content.decode(), ensure_ascii=False)


def _document(content: bytes) -> str:
    if not content:
        raise ValueError("a document is empty")
    return content.decode()


def _boolean(number: int) -> str:
    return ("false", "true")[number]


def _double(content: bytes) -> str:
    return _unless_finite(double_text(*struct.unpack("<d", content)))


def _single(content: bytes) -> str:
    if len(content) != 4:
        raise ValueError("not four bytes")
    return _unless_finite(single_text(content))


def _unless_finite(text: str) -> str:
    """Returns the text of a number, in quotes if JSON has no such number."""
    return f'"{text}"' if text[-1] in "Ny" else text


def _timestamp(content: bytes) -> str:
    parts = {number: found for number, wire_type, found in _parts(content) if wire_type == _VARINT}
    if len(list(_parts(content))) != len(parts) or not {*parts} <= {1, 2}:
        raise ValueError("not a timestamp")
    seconds, nanos = parts.get(1, 0), parts.get(2, 0)
    if nanos % 1000 or nanos >= 10**9:
        raise ValueError("not whole microseconds")
    seconds -= seconds >> 63 << 64
    text = (_EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000)).isoformat(" ")
    return f'"{text.rstrip("0") if "." in text else text}+00"'


_SCALARS: Final[Mapping[str, tuple[int, Callable[[Any], str]]]] = {
    "bool": (_VARINT, _boolean),
    "float": (_FOUR, _single),
    "double": (_EIGHT, _double),
    "bytes": (_COUNTED, lambda content: f'"\\\\x{content.hex()}"'),
    "string": (_COUNTED, _string),
}


def _text_of_array(sql_type: str) -> Callable[[bytes], str]:
    """Returns what makes JSON of the server's text of a value that has no place in its type."""
    if not sql_type.endswith("[]"):
        return _string
    kind, _, delimiter = kind_of(sql_type)
    token = re.compile(rf'"((?:[^"\\]|\\.)*)"|([{{}}])|([^{{}}"{delimiter}]+)|({delimiter})', re.DOTALL)

    def read(content: bytes) -> str:
        text = content.decode()
        as_text = json.dumps(text, ensure_ascii=False)
        if kind is Kind.DOCUMENT or not text.startswith("{"):
            return as_text
        parts = []
        for quoted, brace, bare, between in token.findall(text):
            if brace:
                parts.append("[" if brace == "{" else "]")
            elif bare:
                parts.append("null" if bare == "NULL" else _bare(bare, kind))
            elif between:
                parts.append(",")
            else:
                parts.append(json.dumps(re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL), ensure_ascii=False))
        found = "".join(parts)
        try:
            json.loads(found)
        except ValueError:  # a type may have the name of an array, and be none: an enum may have the label {a
            return as_text
        return found

    return read


def _bare(text: str, kind: Kind) -> str:
    if kind is Kind.BOOL:
        return {"t": "true", "f": "false"}[text]
    is_number = kind in INTEGERS or (kind in FLOATS and text not in ("NaN", "Infinity", "-Infinity"))
    return text if is_number else json.dumps(text, ensure_ascii=False)
