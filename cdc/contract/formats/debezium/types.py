"""Says how a column's values look in Debezium's envelope: how they are written and read, and their Connect schema.

| type | Debezium |
|---|---|
| bool, int2, int4, int8, oid, float4, float8 | boolean, int16, int32, int64, float, double |
| numeric(p,s) | Connect's Decimal: bytes; with ``decimal: string`` a string |
| numeric | VariableScaleDecimal: a struct of scale and bytes; or a string |
| money | Decimal of scale 2, or a string |
| date, time, timestamp | a number or a string, as ``time`` says |
| timestamptz | ZonedTimestamp: a string in UTC |
| interval | Interval: ``P1Y2M3DT4H5M6.78S`` |
| bytea | bytes, or a string, as ``binary`` says |
| bit(1), bit(n) | boolean, Bits |
| json, jsonb, uuid, xml, tsvector | strings with a name of their own |
| hstore | a string with a JSON object, or a map |
| ltree, vector, halfvec | Ltree, and arrays of numbers |
| an array | an array of its elements' form |
| everything else | a string: the server's text |

Where Debezium's form loses something (the length of a varbit, the offset of a timetz, what a type that it does not know
holds), the value is the server's text, too.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from cdc.contract.formats.arrays import array_literal, bare_elements, parse_array
from cdc.contract.formats.debezium import texts
from cdc.contract.formats.debezium.texts import BeyondDebezium, Read, Write
from cdc.contract.formats.values import boolean, converter_of, floating, number, number_array, plain, text
from cdc.contract.kinds import FLOATS, Kind, kind_of
from cdc.contract.record import DebeziumModes

_WITH_MODIFIER: Final = re.compile(r'"?([a-z0-9_]+)"?(?:\((-?[0-9]+)(?:,(-?[0-9]+))?\))?')
_OF_AN_EXTENSION: Final = re.compile(r'"(?:[^"]|"")*"\."([a-z]+)"')
_MICROS: Final = 1_000_000
_NANOS: Final = 1_000_000_000
_MOST_DIGITS_IN_C: Final = 17
_MOST_PLACES: Final = 6


class InC(enum.IntEnum):
    """The numbers by which ``_rows.pyx`` knows how values are written and read."""

    OTHER = 0
    """It leaves them to Python."""
    DECIMAL = 1
    ZONED = 2
    DATE = 3
    TIME = 4
    TIMESTAMP = 5
    BASE64 = 6
    DOCUMENT = 7
    NUMBERS = 8
    TEXTS = 9


class DebeziumType(NamedTuple):
    """How the values of a column are written, read and described.

    Attributes:
        write: converts the server's text to JSON.
        read: converts JSON, except null, back to the server's text; None if it is what the topic contract has, too.
        schema: Connect's schema, without ``optional`` and ``field``.
        is_document: whether the values are JSON documents.
        in_c: what the module in C knows of them: a number, and a decimal's scale, the digits after a second, or the
            units in one.
    """

    write: Write
    read: Read | None
    schema: Mapping[str, Any]
    is_document: bool = False
    in_c: tuple[InC, int] = (InC.OTHER, 0)


def debezium_type(sql_type: str, modes: DebeziumModes) -> DebeziumType:
    """Returns how values of a type are written, as ``__schemas`` spells it."""
    kind, is_array, delimiter = kind_of(sql_type)
    if not is_array:
        return _scalar(sql_type, kind, modes)
    element = sql_type.removesuffix("[]")
    found = _scalar(_element_of(element), kind, modes)
    if found.write is plain:  # as C writes them, which takes elements for any text
        found = found._replace(write=text)
    is_by_name = element.startswith('"') and element not in ('"char"', '"bit"') and found.read is None
    schema = {"type": "array", "items": {**found.schema, "optional": True}}
    if kind in _NUMBERS:  # written as the topic contract does, unless the array is not flat
        return DebeziumType(_flat(number_array), None, schema, in_c=(InC.NUMBERS, 0))
    # A flat array of what the topic contract has, too, is the same there
    read = None if found.read is None else _array_reader(found.read, delimiter)
    are_texts = read is None and delimiter == "," and found.write is text
    in_c = (InC.TEXTS if are_texts else InC.OTHER, 0)
    return DebeziumType(_array_writer(found, delimiter, is_by_name=is_by_name), read, schema, in_c=in_c)


def _element_of(element: str) -> str:
    """Returns the type whose form an array's elements have: Debezium knows neither their length nor their precision."""
    return "varbit" if element.startswith(("bit", '"bit"')) else element


_NUMBERS: Final = frozenset({Kind.INT16, Kind.INT32, Kind.INT64})
_STRING: Final = {"type": "string"}


def _named(kind: str, name: str, version: int = 1, **more: Any) -> dict[str, Any]:
    return {"type": kind, "name": name, "version": version, **more}


