"""The JSON value format: keys and values are objects with a member for each column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from cdc.contract.change import Column
from cdc.contract.formats.format import ReadColumn, RowReader, RowWriter, ValueFormat
from cdc.contract.formats.json_rows import ObjectReader
from cdc.contract.formats.key_text import key_texts
from cdc.contract.formats.objects import ObjectForm
from cdc.contract.formats.values import converter
from cdc.contract.json_members import members


class JsonFormat:
    """Implements ``ValueFormat`` with JSON objects."""

    def writer(self, columns: Sequence[Column]) -> RowWriter:
        """Make a writer of objects with a member for each column, in this order."""
        return ObjectForm([column.name for column in columns], [converter(column) for column in columns])

    def reader(self, columns: Sequence[ReadColumn], others: Sequence[str] = ()) -> RowReader:
        """Make a reader of objects; their members may come in any order."""
        return ObjectReader(columns, others)

    def key_texts(self, columns: Sequence[Column], key: bytes) -> tuple[bytes, ...] | None:
        """Returns the texts of a key's columns, as ``key_text.key_texts`` does."""
        return key_texts(columns, key)

    def members(self, key: bytes) -> frozenset[str] | None:
        """Returns the names of the object's members; None if the bytes are not an object."""
        try:
            return frozenset(members(key))
        except (msgspec.MsgspecError, UnicodeDecodeError):  # a name that is not UTF-8
            return None


JSON: Final[ValueFormat] = JsonFormat()
