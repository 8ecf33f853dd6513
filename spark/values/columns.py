"""Turns a column's JSON into the text that PostgreSQL's output function prints, by the kind of column. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from typing import Final, TypeAlias

from cdc.base.errors import DecodeError
from cdc.spark.values.objects import split_array, split_object, unquote

_NUMBER: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_SPECIAL_NUMBERS: Final = frozenset({"NaN", "Infinity", "-Infinity"})
_BOOLEANS: Final = {"true": "t", "false": "f"}


class Scalar(Enum):
    """The JSON form of a value that is not an array."""

    NUMBER = auto()
    BOOL = auto()
    TEXT = auto()
    JSON = auto()


@dataclass(frozen=True, slots=True)
class ArrayOf:
    """The kind of an array; ``delimiter`` is the element's ``pg_type.typdelim``: ``;`` for box, else ``,``."""

    element: Scalar
    delimiter: str = ","


Kind: TypeAlias = Scalar | ArrayOf

_KINDS: Final = {
    **dict.fromkeys(("int2", "int4", "int8", "oid", "float4", "float8"), Scalar.NUMBER),
    **dict.fromkeys(("json", "jsonb"), Scalar.JSON),
    "bool": Scalar.BOOL,
}


def kind_of(sql_type: str) -> Kind:
    """Returns the kind of a column whose type ``__schemas`` spells ``numeric(12,2)``, ``int4[]``, ``"a"."mood"``, …."""
    if sql_type.endswith("[]"):
        element = sql_type.removesuffix("[]")
        return ArrayOf(_KINDS.get(element, Scalar.TEXT), ";" if element == "box" else ",")
    return _KINDS.get(sql_type, Scalar.TEXT)


def column_text(raw: str, kind: Kind, *, json_null: bool = False) -> str | None:
    """Returns the column's text as PostgreSQL would print it, None for NULL.

    Args:
        raw: the value's text in the object, from ``split_object``.
        kind: the column's kind, from ``kind_of``.
        json_null: the record's header says that a ``null`` here is the JSON document ``null``.

    Raises:
        DecodeError: the value is not of that kind.
    """
    if raw.strip() == "null":
        return raw if json_null and kind is Scalar.JSON else None
    if isinstance(kind, ArrayOf):
        # A string holds the server's own array literal, for arrays that JSON cannot express (such as lower bounds).
        return unquote(raw) if raw.lstrip().startswith('"') else _array_literal(raw, kind)
    return _scalar_text(raw, kind)


def row_texts(value: bytes, kinds: Mapping[str, Kind], json_nulls: Collection[str] = ()) -> dict[str, str | None]:
    """Returns the texts of all columns in a topic's value, in its order; a column without a kind is taken for text.

    Raises:
        DecodeError: the value is not a JSON object in UTF-8, or a column (which is named) is not of its kind.
    """
    return texts_of(members_of(value), kinds, json_nulls)


def members_of(value: bytes) -> dict[str, str]:
    """Returns the text of each member of a topic's value, in its order.

    Raises:
        DecodeError: the value is not a JSON object in UTF-8.
    """
    try:
        return split_object(value.decode())
    except UnicodeDecodeError as error:
        raise DecodeError(f"the value is not UTF-8: {error}") from error


def texts_of(
    members: Mapping[str, str], kinds: Mapping[str, Kind], json_nulls: Collection[str] = ()
) -> dict[str, str | None]:
    """Returns the texts of all columns; as ``row_texts``, of what ``members_of`` returned.

    Raises:
        DecodeError: a column, which is named, is not of its kind.
    """
    texts = {}
    for name, raw in members.items():
        try:
            texts[name] = column_text(raw, kinds.get(name, Scalar.TEXT), json_null=name in json_nulls)
        except DecodeError as error:
            raise DecodeError(f"column {name!r}: {error.message}") from error
        except RecursionError as error:  # no array of PostgreSQL has so many dimensions
            raise DecodeError(f"column {name!r}: an array that is nested too deep") from error
    return texts


def _scalar_text(raw: str, kind: Scalar) -> str:
    token = raw.strip()
    if kind is Scalar.JSON:
        return raw
    if kind is Scalar.TEXT:
        return unquote(token)
    if kind is Scalar.BOOL and token in _BOOLEANS:
        return _BOOLEANS[token]
    if kind is Scalar.NUMBER and _NUMBER.fullmatch(token):
        return token
    if kind is Scalar.NUMBER and token.startswith('"') and unquote(token) in _SPECIAL_NUMBERS:
        return unquote(token)
    raise DecodeError(f"not a {kind.name.lower()}: {raw[:60]!r}")


def _array_literal(raw: str, kind: ArrayOf) -> str:
    """Writes an array as ``array_out`` does: https://www.postgresql.org/docs/current/arrays.html#ARRAYS-IO"""
    return "{" + kind.delimiter.join([_element_text(each, kind) for each in split_array(raw)]) + "}"


def _element_text(raw: str, kind: ArrayOf) -> str:
    # An array of documents has one dimension here, so a list in it is a document.
    if kind.element is not Scalar.JSON and raw.lstrip().startswith("["):
        return _array_literal(raw, kind)
    if raw.strip() == "null":
        return "NULL"
    return quoted_element(_scalar_text(raw, kind.element), kind.delimiter)


def quoted_element(text: str, delimiter: str) -> str:
    """Returns an array's element, which is not NULL, in quotes if ``array_out`` sets them."""
    if not text or text.upper() == "NULL" or _special(delimiter)(text) is not None:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return text


@cache
def _special(delimiter: str) -> Callable[[str], re.Match[str] | None]:
    """Finds a character for which ``array_out`` sets an element in quotes."""
    return re.compile(rf'["\\{{}} \t\n\r\v\f{re.escape(delimiter)}]').search