def _scalar(sql_type: str, kind: Kind, modes: DebeziumModes) -> DebeziumType:
    if (simple := _SIMPLE.get(kind)) is not None:
        return simple
    if kind is Kind.BYTES:
        return _BYTES[modes.binary]
    if sql_type.startswith("interval"):  # its modifiers are words
        return _INTERVAL
    match = _WITH_MODIFIER.fullmatch(sql_type)
    if match is None:
        extension = _OF_AN_EXTENSION.fullmatch(sql_type)
        return _EXTENSIONS.get(("" if extension is None else extension[1], modes.hstore), _of_text(_STRING))
    base, modifier = match[1], None if match[2] is None else int(match[2])
    if kind is Kind.DECIMAL:
        return _decimal(modifier, int(match[3] or 0), modes)
    if base == "money":
        return _MONEY[modes.decimal]
    if base == "bit" and modifier is not None:
        return _bits(modifier)
    if (of_time := _TEMPORAL.get(base)) is not None:
        return of_time(6 if modifier is None else modifier, modes)
    return _NAMED.get(base, _of_text(_STRING))


def _of_text(schema: Mapping[str, Any]) -> DebeziumType:
    return DebeziumType(text, None, schema)


def _decimal(precision: int | None, scale: int, modes: DebeziumModes) -> DebeziumType:
    if modes.decimal == "string":
        return DebeziumType(plain, None, _STRING)
    if precision is None:
        members = [
            {"type": "int32", "optional": False, "field": "scale"},
            {"type": "bytes", "optional": False, "field": "value"},
        ]
        schema = {
            "type": "struct",
            "fields": members,
            "name": "io.debezium.data.VariableScaleDecimal",
            "version": 1,
            "doc": "Variable scaled decimal",
        }
        return DebeziumType(texts.write_variable, texts.read_variable, schema)
    parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    schema = _named("bytes", "org.apache.kafka.connect.data.Decimal", parameters=parameters)
    in_c = (InC.DECIMAL if 0 <= scale <= _MOST_DIGITS_IN_C else InC.OTHER, scale)
    return DebeziumType(texts.write_decimal(scale), texts.read_decimal(scale), schema, in_c=in_c)


def _bits(length: int) -> DebeziumType:
    if length == 1:
        return DebeziumType(texts.BIT, texts.read_bit, {"type": "boolean"})
    schema = _named("bytes", "io.debezium.data.Bits", parameters={"length": str(length)})
    return DebeziumType(texts.write_bits, texts.read_bits(length), schema)


def _date(_: int, modes: DebeziumModes) -> DebeziumType:
    if modes.time == "isostring":
        return DebeziumType(texts.write_iso_date, texts.read_iso_date, _named("string", "io.debezium.time.IsoDate"))
    schema = _named("int32", "io.debezium.time.Date")
    return DebeziumType(texts.write_date, texts.read_date, schema, in_c=(InC.DATE, 0))


def _time(places: int, modes: DebeziumModes) -> DebeziumType:
    if modes.time == "isostring":
        return DebeziumType(texts.write_iso_time, texts.read_iso_time, _named("string", "io.debezium.time.IsoTime"))
    if modes.time == "nanoseconds":
        units, schema = _NANOS, _named("int64", "io.debezium.time.NanoTime")
    elif modes.time == "adaptive" and places <= 3:
        units, schema = 1_000, _named("int32", "io.debezium.time.Time")
    else:
        units, schema = _MICROS, _named("int64", "io.debezium.time.MicroTime")
    return DebeziumType(texts.write_time(units), texts.read_time(units), schema, in_c=(InC.TIME, units))


def _timestamp(places: int, modes: DebeziumModes) -> DebeziumType:
    if modes.time == "isostring":
        schema = _named("string", "io.debezium.time.IsoTimestamp")
        return DebeziumType(texts.write_iso_timestamp, texts.read_iso_timestamp(""), schema)
    if modes.time == "nanoseconds":
        units, schema = _NANOS, _named("int64", "io.debezium.time.NanoTimestamp")
    elif modes.time != "microseconds" and places <= 3:
        units, schema = 1_000, _named("int64", "io.debezium.time.Timestamp")
    else:
        units, schema = _MICROS, _named("int64", "io.debezium.time.MicroTimestamp")
    in_c = InC.TIMESTAMP, units
    return DebeziumType(texts.write_timestamp(units), texts.read_timestamp(units), schema, in_c=in_c)


def _timestamptz(places: int, _: DebeziumModes) -> DebeziumType:
    schema = _named("string", "io.debezium.time.ZonedTimestamp")
    in_c = (InC.ZONED if places <= _MOST_PLACES else InC.OTHER, places)
    return DebeziumType(texts.write_zoned_timestamp(places), texts.read_iso_timestamp("+00"), schema, in_c=in_c)


