"""Maps a column's SQL type to the Parquet column that holds it and to the function that reads its values. Pure.

A value that the Parquet type cannot hold is never rounded or clipped. The typed column is null then, and the snapshot's
``_beyond`` column holds the text under the column's name. This happens to:

- infinite and NaN numerics;
- dates and times that are infinite or outside the years 1 to 9999;
- arrays with several dimensions, or with a lower bound other than 1;
- values written when the column had an older type, if the present type cannot hold them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from typing import Any, Final

import pyarrow as pa

from cdc.contract.kinds import FLOATS, INTEGERS, Kind, kind_of
from cdc.spark.values.objects import split_array, unquote

MAX_PRECISION: Final = 38
_NUMERIC: Final = re.compile(r"numeric\(([0-9]+),([0-9]+)\)")
_YEAR_CHARS: Final = 4


@dataclass(frozen=True, slots=True)
class ColumnForm:
    """How a column is written.

    Attributes:
        arrow: the column's Arrow type.
        read: turns a value's JSON, never null, into the value; raises ``ValueError`` if the type cannot hold it.
        note: what the type alone does not say; may be empty.
    """

    arrow: pa.DataType
    read: Callable[[str], Any]
    note: str = ""


def form_of(sql_type: str) -> ColumnForm:
    """Returns the form of a column whose SQL type is spelled as in ``__schemas``."""
    kind = kind_of(sql_type)
    if kind.is_array:
        return ARRAY_FORMS[kind.kind]
    return _numeric_form(sql_type) if kind.kind is Kind.DECIMAL else FORMS[kind.kind]


def plain_text(raw: str) -> str:
    """Returns a value's text: the content of a JSON string, or the JSON of anything else."""
    return unquote(raw) if raw.lstrip().startswith('"') else raw


def _integer(bits: int, raw: str) -> int:
    value = int(plain_text(raw))
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(f"more than {bits} bits")
    return value


def _number(raw: str) -> float:
    return float(plain_text(raw))


def _boolean(raw: str) -> bool:
    token = raw.strip()
    if token not in ("true", "false"):
        raise ValueError("not a boolean")
    return token == "true"


def _decimal(precision: int, scale: int, raw: str) -> Decimal:
    value = Decimal(plain_text(raw))
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or exponent < -scale or len(digits) + exponent > precision - scale:
        raise ValueError("more digits than the precision or scale allows")
    return value


def _date(raw: str) -> date:
    return date.fromisoformat(plain_text(raw))


def _timestamp(raw: str) -> datetime:
    return _moment(plain_text(raw))


def _timestamptz(raw: str) -> datetime:
    text = plain_text(raw)
    if not text.endswith("+00"):
        raise ValueError("not in UTC")
    return _moment(text)


def _moment(text: str) -> datetime:
    # fromisoformat might misread a five-digit year as some other ISO form.
    if text[_YEAR_CHARS : _YEAR_CHARS + 1] != "-":
        raise ValueError("year outside 1 to 9999")
    return datetime.fromisoformat(text)


def _bytes(raw: str) -> bytes:
    text = plain_text(raw)
    if not text.startswith("\\x"):
        raise ValueError("not in hexadecimal")
    return bytes.fromhex(text[2:])


def _verbatim(raw: str) -> str:
    return raw


def _list(element: Callable[[str], Any], raw: str) -> list[Any]:
    if raw.lstrip().startswith('"'):
        raise ValueError("lower bound other than 1")
    items = split_array(raw)
    if any(item.lstrip().startswith("[") for item in items):
        raise ValueError("several dimensions")
    return [None if item.strip() == "null" else element(item) for item in items]


def _numeric_form(sql_type: str) -> ColumnForm:
    # PostgreSQL also allows more digits than decimal128, and scales that are negative or beyond the precision: as text.
    match = _NUMERIC.fullmatch(sql_type)
    precision, scale = (int(match[1]), int(match[2])) if match else (0, 0)
    if match is None or precision > MAX_PRECISION or scale > precision:
        return FORMS[Kind.DECIMAL]
    return ColumnForm(pa.decimal128(precision, scale), partial(_decimal, precision, scale))


def _array_form(element: Kind) -> ColumnForm:
    if element is Kind.DOCUMENT:
        return ColumnForm(pa.string(), _verbatim, "array as JSON: its nulls and its lists may be documents")
    one = FORMS[element] if element in INTEGERS | FLOATS | {Kind.BOOL} else _TEXT
    return ColumnForm(pa.list_(one.arrow), partial(_list, one.read))


_TEXT: Final = ColumnForm(pa.string(), plain_text)
FORMS: Final[Mapping[Kind, ColumnForm]] = {
    Kind.BOOL: ColumnForm(pa.bool_(), _boolean),
    Kind.INT16: ColumnForm(pa.int16(), partial(_integer, 16)),
    Kind.INT32: ColumnForm(pa.int32(), partial(_integer, 32)),
    Kind.INT64: ColumnForm(pa.int64(), partial(_integer, 64)),
    Kind.FLOAT32: ColumnForm(pa.float32(), _number),
    Kind.FLOAT64: ColumnForm(pa.float64(), _number),
    Kind.DECIMAL: ColumnForm(pa.string(), plain_text, "numeric as text: no decimal type holds each of its values"),
    Kind.DATE: ColumnForm(pa.date32(), _date),
    Kind.TIMESTAMP: ColumnForm(pa.timestamp("us"), _timestamp),
    Kind.TIMESTAMPTZ: ColumnForm(pa.timestamp("us", tz="UTC"), _timestamptz),
    Kind.BYTES: ColumnForm(pa.binary(), _bytes),
    Kind.DOCUMENT: ColumnForm(pa.string(), _verbatim, "the document verbatim"),
    **dict.fromkeys((Kind.ASCII, Kind.TEXT), _TEXT),
}
ARRAY_FORMS: Final[Mapping[Kind, ColumnForm]] = {element: _array_form(element) for element in Kind}
