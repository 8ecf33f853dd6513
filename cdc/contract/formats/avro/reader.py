"""Reads Avro values as the JSON objects that ``JsonFormat`` writes for the same rows, byte for byte. Pure.

What comes from a topic may be damaged or come from another program. So every length is compared with what is left, and
every number with its range. Only a JSON document is passed on unread, as everywhere.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Any, Final, TypeAlias, cast

import msgspec
import orjson

from cdc.base.compiled import twin
from cdc.contract.floats import double_text, single_text
from cdc.contract.formats.avro.binary import read_varint
from cdc.contract.formats.avro.schema import AvroColumn, AvroTable, avro_schema, is_same_schema, misread, read_schema
from cdc.contract.formats.avro.types import AvroForm, AvroType
from cdc.contract.formats.avro.writer import AvroWriter
from cdc.contract.formats.moments import moment
from cdc.contract.formats.registered import HEAD_BYTES, RegisteredFormat, check_head
from cdc.contract.formats.values import converter_of, floating

CellReader: TypeAlias = Callable[[bytes, int, list[bytes]], int]
"""Reads what begins at a place of a value, appends its JSON to a list, and returns the place after it."""

_FIRST_DAY: Final = date(1970, 1, 1).toordinal()
_LAST_DAY: Final = date.max.toordinal()
_DAY: Final = 86_400_000_000
_DOUBLE: Final = struct.Struct("<d")

_is_json = msgspec.json.Decoder(msgspec.Raw).decode
_dumps = orjson.dumps


_ColumnReader: TypeAlias = tuple[Mapping[int, CellReader] | None, CellReader]
"""How a column is read: a union by its branches; without branches, directly."""


class AvroReader:
    """Reads the values of one schema.

    Args:
        schema: as ``avro_schema`` made it.

    Raises:
        ValueError: the schema is not in this form; the message names what is foreign.

    Attributes:
        table: the bridge's name and the table's definition, as the schema has them.
    """

    __slots__ = ("_compiled", "_names", "_readers", "_template", "table")

    def __init__(self, schema: str) -> None:
        self.table: AvroTable = read_schema(schema)
        self._names = [column.name for column in self.table.columns]
        self._readers = tuple(map(_column_reader, self.table.columns))
        members = [orjson.dumps(name).replace(b"%", b"%%") + b":%b" for name in self._names]
        self._template = b"{" + b",".join(members) + b"}"
        self._compiled = _compiled(self.table, self._readers)

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
        cells: list[bytes] = []
        place = HEAD_BYTES
        try:
            for branches, read in self._readers:
                if branches is None:
                    place = read(value, place, cells)
                else:
                    place = branches[value[place]](value, place + 1, cells)
        except (IndexError, struct.error):
            raise ValueError(f"{self._place(cells)}: the value ends too early") from None
        except KeyError as error:
            raise ValueError(f"{self._place(cells)}: there is no branch {error} of the union") from None
        except ValueError as error:
            raise ValueError(f"{self._place(cells)}: {error}") from error
        if place != len(value):
            raise ValueError(f"{len(value) - place} bytes follow the last column")
        return self._template % tuple(cells)

    def in_c(self, value: bytes) -> bytes | None:
        """Returns the same object, made in C; None if the value is damaged or unusual, or nothing was compiled."""
        return None if self._compiled is None else cast(bytes | None, self._compiled.json(value))

    def _place(self, cells: list[bytes]) -> str:
        return f"not a value of its schema, column {self._names[len(cells)]!r}"


def _compiled(table: AvroTable, readers: Sequence[_ColumnReader]) -> Any:
    """Returns a reader in C that makes the same objects, and declines some values; None if it was not compiled."""
    module = twin("cdc.contract.formats._avro_rows")
    if module is None or not table.columns:
        return None
    columns = (
        (
            orjson.dumps(column.name),
            0 if column.type.form is AvroForm.DOUBLE else column.type.in_c,
            None if branches is None or column.is_key else 0,
            None if branches is None else 0 if column.is_key else 2,
            column.type.precision,
            column.type.scale,
            read if branches is None else _with_branch(branches),
        )
        for column, (branches, read) in zip(table.columns, readers, strict=True)
    )
    return module.ValueReader(HEAD_BYTES, list(columns))


def _with_branch(branches: Mapping[int, CellReader]) -> CellReader:
    return lambda value, place, cells: branches[value[place]](value, place + 1, cells)


def _column_reader(column: AvroColumn) -> _ColumnReader:
    read = _array(column.type) if column.type.is_array else _scalar(column.type)
    # A branch is written as the number of its place, in zig-zag form: 0, 2, 4
    branches: dict[int, CellReader]
    if not column.is_key:
        branches = {0: _null, 2: read}
    elif column.has_text:
        branches = {0: read}
    else:
        return None, read
    if column.has_text:
        branches[2 * len(branches)] = _text(column)
    return branches, read


def _null(_: bytes, place: int, cells: list[bytes]) -> int:
    cells.append(b"null")
    return place


_NOT_CONVERTIBLE: Final = (ValueError, TypeError, LookupError, RecursionError, msgspec.MsgspecError)
"""What converters raise for a text that is not an array's. ``TypeError`` is orjson's for one nested too deep."""


def _text(column: AvroColumn) -> CellReader:
    """Returns the reader of texts that are beyond a type: they become what JSON makes of the server's text."""
    if not column.type.is_array:
        return _string
    convert = converter_of(column.sql_type)

    def read(value: bytes, place: int, cells: list[bytes]) -> int:
        text, place = _counted(value, place)
        try:
            text.decode()
            array = convert(text)
            _is_json(array)
        except _NOT_CONVERTIBLE as error:
            raise ValueError(f"not the text of an array: {error}") from error
        cells.append(array)
        return place

    return read


