"""Writes and reads record keys in Avro: a record of the key columns, after the id of its schema. Pure.

A row has one key, so its bytes must never depend on more than the key's values. The schema says as little as it can:
a type that grows without changing the JSON key changes neither it nor the bytes. Integers of all sizes are ``long``,
truth values ``boolean`` and ``bytea`` is ``bytes``; everything else is a ``string`` with the server's text, or for an
array with the text of its JSON.

Every number and every length has one form, and reading refuses all others. So two keys have the same bytes only if
they are the same key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
import orjson

from cdc.base.compiled import twin
from cdc.contract.change import Column, Row
from cdc.contract.formats.avro.binary import read_varint, varint
from cdc.contract.formats.avro.types import AvroForm, AvroType
from cdc.contract.formats.cells import CellWriter, bytes_writer, integer_writer, problem_of, text_writer
from cdc.contract.formats.names import mangled
from cdc.contract.formats.registered import HEAD_BYTES, check_head, head
from cdc.contract.formats.values import converter_of
from cdc.contract.json_members import member_texts
from cdc.contract.kinds import INTEGERS, Kind, kind_of
from cdc.contract.pgtypes import sql_type
from cdc.contract.record import TableSchema

_LONG_BITS: Final = 64
_STRING: Final = msgspec.json.Decoder(str)
_is_array: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_FORMS: Final[Mapping[Kind, AvroForm]] = {
    **dict.fromkeys(INTEGERS, AvroForm.LONG),
    Kind.BOOL: AvroForm.BOOLEAN,
    Kind.BYTES: AvroForm.BYTES,
}
"""The kinds that have a type in keys; all others, and all arrays, are strings."""

_WRITERS: Final[Mapping[AvroForm, CellWriter]] = {
    AvroForm.LONG: integer_writer(b"", _LONG_BITS, varint),
    AvroForm.BOOLEAN: {b"t": b"\x01", b"f": b"\x00"}.__getitem__,
    AvroForm.BYTES: bytes_writer(b"", varint),
    AvroForm.STRING: text_writer(b"", varint),
}


def key_record(table: TableSchema, bridge: str) -> str:
    """Returns the full name of the record in a table's key schema. No two tables, and no values, have the same."""
    return f"{_namespace(table, bridge)}.Key"


def key_schema(table: TableSchema, bridge: str) -> str:
    """Returns the schema of a table's keys: the names and types of the key columns and nothing that varies.

    Args:
        table: the definition.
        bridge: the bridge's name.
    """
    types = {column.name: column.sql_type for column in table.columns}
    record = {
        "type": "record",
        "name": "Key",
        "namespace": _namespace(table, bridge),
        "fields": [{"name": mangled(name), "type": _form(types[name]).value} for name in table.key],
    }
    return orjson.dumps(record).decode()


def key_of_json(columns: Sequence[tuple[str, str]], key: bytes) -> bytes | None:
    """Returns the key, without the id of its schema, that is this one in JSON.

    Args:
        columns: the name and type of each column of the key.
        key: as the JSON format writes it.

    Returns:
        The bytes; None if it is a key of other columns.
    """
    found = member_texts(key.decode())
    if found.keys() != {name for name, _ in columns}:
        return None
    return b"".join([_of_member(found[name], each) for name, each in columns])


class AvroKeyWriter:
    """Implements ``RowWriter`` with keys in Avro.

    Args:
        columns: the key's columns, in the order of the schema's fields.
        schema_id: the schema's id in the registry.
    """

    __slots__ = ("_head", "_writers")

    def __init__(self, columns: Sequence[Column], schema_id: int) -> None:
        self._head = head(schema_id)
        self._writers = tuple(_writer(sql_type(column)) for column in columns)

    @property
    def bare_template(self) -> None:
        """There is no template that makes keys in Avro."""
        return None

    @property
    def compiled(self) -> Any:
        """A writer in C that makes the same keys, and declines some; None if it was not compiled."""
        module = twin("cdc.contract.formats._avro_rows")
        if module is None:
            return None
        columns = [(each, b"", False, _LONG_BITS, 0, write) for each, write in self._writers]
        return module.ValueWriter(self._head, columns)

    def encode(self, row: Row) -> bytes:
        """Returns a key.

        Raises:
            NOT_ENCODABLE: a cell is NULL, was not sent or does not have its type's form, or the row has another width.
        """
        cells = zip(self._writers, row, strict=True)
        return self._head + b"".join([write(cell) for (_, write), cell in cells])  # type: ignore[arg-type]  # others raise

    def null_documents(self, _: Row) -> tuple[int, ...]:
        """Returns nothing: a key has no NULL."""
        return ()

    def problem(self, place: int, cell: bytes) -> str:
        """Returns why this text cannot be encoded; empty if it can."""
        return problem_of(self._writers[place][1], cell)


