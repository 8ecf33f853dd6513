"""Writes and reads record keys in Avro: a record of the key columns, after the id of its schema. Pure.

A row has one key, so its bytes must never depend on more than the key's values. The schema says as little as it can:
a type that grows without changing the JSON key changes neither it nor the bytes. Integers of all sizes are ``long``,
truth values ``boolean`` and ``bytea`` is ``bytes``; everything else is a ``string`` with the server's text.

Every number and every length has one form, and reading refuses all others. So two keys have the same bytes only if
they are the same key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import orjson

from cdc.base.compiled import twin
from cdc.contract.change import Column, Row
from cdc.contract.formats.avro.binary import read_varint, varint
from cdc.contract.formats.avro.types import AvroForm, AvroType
from cdc.contract.formats.cells import CellWriter, bytes_writer, integer_writer, problem_of, text_writer
from cdc.contract.formats.json_format import JSON
from cdc.contract.formats.names import mangled
from cdc.contract.formats.registered import HEAD_BYTES, check_head, head
from cdc.contract.kinds import INTEGERS, Kind, kind_of
from cdc.contract.pgtypes import sql_type
from cdc.contract.record import TableSchema

_LONG_BITS: Final = 64
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


def key_texts(columns: Sequence[Column], key: bytes) -> tuple[bytes, ...] | None:
    """Returns the text of each column of a key in Avro or JSON, to be cast to the column's type.

    Args:
        columns: the columns of the key.
        key: any bytes. With whatever id it begins, a key in Avro is read by these columns.

    Returns:
        The texts; None if the bytes are not a key of these columns.
    """
    if not key.startswith(b"\0"):
        return JSON.key_texts(columns, key)
    try:
        return AvroKeyReader([sql_type(column) for column in columns]).texts(key)
    except ValueError:
        return None


class AvroKeyWriter:
    """Implements ``RowWriter`` with keys in Avro.

    Args:
        columns: the key's columns, in the order of the schema's fields.
        schema_id: the schema's id in the registry.
    """

    __slots__ = ("_forms", "_head", "_writers")

    def __init__(self, columns: Sequence[Column], schema_id: int) -> None:
        self._head = head(schema_id)
        self._forms = tuple(_form(sql_type(column)) for column in columns)
        self._writers = tuple(_WRITERS[form] for form in self._forms)

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
        types = [AvroType(form, _LONG_BITS, 0, False, True, ",") for form in self._forms]
        columns = [
            (each.in_c, b"", False, each.precision, each.scale, write)
            for each, write in zip(types, self._writers, strict=True)
        ]
        return module.ValueWriter(self._head, columns)

    def encode(self, row: Row) -> bytes:
        """Returns a key.

        Raises:
            NOT_ENCODABLE: a cell is NULL, was not sent or does not have its type's form, or the row has another width.
        """
        cells = zip(self._writers, row, strict=True)
        return self._head + b"".join([write(cell) for write, cell in cells])  # type: ignore[arg-type]  # others raise

    def null_documents(self, _: Row) -> tuple[int, ...]:
        """Returns nothing: a key has no NULL."""
        return ()

    def problem(self, place: int, cell: bytes) -> str:
        """Returns why this text cannot be encoded; empty if it can."""
        return problem_of(self._writers[place], cell)


class AvroKeyReader:
    """Reads keys of certain columns.

    Args:
        types: the columns' types, as ``__schemas`` spells them.
    """

    __slots__ = ("_readers",)

    def __init__(self, types: Sequence[str]) -> None:
        self._readers = tuple(_READERS[_form(each)] for each in types)

    def texts(self, key: bytes) -> tuple[bytes, ...]:
        """Returns the server's text of each column.

        Raises:
            ValueError: the bytes are not such a key; the message says what is wrong.
        """
        check_head(key)
        place, cells = HEAD_BYTES, []
        try:
            for read in self._readers:
                cell, place = read(key, place)
                cells.append(cell)
        except IndexError:
            raise ValueError("the key ends too early") from None
        if place != len(key):
            raise ValueError(f"{len(key) - place} bytes follow the last column of the key")
        return tuple(cells)


def _namespace(table: TableSchema, bridge: str) -> str:
    return f"{mangled(bridge)}.{mangled(table.namespace)}.{mangled(table.name)}"


def _form(type_name: str) -> AvroForm:
    kind, is_array, _ = kind_of(type_name)
    return AvroForm.STRING if is_array else _FORMS.get(kind, AvroForm.STRING)


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
