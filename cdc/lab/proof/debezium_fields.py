"""Turns Debezium's envelope into the JSON of each column, with the types that the source's catalog has.

This is deliberately a second implementation, as ``cdc.lab.proof.avro_fields`` is: it shares no code with
``cdc.contract.formats``. An envelope names its table, and the catalog knows the types of the table's columns.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from functools import cache
from typing import Any, Final

import psycopg

from cdc.lab.proof.server_text import FormError
from cdc.lab.proof.topic_side import ReadFields

_TYPES: Final = """
WITH RECURSIVE base AS (
    SELECT attnum, attname, atttypid AS type, atttypmod AS modifier FROM pg_attribute a
        JOIN pg_class c ON c.oid = attrelid JOIN pg_namespace n ON n.oid = relnamespace
    WHERE nspname = %s AND relname = %s AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
    UNION ALL
    SELECT attnum, attname, typbasetype, -1 FROM base JOIN pg_type t ON t.oid = type WHERE typtype = 'd')
SELECT attname, coalesce(e.typname, t.typname), e.typname IS NOT NULL,
    modifier, coalesce(e.typnamespace, t.typnamespace) = 'pg_catalog'::regnamespace
FROM base JOIN pg_type t ON t.oid = base.type
    LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typoutput = 'array_out'::regproc
WHERE t.typtype <> 'd' ORDER BY attnum
"""
_EXACT: Final = Context(prec=100_000, Emax=999_999, Emin=-999_999)
_UNITS: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_NOT_IN_AVRO: Final = re.compile(r"^[0-9]|[^A-Za-z0-9_]")
_INTERVAL: Final = re.compile(r"P(.+)Y(.+)M(.+)DT(.+)H(.+)M(.+)S")


@dataclass(frozen=True, slots=True)
class _CatalogColumn:
    """A column as the catalog has it; of an array, its elements' type."""

    name: str
    type: str
    is_array: bool
    modifier: int
    is_builtin: bool


def fields_by_catalog(dsn: str, options: Mapping[str, Any], registry_url: str | None = None) -> ReadFields:
    """Returns a function that reads envelopes of the tables in this database.

    Args:
        dsn: of the source.
        options: the section ``debezium`` of the configuration.
        registry_url: of the registry that has the schemas of envelopes in Avro; None if there are none.
    """
    text = _texts(options)
    read_avro: Callable[[bytes], Mapping[str, str]] | None = None
    if registry_url is not None:
        from cdc.lab.proof.avro_fields import events_by_registry  # its library is not there for JSON

        read_avro = events_by_registry(registry_url)

    @cache
    def columns_of(namespace: str, table: str) -> Mapping[str, _CatalogColumn]:
        with psycopg.connect(dsn, autocommit=True) as connection:
            return {row[0]: _CatalogColumn(*row) for row in connection.execute(_TYPES, (namespace, table))}

    def field(column: _CatalogColumn, raw: str) -> str:
        value = json.loads(raw, parse_float=_Verbatim, parse_int=_Verbatim)
        if (
            column.type in ("json", "jsonb")
            and column.is_array
            and any(each and each.strip() == "null" for each in value or ())
        ):
            return json.dumps("{" + ",".join(map(_element, value)) + "}", ensure_ascii=False)
        if column.is_array and isinstance(value, list):
            return f"[{','.join('null' if each is None else _json(column, each, text) for each in value)}]"
        return "null" if value is None else _json(column, value, text)

    def fields(value: bytes) -> dict[str, bytes] | None:
        is_avro = value.startswith(b"\0")
        members = _raw_members(value.decode()) if read_avro is None or not is_avro else read_avro(value)
        if "schema" in members and "payload" in members:
            members = _raw_members(members["payload"])
        if not {"before", "after", "source", "op"} <= set(members):
            return None
        source = json.loads(members["source"])
        columns = columns_of(source["schema"], source["table"])
        row = _raw_members(members["after"])
        if is_avro:
            own = {_NOT_IN_AVRO.sub(_underscores, name): name for name in columns}
            row = {own.get(name, name): raw for name, raw in row.items()}
        if unknown := row.keys() - columns.keys():
            raise FormError(f"columns that the table does not have: {unknown}")
        return {name: field(columns[name], raw).encode() for name, raw in row.items()}

    return fields


