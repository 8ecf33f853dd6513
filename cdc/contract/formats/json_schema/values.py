"""JSON with a JSON Schema, as bridge and readers use it: the head, and then exactly what the JSON format writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson

from cdc.base.compiled import twin
from cdc.contract.change import Column, Row
from cdc.contract.formats.json_schema.schema import is_same_schema, json_schema, misread, read_schema, succeeding
from cdc.contract.formats.objects import ObjectForm
from cdc.contract.formats.registered import HEAD_BYTES, RegisteredFormat, head
from cdc.contract.formats.values import converter
from cdc.contract.pgtypes import sql_type


class DescribedWriter:
    """Implements ``RowWriter`` with objects after the id of their schema.

    Args:
        columns: the columns of the rows.
        schema: the schema of the table that has these columns, as ``json_schema`` makes it.
        schema_id: the schema's id in the registry.

    Raises:
        ValueError: the schema is not in this form, or describes other columns.
    """

    __slots__ = ("_converters", "_head", "_names", "_objects", "null_documents", "problem")

    def __init__(self, columns: Sequence[Column], schema: str, schema_id: int) -> None:
        if dict(read_schema(schema).types) != {column.name: sql_type(column) for column in columns}:
            raise ValueError("the schema describes other columns")
        self._head = head(schema_id)
        self._names = [column.name for column in columns]
        self._converters = [converter(column) for column in columns]
        self._objects = ObjectForm(self._names, self._converters)
        self.null_documents = self._objects.null_documents
        self.problem = self._objects.problem

    @property
    def bare_template(self) -> None:
        """The head need not be text, which a template's rows are checked to be."""
        return None

    @property
    def compiled(self) -> Any:
        """A writer in C that makes the same values, and declines some rows; None if it was not compiled."""
        if (module := twin("cdc.contract.formats._objects")) is None:
            return None
        return module.ObjectWriter([orjson.dumps(name) for name in self._names], self._converters, self._head)

    def encode(self, row: Row) -> bytes:
        """Returns the row's value.

        Raises:
            NOT_ENCODABLE: as ``ObjectForm.encode``.
        """
        return self._head + self._objects.encode(row)


class DescribedReader:
    """Implements ``ValueReader``: takes the head off.

    Args:
        schema: a schema as ``json_schema`` makes it.

    Raises:
        ValueError: the schema is not in this form.
    """

    __slots__ = ()

    def __init__(self, schema: str) -> None:
        read_schema(schema)

    def json(self, value: bytes) -> bytes:
        """Returns the object.

        Raises:
            ValueError: no object follows the head.
        """
        if value[:1] != b"\0" or value[HEAD_BYTES : HEAD_BYTES + 1] != b"{" or not value.endswith(b"}"):
            raise ValueError(f"no JSON object follows the schema's id: {value[:60]!r}")
        return value[HEAD_BYTES:]


JSON_SCHEMA: Final = RegisteredFormat(
    "JSON", json_schema, is_same_schema, misread, DescribedWriter, DescribedReader, succeeding
)
