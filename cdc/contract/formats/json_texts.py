"""Converts a JSON value of the topic contract to the text that PostgreSQL reads as the same value.

| JSON | text |
|---|---|
| ``null`` | NULL |
| string | its characters |
| number, ``true``, ``false`` | verbatim, so that no digit is lost in a Python float |
| document in a json or jsonb column | verbatim |
| array in an array column | array literal, element by element |

The form of each column is chosen once, by its SQL type: ``ColumnCodec.accepts`` is the type that the decoder expects,
and ``ColumnCodec.render`` converts a whole batch of such values to texts. A value of another shape (the column had
another type when the record was written) goes to ``any_text``, which looks at the value instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from cdc.contract.formats.arrays import array_literal
from cdc.contract.formats.format import NULL
from cdc.contract.json_members import elements
from cdc.contract.kinds import Kind, kind_of

_BLANKS: Final = " \t\n\r"
_BRACES: Final = str.maketrans("[]", "{}")
_BARE_ELEMENT: Final = r'"(?!(?i:null)")[^"\\\[\]{},\s]+"'
_BARE_STRINGS: Final = re.compile(rf"\[{_BARE_ELEMENT}(?:,{_BARE_ELEMENT})*\]")
"""Matches arrays of strings that an array literal does not quote. The spelling must be exact, because a replica without
the type stores the literal as text."""

_decode_array = msgspec.json.Decoder(list[Any]).decode
_decode_text = msgspec.json.Decoder(str).decode


class ColumnCodec(NamedTuple):
    """How a column's values are decoded and rendered.

    Attributes:
        accepts: the type that msgspec decodes; ``Raw`` where digits or bytes must not change.
        render: converts a batch of decoded values to texts; ``NULL`` stands for NULL.
    """

    accepts: Any
    render: Callable[[Sequence[Any]], Sequence[str]]


def form_of(sql_type: str, delimiter: str) -> ColumnCodec:
    """Returns the form of a column.

    Args:
        sql_type: the type as ``__schemas`` spells it; it determines what JSON to expect.
        delimiter: ``typdelim`` of an array's element type.
    """
    kind = kind_of(sql_type)
    if kind.is_array:
        array = _array_renderer(kind.kind, delimiter)
        return ColumnCodec(
            msgspec.Raw, lambda values: [NULL if raw == "null" else array(raw) for raw in _texts(values)]
        )
    return FORMS[kind.kind]


def any_text(value: msgspec.Raw, sql_type: str, delimiter: str) -> str:
    """Returns the text of one value, by its JSON shape: it may not be the shape that the column's type has today."""
    raw = str(value, "utf-8")
    if raw == "null":
        return NULL
    kind = kind_of(sql_type)
    if raw.startswith("[") and kind.is_array:
        return _array_renderer(kind.kind, delimiter)(raw)
    return raw if kind.kind is Kind.DOCUMENT and not kind.is_array else _scalar(raw)


def _texts(values: Sequence[msgspec.Raw]) -> list[str]:
    return [str(value, "utf-8") for value in values]


def _scalar(raw: str) -> str:
    return _decode_text(raw) if raw[0] == '"' else raw


def _array_renderer(element: Kind, delimiter: str) -> Callable[[str], str]:
    """Returns the converter of JSON arrays to array literals; a JSON string is a literal already (it has bounds)."""
    if FORMS[element] in (_INTEGER, _BARE):
        return _number_array
    if element is Kind.DOCUMENT:
        return _document_array

    is_bare = _BARE_STRINGS.fullmatch if delimiter == "," else _never

    def string_array(raw: str) -> str:
        if is_bare(raw):
            return "{" + raw[1:-1].replace('"', "") + "}"
        return _decode_text(raw) if raw[0] == '"' else array_literal(_decode_array(raw), delimiter)

    return string_array


def _never(_: str) -> None:
    return None


def _number_array(raw: str) -> str:
    """Convert an array of numbers, booleans or floats: its elements are the same in both, so no digit changes."""
    return _decode_text(raw) if raw.startswith('"') else raw.translate(_BRACES).replace("null", "NULL")


def _document_array(raw: str) -> str:
    if raw.startswith('"'):
        return _decode_text(raw)
    documents = _whole(raw, [str(document, "utf-8") for document in elements(raw)])
    return array_literal([None if document == "null" else document for document in documents])


def _whole(array: str, documents: Sequence[str]) -> list[str]:
    """Returns the documents with the blanks around them; they belong to the documents, as the bridge adds no blanks."""
    if len(array) == sum(map(len, documents)) + max(len(documents), 1) + 1:
        return [*documents]
    whole, place = [], 1
    for document in documents:
        end = array.index(document, place) + len(document)
        while array[end] in _BLANKS:
            end += 1
        whole.append(array[place:end])
        place = end + 1
    return whole


_INTEGER: Final = ColumnCodec(int | None, lambda values: [NULL if value is None else str(value) for value in values])
_BARE: Final = ColumnCodec(
    msgspec.Raw, lambda values: [NULL if raw == "null" else _scalar(raw) for raw in _texts(values)]
)
_DOCUMENT: Final = ColumnCodec(msgspec.Raw, lambda values: [NULL if raw == "null" else raw for raw in _texts(values)])
_STRING: Final = ColumnCodec(str | None, lambda values: [NULL if value is None else value for value in values])

FORMS: Final[Mapping[Kind, ColumnCodec]] = {
    **dict.fromkeys((Kind.INT16, Kind.INT32, Kind.INT64), _INTEGER),
    **dict.fromkeys((Kind.BOOL, Kind.FLOAT32, Kind.FLOAT64), _BARE),
    Kind.DOCUMENT: _DOCUMENT,
    **dict.fromkeys((Kind.DECIMAL, Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ), _STRING),
    **dict.fromkeys((Kind.BYTES, Kind.ASCII, Kind.TEXT), _STRING),
}