def _counted(value: bytes, place: int) -> tuple[bytes, int]:
    """Returns bytes that their length precedes, and the place after them."""
    size, place = read_varint(value, place)
    if size < 0:
        raise ValueError(f"a length is negative: {size}")
    end = place + size
    if end > len(value):
        raise ValueError(f"a length of {size} is longer than the rest of the value")
    return value[place:end], end


def _string(value: bytes, place: int, cells: list[bytes]) -> int:
    text, place = _counted(value, place)
    cells.append(_dumps(text.decode()))
    return place


def _document(value: bytes, place: int, cells: list[bytes]) -> int:
    text, place = _counted(value, place)
    if not text.isascii():
        text.decode()
    cells.append(text)
    return place


def _bytes(value: bytes, place: int, cells: list[bytes]) -> int:
    raw, place = _counted(value, place)
    cells.append(b'"\\\\x%b"' % raw.hex().encode())
    return place


def _boolean(value: bytes, place: int, cells: list[bytes]) -> int:
    byte = value[place]
    if byte > 1:
        raise ValueError(f"not a boolean: {byte}")
    cells.append(b"true" if byte else b"false")
    return place + 1


def _single(value: bytes, place: int, cells: list[bytes]) -> int:
    raw = value[place : place + 4]
    cells.append(floating(single_text(raw).encode()))
    return place + 4


def _double(value: bytes, place: int, cells: list[bytes]) -> int:
    (number,) = _DOUBLE.unpack_from(value, place)
    cells.append(floating(double_text(number).encode()))
    return place + 8


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


def _integer(bits: int) -> CellReader:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def read(value: bytes, place: int, cells: list[bytes]) -> int:
        number, place = read_varint(value, place)
        if not low <= number <= high:
            raise ValueError(f"a number of more than {bits} bits: {number}")
        cells.append(b"%d" % number)
        return place

    return read


def _decimal(kind: AvroType) -> CellReader:
    limit, scale = 10**kind.precision, kind.scale

    def read(value: bytes, place: int, cells: list[bytes]) -> int:
        raw, place = _counted(value, place)
        number = int.from_bytes(raw, "big", signed=True)
        if not raw or not -limit < number < limit:
            raise ValueError(f"not a decimal of at most {kind.precision} digits: {raw[:20]!r}")
        digits = (b"%d" % abs(number)).zfill(scale + 1)
        sign = b"-" if number < 0 else b""
        cells.append(b'"%b%b.%b"' % (sign, digits[:-scale], digits[-scale:]) if scale else b'"%b%b"' % (sign, digits))
        return place

    return read


_SCALARS: Final[Mapping[AvroForm, CellReader]] = {
    AvroForm.BOOLEAN: _boolean,
    AvroForm.FLOAT: _single,
    AvroForm.DOUBLE: _double,
    AvroForm.DATE: _date,
    AvroForm.TIME: _time,
    AvroForm.TIMESTAMP: _timestamp,
    AvroForm.TIMESTAMPTZ: _timestamptz,
    AvroForm.BYTES: _bytes,
    AvroForm.DOCUMENT: _document,
    **dict.fromkeys((AvroForm.UUID, AvroForm.STRING), _string),
}


def _scalar(kind: AvroType) -> CellReader:
    if kind.form in (AvroForm.INT, AvroForm.LONG):
        return _integer(kind.precision)
    return _decimal(kind) if kind.form is AvroForm.DECIMAL else _SCALARS[kind.form]


def _array(kind: AvroType) -> CellReader:
    branches: Mapping[int, CellReader] = {0: _null, 2: _scalar(kind)}

    def read(value: bytes, place: int, cells: list[bytes]) -> int:
        elements: list[bytes] = []
        count, place = read_varint(value, place)
        while count:
            # Each element takes a byte or more, so a damaged number makes no long list
            if not 0 < count <= len(value) - place:
                raise ValueError(f"a number of elements is negative or more than the rest of the value: {count}")
            for _ in range(count):
                place = branches[value[place]](value, place + 1, elements)
            count, place = read_varint(value, place)
        cells.append(b"[" + b",".join(elements) + b"]")
        return place

    return read


AVRO: Final = RegisteredFormat("AVRO", avro_schema, is_same_schema, misread, AvroWriter, AvroReader)
"""Avro, as bridge and readers use it."""
