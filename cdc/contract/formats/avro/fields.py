"""Writes and reads the fields of Avro's records, one after another; in C where it was compiled. Pure.

What comes from a topic may be damaged or come from another program. So every length is compared with what is left, and
every number with its range.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, cast

import orjson

from cdc.base.compiled import twin
from cdc.contract.change import Row
from cdc.contract.floats import double_text, single_text
from cdc.contract.formats.avro.binary import read_varint
from cdc.contract.formats.avro.types import AvroForm, AvroType
from cdc.contract.formats.cells import CellWriter, null_documents
from cdc.contract.formats.values import floating

NULL_BRANCH: Final = b"\x00"
VALUE_BRANCH: Final = b"\x02"

_DOUBLE: Final = struct.Struct("<d")
_dumps = orjson.dumps


class WrittenField(NamedTuple):
    """How a field is written.

    Attributes:
        write: returns the bytes of a text, with the branch before it if the field is a union.
        branch: that branch; empty if there is none.
        is_optional: whether the field may be NULL.
        type: what the module in C knows of the field; None leaves it to ``write``.
    """

    write: CellWriter
    branch: bytes
    is_optional: bool
    type: AvroType | None


class FieldsWriter:
    """Writes rows as records.

    Args:
        head: the bytes that precede each record.
        fields: how each column is written.
    """

    __slots__ = ("_documents", "_fields", "_head", "_required", "_writers")

    def __init__(self, head: bytes, fields: Iterable[WrittenField]) -> None:
        self._head = head
        self._fields = tuple(fields)
        self._writers = tuple(each.write for each in self._fields)
        self._required = tuple(i for i, each in enumerate(self._fields) if not each.is_optional)
        self._documents = tuple(i for i, each in enumerate(self._fields) if _is_document(each.type))

    @property
    def bare_template(self) -> None:
        """There is no template that makes Avro values."""
        return None

    @property
    def compiled(self) -> Any:
        """A writer in C that makes the same bytes, and declines some rows; None if it was not compiled."""
        module = twin("cdc.contract.formats._avro_rows")
        if module is None or not self._fields:
            return None
        columns = (
            (_number(each.type), each.branch, each.is_optional, *_sizes(each.type), each.write) for each in self._fields
        )
        return module.ValueWriter(self._head, list(columns))

    def encode(self, row: Row) -> bytes:
        """Returns the row's bytes.

        Raises:
            NOT_ENCODABLE: a cell was not sent, does not have its type's form or does not fit into its Avro type, NULL
                in a key column, or the row has another width.
        """
        for place in self._required:
            if row[place] is None:
                raise ValueError("NULL in a key column")
        return self._head + b"".join(
            [
                NULL_BRANCH if cell is None else write(cell)  # type: ignore[arg-type]  # UNCHANGED_TOAST raises
                for write, cell in zip(self._writers, row, strict=True)
            ]
        )

    def null_documents(self, row: Row) -> tuple[int, ...]:
        """Returns the indexes of json and jsonb columns with the document ``null``, which looks like NULL in JSON."""
        return null_documents(row, self._documents)


CellReader: TypeAlias = Callable[[bytes, int, list[bytes]], int]
"""Reads what begins at a place of a value, appends its JSON to a list, and returns the place after it."""


class ReadField(NamedTuple):
    """How a field is read.

    Attributes:
        name: of the member that it becomes.
        read: reads a value that is not NULL.
        branches: of a union; None if the field is not one.
        type: what the module in C knows of the field; None leaves it to ``read``.
    """

    name: str
    read: CellReader
    branches: Mapping[int, CellReader] | None
    type: AvroType | None


class FieldsReader:
    """Reads records as JSON objects.

    Args:
        fields: how each field is read.
    """

    __slots__ = ("_compiled", "_fields", "_template")

    def __init__(self, fields: Iterable[ReadField]) -> None:
        self._fields = tuple(fields)
        members = [_dumps(each.name).replace(b"%", b"%%") + b":%b" for each in self._fields]
        self._template = b"{" + b",".join(members) + b"}"
        self._compiled = _compiled(self._fields)

    @property
    def compiled(self) -> Any:
        """A reader in C that makes the same objects, and declines some records; None if it was not compiled."""
        return self._compiled

    def read(self, value: bytes, place: int) -> tuple[bytes, int]:
        """Returns the object of the record that begins at a place, and the place after it.

        Raises:
            ValueError: the bytes are not such a record; the message names the field and says what is wrong.
        """
        found = self.in_c(value, place)
        return self.in_python(value, place) if found is None else found

    def in_c(self, value: bytes, place: int) -> tuple[bytes, int] | None:
        """Returns the same, made in C; None if the record is damaged or unusual, or nothing was compiled."""
        if self._compiled is None:
            return None
        return cast("tuple[bytes, int] | None", self._compiled.record(value, place))

    def in_python(self, value: bytes, place: int) -> tuple[bytes, int]:
        """Returns the same, or says what is wrong.

        Raises:
            ValueError: as ``read`` does.
        """
        cells: list[bytes] = []
        try:
            for _, read, branches, _ in self._fields:
                if branches is None:
                    place = read(value, place, cells)
                else:
                    place = branches[value[place]](value, place + 1, cells)
        except (IndexError, struct.error):
            raise ValueError(f"{self._where(cells)}: the value ends too early") from None
        except KeyError as error:
            raise ValueError(f"{self._where(cells)}: there is no branch {error} of the union") from None
        except ValueError as error:
            raise ValueError(f"{self._where(cells)}: {error}") from error
        return self._template % tuple(cells), place

    def _where(self, cells: Sequence[bytes]) -> str:
        return f"not a value of its schema, column {self._fields[len(cells)].name!r}"


def _is_document(kind: AvroType | None) -> bool:
    return kind is not None and kind.form is AvroForm.DOCUMENT and not kind.is_array


def _number(kind: AvroType | None) -> int:
    return 0 if kind is None else kind.in_c


def _sizes(kind: AvroType | None) -> tuple[int, int]:
    return (0, 0) if kind is None else (kind.precision, kind.scale)


def _compiled(fields: Sequence[ReadField]) -> Any:
    """Returns a reader in C that makes the same objects, and declines some records; None if it was not compiled."""
    module = twin("cdc.contract.formats._avro_rows")
    if module is None or not fields:
        return None
    columns = (
        (
            _dumps(each.name),
            0 if each.type is not None and each.type.form is AvroForm.DOUBLE else _number(each.type),
            _branch(each.branches, null),
            _branch(each.branches, each.read),
            *_sizes(each.type),
            each.read if each.branches is None else union(each.branches),
        )
        for each in fields
    )
    return module.ValueReader(list(columns))


def _branch(branches: Mapping[int, CellReader] | None, read: CellReader) -> int | None:
    return next((branch for branch, each in (branches or {}).items() if each is read), None)


def null(_: bytes, place: int, cells: list[bytes]) -> int:
    """Reads NULL, which takes no bytes."""
    cells.append(b"null")
    return place


def counted(value: bytes, place: int) -> tuple[bytes, int]:
    """Returns bytes that their length precedes, and the place after them."""
    size, place = read_varint(value, place)
    if size < 0:
        raise ValueError(f"a length is negative: {size}")
    end = place + size
    if end > len(value):
        raise ValueError(f"a length of {size} is longer than the rest of the value")
    return value[place:end], end


def string(value: bytes, place: int, cells: list[bytes]) -> int:
    """Reads a string."""
    text, place = counted(value, place)
    cells.append(_dumps(text.decode()))
    return place


def boolean(value: bytes, place: int, cells: list[bytes]) -> int:
    """Reads a boolean."""
    byte = value[place]
    if byte > 1:
        raise ValueError(f"not a boolean: {byte}")
    cells.append(b"true" if byte else b"false")
    return place + 1


def single(value: bytes, place: int, cells: list[bytes]) -> int:
    """Reads a float of four bytes."""
    raw = value[place : place + 4]
    cells.append(floating(single_text(raw).encode()))
    return place + 4


def double(value: bytes, place: int, cells: list[bytes]) -> int:
    """Reads a float of eight bytes."""
    (number,) = _DOUBLE.unpack_from(value, place)
    cells.append(floating(double_text(number).encode()))
    return place + 8


def integer(bits: int) -> CellReader:
    """Returns the reader of integers with so many bits."""
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def read(value: bytes, place: int, cells: list[bytes]) -> int:
        number, place = read_varint(value, place)
        if not low <= number <= high:
            raise ValueError(f"a number of more than {bits} bits: {number}")
        cells.append(b"%d" % number)
        return place

    return read


def items(read_one: CellReader) -> Callable[[bytes, int], tuple[list[bytes], int]]:
    """Returns what reads the items of an array or a map, and the place after them."""

    def read(value: bytes, place: int) -> tuple[list[bytes], int]:
        found: list[bytes] = []
        count, place = read_varint(value, place)
        while count:
            # Each item takes a byte or more, so a damaged number makes no long list
            if not 0 < count <= len(value) - place:
                raise ValueError(f"a number of elements is negative or more than the rest of the value: {count}")
            for _ in range(count):
                place = read_one(value, place, found)
            count, place = read_varint(value, place)
        return found, place

    return read


def array(read_item: CellReader) -> CellReader:
    """Returns the reader of arrays."""
    read_items = items(read_item)

    def read(value: bytes, place: int, cells: list[bytes]) -> int:
        found, place = read_items(value, place)
        cells.append(b"[" + b",".join(found) + b"]")
        return place

    return read


def union(branches: Mapping[int, CellReader]) -> CellReader:
    """Returns the reader of a union's values: by the number of the branch, in zig-zag form: 0, 2, 4."""
    return lambda value, place, cells: branches[value[place]](value, place + 1, cells)