def _underscores(found: re.Match[str]) -> str:
    """Returns what Debezium writes for a character that a name in Avro must not have: one for each of Java's."""
    is_digit = "0" <= found[0] <= "9"
    return f"_{found[0]}" if is_digit else "_" * (len(found[0].encode("utf-16-le")) // 2)


def _element(document: str | None) -> str:
    if document is None:
        return "NULL"
    return _quoted(document) if document.upper() == "NULL" or re.search(r'["\\{}\s,]', document) else document


def _texts(options: Mapping[str, Any]) -> Callable[[_CatalogColumn, Any], str]:
    decimals = options.get("decimal_handling_mode", "precise")
    times = options.get("time_precision_mode", "adaptive")
    binary = options.get("binary_handling_mode", "bytes")

    def text(column: _CatalogColumn, value: Any) -> str:
        kind = column.type
        if kind in ("numeric", "money") and decimals == "precise":
            return _decimal(column, value)
        if kind == "money":
            return _money(Decimal(value))
        if kind in ("date", "time", "timestamp", "timestamptz"):
            return _moment(column, value, times)
        readers: Mapping[str, Callable[[Any], str]] = {"bytea": lambda raw: _bytes(raw, binary), "interval": _interval}
        if kind in readers:
            return readers[kind](value)
        if kind == "bit" and column.modifier == 1 and not column.is_array:
            return "1" if value else "0"
        if kind == "bit" and column.modifier > 1 and not column.is_array:
            return format(int.from_bytes(base64.b64decode(value), "little"), f"0{column.modifier}b")
        if kind == "hstore":
            pairs = json.loads(value) if isinstance(value, str) else value
            return ", ".join(f"{_quoted(each)}=>{_quoted(pairs[each])}" for each in pairs)
        return f"[{','.join(value)}]" if kind in ("vector", "halfvec") else str(value)

    return text


class _Verbatim(str):
    """A number with the digits that it was written with."""

    __slots__ = ()


def _raw_members(text: str) -> dict[str, str]:
    """Returns the members of an object as they are written."""
    decoder, found, place = json.JSONDecoder(), {}, 1
    while text[place] != "}":
        name, place = decoder.raw_decode(text, place)
        start = place + 1
        _, place = decoder.raw_decode(text, start)
        found[name] = text[start:place]
        place += text[place] == ","
    return found


def _json(column: _CatalogColumn, value: Any, text: Callable[[_CatalogColumn, Any], str]) -> str:
    """Returns a value as the topic contract writes it in JSON."""
    if column.type == "bool":
        return "true" if value else "false"
    if column.type in ("json", "jsonb") and column.is_builtin:
        return str(value)
    if isinstance(value, _Verbatim) and column.type in ("int2", "int4", "int8", "oid", "float4", "float8"):
        return str(value)
    return json.dumps(text(column, value), ensure_ascii=False)


def _decimal(column: _CatalogColumn, value: Any) -> str:
    # numeric.c: the scale is in the lowest 11 bits, with a sign
    scale = 2 if column.type == "money" else (((column.modifier - 4) & 0x7FF) ^ 1024) - 1024
    if isinstance(value, dict):
        scale, value = int(value["scale"]), value["value"]
    number = int.from_bytes(base64.b64decode(value), "big", signed=True)
    found = Decimal(number).scaleb(-scale, _EXACT)
    return _money(found) if column.type == "money" else format(found, "f")


def _money(amount: Decimal) -> str:
    return f"{'-' if amount < 0 else ''}${abs(amount):,.2f}"


def _moment(column: _CatalogColumn, value: Any, times: str) -> str:
    kind = column.type
    if isinstance(value, str) and not isinstance(value, _Verbatim):
        text = value.removesuffix("Z").replace("T", " ")
        text = text.rstrip("0").rstrip(".") if "." in text else text
        return text + ("+00" if kind == "timestamptz" else "")
    if kind == "date":
        return (date(1970, 1, 1) + timedelta(days=int(value))).isoformat()
    is_coarse = 0 <= column.modifier <= 3
    adaptive = times == "adaptive" or (times == "adaptive_time_microseconds" and kind == "timestamp")
    unit = "ns" if times == "nanoseconds" else "ms" if adaptive and is_coarse else "us"
    micros = Decimal(int(value)) * 1_000_000 / _UNITS[unit]
    if kind == "time" and micros == 86_400_000_000:
        return "24:00:00"
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(micros))
    shown = time.isoformat(moment.time()) if kind == "time" else moment.replace(tzinfo=None).isoformat(" ")
    return shown.rstrip("0") if "." in shown else shown


def _bytes(value: str, binary: str) -> str:
    if binary == "hex":
        return "\\x" + value
    return "\\x" + (base64.urlsafe_b64decode if binary == "base64-url-safe" else base64.b64decode)(value).hex()


def _interval(value: str) -> str:
    """Returns an interval as PostgreSQL prints it: units in words, and a sign where it does not go on as before."""
    match = _INTERVAL.fullmatch(value)
    if match is None:
        raise FormError(f"not an interval: {value!r}")
    shown, is_below = [], False
    for number, unit in zip(map(int, match.groups()[:3]), ("year", "mon", "day"), strict=True):
        if number:
            plus = "+" if is_below and number > 0 else ""
            shown.append(f"{plus}{number} {unit}{'' if number == 1 else 's'}")
            is_below = number < 0
    hours, minutes, seconds = map(Decimal, match.groups()[3:])
    total = (hours * 60 + minutes) * 60 + seconds
    if total or not shown:
        sign = "-" if total < 0 else "+" if is_below else ""
        whole, fraction = divmod(abs(total), 1)
        clock = f"{int(whole) // 3600:02d}:{int(whole) // 60 % 60:02d}:{int(whole) % 60:02d}"
        shown.append(sign + clock + (str(fraction.normalize()).removeprefix("0") if fraction else ""))
    return " ".join(shown)


def _quoted(text: str | None) -> str:
    return "NULL" if text is None else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