class AvroKeyReader:
    """Reads keys of certain columns.

    Args:
        columns: the name and type of each column, as ``__schemas`` spells it.
    """

    __slots__ = ("_columns", "_readers", "_template")

    def __init__(self, columns: Sequence[tuple[str, str]]) -> None:
        self._columns = columns
        self._readers = tuple((_READERS[_form(each)], _member(each)) for _, each in columns)
        members = [orjson.dumps(name).replace(b"%", b"%%") + b":%b" for name, _ in columns]
        self._template = b"{" + b",".join(members) + b"}"

    def json(self, key: bytes) -> bytes:
        """Returns the key as the object that is the row's key in JSON.

        Raises:
            ValueError: the bytes are not such a key; the message says what is wrong.
        """
        check_head(key)
        place, members = HEAD_BYTES, []
        try:
            for read, member in self._readers:
                text, place = read(key, place)
                members.append(member(text))
        except IndexError:
            raise ValueError("the key ends too early") from None
        except (TypeError, AttributeError, KeyError) as error:
            raise ValueError(f"a value of the key is not of its column's type ({error})") from error
        if place != len(key):
            raise ValueError(f"{len(key) - place} bytes follow the last column of the key")
        found = self._template % tuple(members)
        if key_of_json(self._columns, found) != key[HEAD_BYTES:]:  # converters trust that a text is the server's
            raise ValueError("a value of the key is not of its column's type")
        return found


def _namespace(table: TableSchema, bridge: str) -> str:
    return f"{mangled(bridge)}.{mangled(table.namespace)}.{mangled(table.name)}"


def _form(type_name: str) -> AvroForm:
    kind, is_array, _ = kind_of(type_name)
    return AvroForm.STRING if is_array else _FORMS.get(kind, AvroForm.STRING)


def _writer(type_name: str) -> tuple[int, CellWriter]:
    """Returns the number by which ``_avro_rows.pyx`` knows a column's form, and what writes it in Python."""
    if kind_of(type_name).is_array:
        return 0, _array_writer(converter_of(type_name))
    form = _form(type_name)
    return AvroType(form, _LONG_BITS, 0, False, True, ",").in_c, _WRITERS[form]


def _array_writer(to_json: Callable[[bytes], bytes]) -> CellWriter:
    """Returns the writer of arrays. Those that have no form in JSON are its strings with the server's text."""
    write = _WRITERS[AvroForm.STRING]

    def write_array(cell: bytes) -> bytes:
        found = to_json(cell)
        return write(found if found.startswith(b"[") else cell)

    return write_array


def _member(type_name: str) -> Callable[[bytes], bytes]:
    """Returns what makes a member of the key in JSON from a column's text."""
    return _array_member if kind_of(type_name).is_array else converter_of(type_name)


def _of_member(raw: str, type_name: str) -> bytes:
    kind, is_array, _ = kind_of(type_name)
    form = _form(type_name)
    if form is AvroForm.BOOLEAN:
        return _WRITERS[form](raw[:1].encode())
    is_text = raw.startswith('"') and (is_array or kind is not Kind.DOCUMENT)
    return _WRITERS[form]((_STRING.decode(raw) if is_text else raw).encode())


def _array_member(text: bytes) -> bytes:
    try:
        _is_array(text)
    except msgspec.MsgspecError:
        return orjson.dumps(text.decode())
    return text


def _read_long(key: bytes, place: int) -> tuple[bytes, int]:
    number, place = read_varint(key, place)
    return b"%d" % number, place


def _read_boolean(key: bytes, place: int) -> tuple[bytes, int]:
    if key[place] > 1:
        raise ValueError(f"a boolean of the key is {key[place]}")
    return (b"t" if key[place] else b"f"), place + 1


def _read_bytes(key: bytes, place: int) -> tuple[bytes, int]:
    raw, place = _cut(key, place)
    return b"\\x" + raw.hex().encode(), place


def _read_string(key: bytes, place: int) -> tuple[bytes, int]:
    raw, place = _cut(key, place)
    if b"\0" in raw:
        raise ValueError("a text of the key contains NUL")
    raw.decode()  # a UnicodeDecodeError is a ValueError
    return raw, place


def _cut(key: bytes, place: int) -> tuple[bytes, int]:
    size, place = read_varint(key, place)
    if not 0 <= size <= len(key) - place:
        raise ValueError(f"a column of the key has {size} bytes, and {len(key) - place} are left")
    return key[place : place + size], place + size


_READERS: Final[Mapping[AvroForm, Callable[[bytes, int], tuple[bytes, int]]]] = {
    AvroForm.LONG: _read_long,
    AvroForm.BOOLEAN: _read_boolean,
    AvroForm.BYTES: _read_bytes,
    AvroForm.STRING: _read_string,
}
