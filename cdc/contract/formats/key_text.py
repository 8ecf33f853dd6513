"""Converts a record key to texts for the server to cast to the key columns' types: the inverse of ``TableEncoder``.

It accepts more than the bridge writes (blanks, another order, ``"1"`` for ``1``), because a key that some reader takes
for one of this table has to be looked up. Only the server knows what the texts mean, and whether they are valid for the
type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from cdc.contract.change import Column
from cdc.contract.formats.arrays import array_literal
from cdc.contract.json_members import elements, members
from cdc.contract.kinds import ColumnKind, Kind, kind_of_column

_STRING: Final = msgspec.json.Decoder(str)


def key_texts(columns: Sequence[Column], key: bytes) -> tuple[bytes, ...] | None:
    """Convert a key to one text per column.

    Args:
        columns: the columns of the record key.
        key: any bytes.

    Returns:
        The texts; None if the bytes are not an object with exactly these members, or a member cannot be a value.
    """
    try:
        found = members(key)
        if found.keys() != {column.name for column in columns}:
            return None
        texts = [_text(column, bytes(found[column.name]).strip()) for column in columns]
        encoded = tuple([text.encode() for text in texts if text is not None and "\0" not in text])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return encoded if len(encoded) == len(columns) else None


def _text(column: Column, raw: bytes) -> str | None:
    kind = kind_of_column(column)
    if kind.kind is Kind.DOCUMENT and not kind.is_array:
        return raw.decode()
    if raw[:1] == b"[":
        return _array(raw, kind) if kind.is_array else None
    return None if raw[:1] == b"{" or raw == b"null" else _scalar(raw)


def _scalar(raw: bytes) -> str:
    return _STRING.decode(raw) if raw[:1] == b'"' else raw.decode()


def _array(raw: bytes, kind: ColumnKind) -> str:
    has_documents = kind.kind is Kind.DOCUMENT
    item: Callable[[bytes], str] = bytes.decode if has_documents else _scalar

    def nested(raw: bytes) -> list[Any]:
        return [
            None if each == b"null" else nested(each) if each[:1] == b"[" and not has_documents else item(each)
            for each in (bytes(each).strip() for each in elements(raw))
        ]

    return array_literal(nested(raw), kind.delimiter)
