"""From a JSON value of the topic contract to the text that PostgreSQL reads back as the same value.

| JSON | text |
|---|---|
| ``null`` | NULL |
| string | as it is |
| number, ``true``, ``false`` | verbatim: no digit is lost in a float of ours |
| document in a json or jsonb column | verbatim |
| array in an array column | array literal, element by element |

Each column of a table gets the form that its SQL type promises, chosen once: ``Form.accepts`` is what the decoder
expects and ``Form.render`` makes text of a whole batch of such values. A value of another shape (the column had another
type when the record was written) takes ``any_text``, which looks at the value instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from cdc.encode.arrays import array_literal

NULL: Final = "\0N"
"""Stands for NULL in rendered text. No text value of PostgreSQL has a NUL, so nothing else looks like it."""

_INTEGERS: Final = frozenset({"int2", "int4", "int8", "oid"})
_BARE: Final = frozenset({"bool", "float4", "float8"})
_DOCUMENTS: Final = frozenset({"json", "jsonb"})
_BLANKS: Final = " \t\n\r"
_BRACES: Final = str.maketrans("[]", "{}")
_BARE_ELEMENT: Final = r'"(?!(?i:null)")[^"\\\[\]{},\s]+"'
_BARE_STRINGS: Final = re.compile(rf"\[{_BARE_ELEMENT}(?:,{_BARE_ELEMENT})*\]")
"""Strings that an array literal does not quote. The spelling counts: a replica without the type keeps it as text."""

_decode_array = msgspec.json.Decoder(list[Any]).decode
_decode_documents = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode


class Form(NamedTuple):
    """How a column's values are decoded and rendered.

    Attributes:
        accepts: the type that msgspec decodes; raw where digits or bytes must not change.
        render: a batch of decoded values → their texts, ``NULL`` among them.
    """

    accepts: Any
    render: Callable[[Sequence[Any]], Sequence[str]]


def form_of(sql_type: str, delimiter: str) -> Form:
    """The form of a column.

    Args:
        sql_type: the type as ``__schemas`` spells it: it tells what JSON to expect.
        delimiter: ``typdelim`` of an array's element type.
    """
    if sql_type.endswith("[]"):
        array = _array_renderer(sql_type[:-2], delimiter)
        return Form(msgspec.Raw, lambda values: [NULL if raw == "null" else array(raw) for raw in _texts(values)])
    if sql_type in _INTEGERS:
        return Form(int | None, lambda values: [NULL if value is None else str(value) for value in values])
    if sql_type in _BARE:
        return Form(msgspec.Raw, lambda values: [NULL if raw == "null" else _scalar(raw) for raw in _texts(values)])
    if sql_type in _DOCUMENTS:
        return Form(msgspec.Raw, lambda values: [NULL if raw == "null" else raw for raw in _texts(values)])
    return Form(str | None, lambda values: [NULL if value is None else value for value in values])


def any_text(value: msgspec.Raw, sql_type: str, delimiter: str) -> str:
    """The text of one value whose JSON shape is not what the column's type promises today."""
    raw = str(value, "utf-8")
    if raw == "null":
        return NULL
    if raw.startswith("[") and sql_type.endswith("[]"):
        return _array_renderer(sql_type[:-2], delimiter)(raw)
    return raw if sql_type in _DOCUMENTS else _scalar(raw)


def _texts(values: Sequence[msgspec.Raw]) -> list[str]:
    return [str(value, "utf-8") for value in values]


def _scalar(raw: str) -> str:
    return _decode_text(raw) if raw[0] == '"' else raw


def _array_renderer(element: str, delimiter: str) -> Callable[[str], str]:
    """JSON array → array literal; a string is the literal itself (an array with bounds of its own)."""
    if element in _INTEGERS or element in _BARE:
        return _number_array
    if element in _DOCUMENTS:
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
    """Numbers, ``true``, ``false`` and ``"NaN"`` are elements of both languages; digits stay what they are."""
    return _decode_text(raw) if raw.startswith('"') else raw.translate(_BRACES).replace("null", "NULL")


def _document_array(raw: str) -> str:
    if raw.startswith('"'):
        return _decode_text(raw)
    documents = _whole(raw, [str(document, "utf-8") for document in _decode_documents(raw)])
    return array_literal([None if document == "null" else document for document in documents])


def _whole(array: str, documents: Sequence[str]) -> list[str]:
    """Documents with the blanks around them: between its elements the bridge writes none, so all are the documents'."""
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
