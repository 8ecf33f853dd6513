"""Writes rows as ``before`` and ``after`` of Debezium's envelope, and reads them as the contract's objects. Pure.

Both are JSON objects with a member for each column, in the same order. Only the values of some types differ. So a row
is written by the same code with other converters. ``_rows.pyx`` does the same in C for ordinary rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import orjson

from cdc.base.compiled import twin
from cdc.contract.change import Column, Row
from cdc.contract.formats.debezium.texts import BeyondDebezium
from cdc.contract.formats.debezium.types import debezium_type, json_reader
from cdc.contract.formats.format import NOT_ENCODABLE
from cdc.contract.formats.objects import ObjectForm
from cdc.contract.formats.values import text
from cdc.contract.json_members import members
from cdc.contract.pgtypes import sql_type
from cdc.contract.record import DebeziumModes, TableSchema

_MODULE: Final = "cdc.contract.formats.debezium._rows"


class DebeziumWriter:
    """Implements ``RowWriter`` with the objects that Debezium makes of rows.

    Args:
        columns: the columns of the rows.
        modes: how their values are written.
    """

    __slots__ = ("_columns", "_documents", "_form", "_in_c", "_names", "_writers")

    def __init__(self, columns: Sequence[Column], modes: DebeziumModes) -> None:
        types = [debezium_type(sql_type(column), modes) for column in columns]
        self._columns = tuple(columns)
        self._names = [column.name for column in columns]
        self._writers = [each.write for each in types]
        self._in_c = [each.in_c for each in types]
        self._documents = tuple(i for i, each in enumerate(types) if each.is_document)
        self._form = ObjectForm(self._names, self._writers)

    @property
    def bare_template(self) -> bytes | None:
        """A template with which ``template % cells`` encodes rows without NULLs; None if it takes more than that."""
        return self._form.bare_template

    @property
    def compiled(self) -> Any:
        """A writer in C that makes the same objects, and declines some rows; None if it was not compiled."""
        module = twin(_MODULE)
        if module is None or not self._columns:
            return None
        writers = [_document_in_c if i in self._documents else each for i, each in enumerate(self._writers)]
        return module.EventRowWriter([orjson.dumps(name) for name in self._names], writers, self._in_c)

    def encode(self, row: Row) -> bytes:
        """Returns the row's object.

        Raises:
            NOT_ENCODABLE: a cell was not sent, does not have its type's form or does not fit into Debezium's type, or
                the row has another width.
        """
        return self._form.encode(row)

    def null_documents(self, row: Row) -> tuple[int, ...]:
        """Returns the indexes of json and jsonb columns with the document ``null``, which looks like NULL in JSON."""
        return tuple([i for i in self._documents if isinstance(cell := row[i], bytes) and cell.strip() == b"null"])

    def problem(self, place: int, cell: bytes) -> str:
        """Returns why this text cannot be encoded; empty if it can."""
        write = self._writers[place]
        return problem_of_type(lambda text: write(text).decode(), cell, sql_type(self._columns[place]))


def problem_of_type(write: Callable[[bytes], object], cell: bytes, of: str) -> str:
    """Returns why a text of this SQL type cannot be written; empty if it can."""
    try:
        write(cell)
    except BeyondDebezium:
        return (
            f"the {of} {cell[:60]!r} has no place in Debezium's type, which would change it; "
            "decimal_handling_mode: string and time_precision_mode: isostring hold more"
        )
    except NOT_ENCODABLE as error:
        return f"{type(error).__name__} {error} in {cell[:60]!r}"
    return ""


def _document_in_c(cell: bytes) -> bytes:
    """Converts a document, but declines ``null``, which the record's header has to mention."""
    if cell.strip() == b"null":
        raise ValueError("Python has to make the header")
    return text(cell)


class DebeziumReader:
    """Reads rows of one definition.

    Args:
        schema: the definition.
        modes: how its values were written.
    """

    __slots__ = ("_in_c", "_readers", "_template")

    def __init__(self, schema: TableSchema, modes: DebeziumModes) -> None:
        self._in_c = [debezium_type(each.sql_type, modes).in_c for each in schema.columns]
        self._readers = tuple((each.name, json_reader(each.sql_type, modes)) for each in schema.columns)
        named = [orjson.dumps(each.name).replace(b"%", b"%%") + b":%b" for each in schema.columns]
        self._template = b"{" + b",".join(named) + b"}"

    @property
    def compiled(self) -> Any:
        """A reader in C that makes the same objects, and declines some rows; None if it was not compiled."""
        module = twin(_MODULE)
        if module is None or not self._readers:
            return None
        return module.EventRowReader(
            [(orjson.dumps(name), *in_c, read) for (name, read), in_c in zip(self._readers, self._in_c, strict=True)]
        )

    def json(self, row: bytes | msgspec.Raw) -> bytes:
        """Returns the object that the topic contract describes.

        Raises:
            ValueError: not such a row; the message names the column.
        """
        try:
            found = members(row)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ValueError(f"the row is not a JSON object: {error}") from error
        cells = []
        for name, read in self._readers:
            if name not in found:
                raise ValueError(f"the row has no member {name!r}, which its definition has")
            cell = bytes(found[name]).strip()
            if read is not None and cell != b"null":
                try:
                    cell = read(cell)
                except (*NOT_ENCODABLE, msgspec.MsgspecError, RecursionError) as error:
                    raise ValueError(f"column {name!r}: not a value of its type in Debezium's form: {error}") from error
            cells.append(cell)
        if len(found) != len(cells):
            raise ValueError(f"the row has {len(found)} members, and its definition {len(cells)} columns")
        return self._template % tuple(cells)
