"""What a database's driver returns → PostgreSQL's text of it → the record's key and value as the topic has them. Pure.

It is written from docs/databases.md and the topic contract and shares no code with the sink, as ``source.sql`` shares
none with the bridge.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, TypeAlias

from cdc.contract.floats import double_text, single_text
from cdc.contract.jobspec.deployment import JobColumn, JobTable
from cdc.contract.kinds import INTEGERS, Kind, kind_of
from cdc.spark.source.sql import HASH_DIGITS

_BOOLEANS: Final[Mapping[Any, str]] = {0: "f", 1: "t", "false": "f", "true": "t"}
_SINGLE: Final = struct.Struct("<f")

Texts: TypeAlias = Sequence[str | None]
"""PostgreSQL's text of each published column; None for NULL."""


class StoredRows:
    """Reads the rows of a replica table as its driver returns them.

    Args:
        table: the table.
    """

    def __init__(self, table: JobTable) -> None:
        self._texts = [text_of(each) for each in table.columns]
        self._forms = [(f"{_quoted(each.name)}:", _form_of(each)) for each in table.columns]
        names = [each.name for each in table.columns]
        self._key = [names.index(each) for each in table.key]
        self._documents = [
            number for number, each in enumerate(table.columns) if each.kind == "json" and not each.is_array
        ]

    def texts(self, row: Sequence[Any]) -> Texts:
        """Returns PostgreSQL's text of each column.

        Args:
            row: the driver's values, in the order of the table's columns.
        """
        return [None if value is None else text(value) for text, value in zip(self._texts, row, strict=True)]

    def key(self, texts: Texts) -> str:
        """Returns the record key."""
        return self._object(texts, self._key)

    def hashes(self, texts: Texts) -> tuple[int, int]:
        """Returns ``key_hash`` and ``value_hash``, as ``source.sql`` computes them in PostgreSQL."""
        return hashed(self.key(texts)), self.value_hash(texts)

    def value_hash(self, texts: Texts) -> int:
        """Returns the second of them alone."""
        nulls = "".join(f"{number}," for number in self._documents if texts[number] == "null")
        return hashed(self._object(texts, range(len(texts))) + nulls)

    def _object(self, texts: Texts, columns: Sequence[int]) -> str:
        members = []
        for number in columns:
            name, form = self._forms[number]
            text = texts[number]
            members.append(name + ("null" if text is None else form(text)))
        return "{" + ",".join(members) + "}"


def hashed(text: str) -> int:
    """Returns 60 bits of a text's MD5."""
    return int(hashlib.md5(text.encode()).hexdigest()[:HASH_DIGITS], 16)


def text_of(column: JobColumn) -> Callable[[Any], str]:
    """Returns what makes PostgreSQL's text of a driver's value that is not NULL."""
    if column.kind == "bool" and not column.is_array:
        return _boolean
    kind, is_array, _ = kind_of(column.sql_type)
    if kind is Kind.TIMESTAMPTZ and not is_array:
        return _in_utc
    return _single if kind is Kind.FLOAT32 and not is_array else _plain


def _boolean(value: Any) -> str:
    return _BOOLEANS.get(value) or _plain(value)


def _single(value: Any) -> str:
    if not isinstance(value, float):
        return _plain(value)
    try:
        raw = _SINGLE.pack(value)
    except OverflowError:
        return double_text(value)
    text = single_text(raw)
    # SQLite holds the double that is nearest to the text, and DuckDB the real itself: any other number is damage
    return text if float(text) == value or _SINGLE.unpack(raw)[0] == value or value != value else double_text(value)


def _in_utc(value: Any) -> str:
    return f"{_plain(value)}+00" if isinstance(value, datetime) else _plain(value)


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, datetime):
        return str(value).rstrip("0") if value.microsecond else str(value)
    if isinstance(value, float):
        return double_text(value)
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def _form_of(column: JobColumn) -> Callable[[str], str]:
    """Returns what makes the topic's JSON of PostgreSQL's text."""
    if column.is_array:
        element = _document if column.kind == "json" else _scalar_form(column)
        return lambda text: array_form(text, element, column.delimiter, has_documents=column.kind == "json")
    return _scalar_form(column)


def _scalar_form(column: JobColumn) -> Callable[[str], str]:
    if column.kind == "bool":
        return lambda text: {"t": "true", "f": "false"}.get(text, _quoted(text))
    if column.kind == "number":
        if kind_of(column.sql_type).kind in INTEGERS:
            return _document
        return lambda text: _quoted(text) if text[-1:].isalpha() else text  # NaN and the infinities
    return _document if column.kind == "json" else _quoted


def _document(text: str) -> str:
    return text


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def array_form(text: str, element: Callable[[str], str], delimiter: str, *, has_documents: bool) -> str:
    """Returns the topic's JSON of an array.

    Args:
        text: as PostgreSQL prints it.
        element: returns the JSON of an element's text.
        delimiter: the character between elements.
        has_documents: whether elements are JSON documents. Nested lists would look like documents, and NULL like the
            document null: then the topic has the text.
    """
    if not text.startswith("{"):
        return _quoted(text)
    parts, depth = [], 0
    for found in re.finditer(rf'"((?:[^"\\]|\\.)*)"|([{{}}{delimiter}])|[^{{}}"{delimiter}]+', text, re.DOTALL):
        quoted, mark = found.groups()
        if quoted is not None:
            part = re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
            if has_documents and part == "null":
                return _quoted(text)
            parts.append(element(part))
        elif mark is None:
            parts.append("null" if found[0] == "NULL" else element(found[0]))
        else:
            depth += mark == "{"
            if has_documents and depth > 1:
                return _quoted(text)
            parts.append({"{": "[", "}": "]"}.get(mark, ","))
    return "".join(parts)
