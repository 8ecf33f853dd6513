"""Makes the JSON of single values in Spark's SQL, from what Spark's reader of Avro returns. Pure.

Integers stand for what Spark's own types would shift or refuse: days for a date, −1 and 0 for a boolean (whose byte may
be damaged). A value outside of its type becomes a text in parentheses, which makes the object invalid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from cdc.contract.kinds import FLOATS, INTEGERS, Kind, kind_of

_OUTSIDE: Final = "'(outside of its type)'"

_MICROS: Final = {"type": "long", "logicalType": "local-timestamp-micros"}
"""A timestamp without time zone, so that the session's time zone does not matter."""
_DATES: Final = "-719162 AND 2932896"
_TIMES: Final = "TIMESTAMP_NTZ'1970-01-01 00:00:00' AND TIMESTAMP_NTZ'1970-01-01 23:59:59.999999'"
_TIMESTAMPS: Final = "TIMESTAMP_NTZ'0001-01-01 00:00:00' AND TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'"

_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}


class AvroText(NamedTuple):
    """How values of a type become JSON.

    Attributes:
        schema: the type, as Spark's reader gets it; the bytes are the same.
        sql: returns the SQL of a value's JSON, given the SQL of the value, which is not NULL.
        beyond: the same for the server's text of a value that is beyond the type.
    """

    schema: Any
    sql: Callable[[str], str]
    beyond: Callable[[str], str]


