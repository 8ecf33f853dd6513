"""Key bytes of a topic → texts that the server may cast to the key columns' types: the way back from ``TableEncoder``.

More is understood than the bridge ever writes (blanks, other order, ``"1"`` for ``1``), because a key that looks like
one of this table's to some reader has to be looked up, and not only taken for strange. What the texts mean, and
whether they are of the type at all, only the server knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from cdc.contract.change import Column
from cdc.contract.formats.arrays import array_literal
from cdc.contract.kinds import ColumnKind, Kind, kind_of_column

_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ELEMENTS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_STRING: Final = msgspec.json.Decoder(str)


def key_texts(columns: Sequence[Column], key: bytes) -> tuple[bytes, ...] | None:
    """One text per column.

    Args:
        columns: of the record key.
        key: any bytes.

    Returns:
        None when the bytes are no object of exactly these members, or one of them is what no value can be.
    """
    try:
        members = _MEMBERS.decode(key)
        if members.keys() != {column.name for column in columns}:
            return None
        texts = [_text(column, bytes(members[column.name]).strip()) for column in columns]
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
            for each in (bytes(each).strip() for each in _ELEMENTS.decode(raw))
        ]

    return array_literal(nested(raw), kind.delimiter)