_TEMPORAL: Final[Mapping[str, Callable[[int, DebeziumModes], DebeziumType]]] = {
    "date": _date,
    "time": _time,
    "timestamp": _timestamp,
    "timestamptz": _timestamptz,
}
_INTERVAL: Final = DebeziumType(
    texts.write_interval, texts.read_interval, _named("string", "io.debezium.time.Interval")
)
_SIMPLE: Final[Mapping[Kind, DebeziumType]] = {
    Kind.BOOL: DebeziumType(boolean, None, {"type": "boolean"}),
    Kind.INT16: DebeziumType(number, None, {"type": "int16"}),
    Kind.INT32: DebeziumType(number, None, {"type": "int32"}),
    Kind.INT64: DebeziumType(number, None, {"type": "int64"}),
    Kind.FLOAT32: DebeziumType(floating, None, {"type": "float"}),
    Kind.FLOAT64: DebeziumType(floating, None, {"type": "double"}),
    Kind.DOCUMENT: DebeziumType(
        text, texts.string, _named("string", "io.debezium.data.Json"), is_document=True, in_c=(InC.DOCUMENT, 0)
    ),
}
_BYTES: Final[Mapping[str, DebeziumType]] = {
    "bytes": DebeziumType(texts.write_base64, texts.read_base64, {"type": "bytes"}, in_c=(InC.BASE64, 0)),
    "base64": DebeziumType(texts.write_base64, texts.read_base64, _STRING, in_c=(InC.BASE64, 0)),
    "base64-url-safe": DebeziumType(texts.write_url_base64, texts.read_url_base64, _STRING),
    "hex": DebeziumType(texts.write_hex, texts.read_hex, _STRING),
}
_MONEY: Final[Mapping[str, DebeziumType]] = {
    "precise": DebeziumType(
        texts.write_money,
        texts.read_money,
        _named("bytes", "org.apache.kafka.connect.data.Decimal", parameters={"scale": "2"}),
    ),
    "string": DebeziumType(texts.write_plain_money, texts.read_plain_money, _STRING),
}
_NAMED: Final[Mapping[str, DebeziumType]] = {
    "uuid": DebeziumType(plain, None, _named("string", "io.debezium.data.Uuid")),
    "xml": _of_text(_named("string", "io.debezium.data.Xml")),
    "tsvector": _of_text(_named("string", "io.debezium.data.Tsvector")),
}
_VECTORS: Final = {
    "vector": ("double", "io.debezium.data.DoubleVector"),
    "halfvec": ("float", "io.debezium.data.FloatVector"),
}
_EXTENSIONS: Final[Mapping[tuple[str, str], DebeziumType]] = {
    ("hstore", "json"): DebeziumType(
        texts.write_json_map, texts.read_json_map, _named("string", "io.debezium.data.Json")
    ),
    ("hstore", "map"): DebeziumType(
        texts.write_map,
        texts.read_map,
        {
            "type": "map",
            "keys": {"type": "string", "optional": False},
            "values": {"type": "string", "optional": True},
        },
    ),
    **dict.fromkeys((("ltree", "json"), ("ltree", "map")), _of_text(_named("string", "io.debezium.data.Ltree"))),
    **{
        (name, mode): DebeziumType(
            texts.write_vector,
            texts.read_vector,
            _named("array", schema, items={"type": element, "optional": False}),
        )
        for name, (element, schema) in _VECTORS.items()
        for mode in ("json", "map")
    },
}


def _flat(convert: Write) -> Write:
    """Returns the writer of arrays that refuses those with several dimensions or bounds of their own."""

    def write(cell: bytes) -> bytes:
        if cell[:1] != b"{" or cell.find(b"{", 1) > 0:
            raise BeyondDebezium
        return convert(cell)

    return write


def _array_writer(element: DebeziumType, delimiter: str, *, is_by_name: bool) -> Write:
    """Returns the writer of flat arrays. A type that is an array by its name only may hold other texts, too."""
    write_element = element.write

    def write(cell: bytes) -> bytes:
        literal = cell.decode()
        if (bare := bare_elements(literal, delimiter)) is not None:
            return b"[%b]" % b",".join([write_element(each.encode()) for each in bare])
        try:
            elements = parse_array(literal, str, delimiter)
        except ValueError:
            if is_by_name:
                return text(cell)
            raise
        if elements is None or any(type(each) is list for each in elements):
            raise BeyondDebezium
        if array_literal(elements, delimiter) != literal:
            raise BeyondDebezium
        return b"[%b]" % b",".join([b"null" if each is None else write_element(each.encode()) for each in elements])

    return write


def _array_reader(read_element: Read, delimiter: str) -> Read:
    def read(raw: bytes) -> str:
        if raw[:1] == b'"':
            return texts.string(raw)
        return array_literal(
            [None if each == b"null" else read_element(each) for each in texts.elements(raw)], delimiter
        )

    return read


def contract_reader(sql_type: str, modes: DebeziumModes) -> Callable[[bytes], bytes] | None:
    """Returns the converter of a column's values to JSON of the topic contract; None if they have that form already."""
    read = debezium_type(sql_type, modes).read
    if read is None:
        return None
    convert, read_text = converter_of(sql_type), read

    def to_contract(raw: bytes) -> bytes:
        return convert(read_text(raw).encode())

    return to_contract


def json_reader(sql_type: str, modes: DebeziumModes) -> Callable[[bytes], bytes] | None:
    """Does what ``contract_reader`` does, for values that were JSON: these may be damaged and still have its form."""
    kind, is_array, _ = kind_of(sql_type)
    return texts.checked_floats if is_array and kind in FLOATS else contract_reader(sql_type, modes)