def literal(text: str) -> str:
    """Writes a string constant of Spark's SQL. ``$`` is escaped, because Spark would replace ``${…}``."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024")
    return f"'{escaped}'"


_CONTROL: Final = literal("[\\x00-\\x1f]")
_SPECIAL: Final = literal('[\\x00-\\x1f"\\\\]')


def text_of(kind: Any, sql_type: str) -> AvroText:
    """Returns how values become JSON.

    Args:
        kind: their Avro type.
        sql_type: their type in PostgreSQL, as ``__schemas`` spells it.

    Raises:
        ValueError: the bridge writes no such type.
    """
    if isinstance(kind, dict) and kind["type"] == "array":
        none, item = kind["items"]
        if none != "null":
            raise ValueError(f"an array of {kind['items']}")
        element = text_of(item, sql_type.removesuffix("[]"))
        return _array(element, _beyond_of_array(item, sql_type))
    logical = kind.get("logicalType") if isinstance(kind, dict) else None
    if logical == "decimal":
        return _decimal(kind["precision"], kind["scale"])
    if logical is not None:
        return _LOGICAL[logical]
    of_source = kind_of(sql_type).kind
    if kind == "string" and of_source in (Kind.ASCII, Kind.DECIMAL):
        return AvroText("string", _ascii, _ascii)
    if kind == "string" and of_source is Kind.DOCUMENT:
        return AvroText("string", lambda x: x, _string)
    if kind == "int" and of_source is Kind.INT16:
        return AvroText("int", lambda x: _within(x, "-32768 AND 32767", f"CAST({x} AS string)"), _string)
    return _PLAIN[kind]


def _within(x: str, bounds: str, text: str) -> str:
    return f"IF({x} BETWEEN {bounds}, {text}, {_OUTSIDE})"


def _string(x: str) -> str:
    """Returns a JSON string with the escapes that the topic contract has. Most texts need none."""
    replaced = x
    for character, escape in _ESCAPES.items():
        replaced = f"replace({replaced}, {literal(character)}, {literal(escape)})"
    # What is left of the control characters is rare.
    each = r"transform(split(s, ''), k -> IF(k < ' ', concat('\\u00', lower(hex(k))), k))"
    whole = f"IF(s RLIKE {_CONTROL}, array_join({each}, ''), s)"
    escaped = f"element_at(transform(array({replaced}), s -> {whole}), 1)"
    return f"""concat('"', IF({x} RLIKE {_SPECIAL}, {escaped}, {x}), '"')"""


def _ascii(x: str) -> str:
    """Returns the JSON string of a text that needs no escapes."""
    return f"""IF(contains({x}, '"'), {_OUTSIDE}, concat('"', {x}, '"'))"""


def _boolean(x: str) -> str:
    return f"CASE {x} WHEN -1 THEN 'true' WHEN 0 THEN 'false' ELSE {_OUTSIDE} END"


def _date(x: str) -> str:
    return _within(x, _DATES, f"""concat('"', CAST(date_from_unix_date({x}) AS string), '"')""")


def _time(x: str) -> str:
    return _within(x, _TIMES, f"""concat('"', substring(CAST({x} AS string), 12), '"')""")


def _timestamp(x: str) -> str:
    return _within(x, _TIMESTAMPS, f"""concat('"', CAST({x} AS string), '"')""")


def _timestamptz(x: str) -> str:
    return _within(x, _TIMESTAMPS, f"""concat('"', CAST({x} AS string), '+00"')""")


def _bytes(x: str) -> str:
    return f"""concat('"\\\\\\\\x', lower(hex({x})), '"')"""


def _decimal(precision: int, scale: int) -> AvroText:
    """The digits come as an integer of any size: a number of too many bytes would otherwise lose the first of them."""
    most = "9" * precision

    def sql(x: str) -> str:
        if not scale:
            return _within(x, f"-{most}BD AND {most}BD", f"""concat('"', CAST({x} AS string), '"')""")
        # Not abs(): it rounds negative numbers to 34 digits.
        digits = f"array(replace(CAST({x} AS string), '-', ''))"
        padded = f"transform({digits}, d -> IF(length(d) > {scale}, d, lpad(d, {scale + 1}, '0')))"
        pointed = f"transform({padded}, p -> concat(left(p, length(p) - {scale}), '.', right(p, {scale})))"
        text = f"""concat(IF({x} < 0, '"-', '"'), element_at({pointed}, 1), '"')"""
        return _within(x, f"-{most}BD AND {most}BD", text)

    schema = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0}
    return AvroText(schema, sql, _ascii)


def _floating(x: str, sql_type: str, from_exponent: str) -> str:
    """Returns a number as PostgreSQL prints it: with an exponent below 1e-4, and from 1e15 on (real: from 1e6 on).

    Java writes an exponent below 1e-3 and from 1e7 on, always with a point, and all the digits that PostgreSQL does;
    seldom one more: the second look compares them as numbers.
    """

    def bound(number: str) -> str:
        return f"CAST('{number}' AS {sql_type})"

    text, size = f"CAST({x} AS string)", f"abs({x})"
    plainly = f"{x} = 0 OR {size} >= {bound('1e-3')} AND {size} < {bound('1e6')}"
    # Java's text has an exponent or not; as a decimal it has none.
    spelled = f"TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM CAST(CAST({text} AS decimal(38,22)) AS string)))"
    mantissa = "regexp_replace(substring_index(t, 'E', 1), '[.]0$', '')"
    exponent = "CAST(substring_index(t, 'E', -1) AS int)"
    with_exponent = (
        f"concat({mantissa}, IF({exponent} < 0, 'e-', 'e+'), IF(abs({exponent}) < 10, '0', ''), abs({exponent}))"
    )
    moved = "regexp_replace(t, '^(-?[0-9])([0-9]{6})[.]([0-9]+)$', '$1.$2$3E6')"
    moved = f"regexp_replace({moved}, '[.]?0+E6$', 'E6')"
    scientific = f"element_at(transform(transform(array({text}), t -> {moved}), t -> {with_exponent}), 1)"
    return (
        f"""CASE WHEN isnan({x}) THEN '"NaN"'"""
        f""" WHEN {size} = {bound("Infinity")} THEN IF({x} > 0, '"Infinity"', '"-Infinity"')"""
        f" WHEN {plainly} THEN regexp_replace({text}, '[.]0$', '')"
        f" WHEN {size} >= {bound('1e-4')} AND {size} < {bound(from_exponent)} THEN {spelled}"
        f" ELSE {scientific} END"
    )


def _array(element: AvroText, beyond: Callable[[str], str]) -> AvroText:
    def sql(x: str) -> str:
        cells = f"transform({x}, e -> IF(e IS NULL, 'null', {element.sql('e')}))"
        return f"concat('[', array_join({cells}, ','), ']')"

    return AvroText({"type": "array", "items": ["null", element.schema]}, sql, beyond)


def _beyond_of_array(item: Any, sql_type: str) -> Callable[[str], str]:
    """Returns how the server's text of an array becomes JSON, if it has no flat list of values.

    The JSON of a literal without quotes and own bounds needs no parser. Any other becomes a string. That is not what
    the bridge writes, but it tells readers the same array.
    """
    kind, _, delimiter = kind_of(sql_type)
    if kind is Kind.DOCUMENT:
        return _string
    is_number = kind in INTEGERS | FLOATS

    def sql(x: str) -> str:
        if is_number:
            elements = f"""regexp_replace({x}, '(-?Infinity|NaN)', '"$1"')"""
        elif item == "boolean":
            elements = f"replace(replace({x}, 't', 'true'), 'f', 'false')"
        else:
            # Java leaves out a group without a match.
            bare = literal(f'"([^"]*)"|([^{{}}"{delimiter}]+)')
            elements = f"""replace(regexp_replace({x}, {bare}, '"$1$2"'), '"NULL"', 'NULL')"""
        json = f"translate(replace({elements}, 'NULL', 'null'), '{{}}{delimiter}', '[],')"
        return f"IF({_is_plain(x)}, {json}, {_string(x)})"

    return sql


def _is_plain(x: str) -> str:
    """Returns SQL that tells whether an array's text can be turned into JSON by replacing characters."""
    quoted = literal('"[^"{};]*"')
    without_quotes = f"regexp_replace({x}, {quoted}, '')"
    plain = literal('^\\{[^"\\\\\\x00-\\x1f]*\\}$')
    ambiguous = literal('\\\\|"NULL"|[\\x00-\\x1f]')
    return f"({without_quotes} RLIKE {plain} AND NOT {x} RLIKE {ambiguous})"


_PLAIN: Final[Mapping[str, AvroText]] = {
    "boolean": AvroText("int", _boolean, _string),
    **{each: AvroText(each, lambda x: f"CAST({x} AS string)", _string) for each in ("int", "long")},
    "float": AvroText("float", lambda x: _floating(x, "float", "1e6"), _string),
    "double": AvroText("double", lambda x: _floating(x, "double", "1e15"), _string),
    "bytes": AvroText("bytes", _bytes, _string),
    "string": AvroText("string", _string, _string),
}
_LOGICAL: Final[Mapping[str, AvroText]] = {
    "date": AvroText("int", _date, _ascii),
    "time-micros": AvroText(_MICROS, _time, _ascii),
    "local-timestamp-micros": AvroText(_MICROS, _timestamp, _ascii),
    "timestamp-micros": AvroText(_MICROS, _timestamptz, _ascii),
    "uuid": AvroText("string", _ascii, _ascii),
}
