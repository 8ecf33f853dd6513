"""Converts a value from a request to the text that PostgreSQL prints, which is the form that topics hold. Pure.

A value has many spellings: a UUID in capitals, a time with ``T`` and ``Z``, ``1`` for ``1.00`` in a ``numeric(10,2)``.
PostgreSQL finds the row by any of them, but a key's bytes hold only one. So every key and index value in a request goes
through here first.

A spelling means what it means to a server in UTC with the settings ``pgsettings.READING``. Some spellings that a server
accepts are refused, because they depend on its version, its settings or today's date; ``docs/views.md`` lists them
under "How a key may be written". Nothing is rounded: ``1.005`` is not a valid ``numeric(10,2)``, because no row equals
it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from functools import lru_cache, partial
from ipaddress import IPv4Address, IPv6Address
from math import isinf
from typing import Final, NamedTuple, NoReturn, TypeAlias

from cdc.contract.floats import exact_double, exact_single, nearest_bits
from cdc.contract.formats.civil import canonical_date, canonical_interval, canonical_time, canonical_timestamp

Read: TypeAlias = Callable[[str], str]


class Identity(Enum):
    """How to tell whether two texts of a type, once read, are the same value."""

    TEXT = "text"
    """The values are equal if and only if the texts are."""
    VALUE = "value"
    """Equal values may be printed differently: a ``numeric`` without a scale keeps ``1`` and ``1.0``. ``normal`` makes
    one text of them."""
    UNKNOWN = "unknown"
    """Only the server can tell; the texts are compared as they are written."""


class TypeReading(NamedTuple):
    """How the values of a type are read.

    Attributes:
        read: converts a spelling to the server's; raises ``ValueError`` if it is not a value of the type.
        example: the text of a valid value.
        identity: how texts that ``read`` returns are compared.
        normal: converts such a text to one that is the same for all equal values: the first of them in text order.
        longer: converts ``normal``'s text to the next text of the same value, and so on; each begins with the one
            before.
    """

    read: Read
    example: str
    identity: Identity = Identity.TEXT
    normal: Read = str
    longer: Read = str


_TYPE: Final = re.compile(r'"?([a-z0-9_]+)"?(?: ([a-z ]+))?(?:\((-?[0-9]+)(?:,(-?[0-9]+))?\))?')
_BLANKS: Final = " \t\n\r\v\f"
"""Blanks that the server's input functions skip around numbers, booleans and times; Python's ``strip`` skips more."""


@lru_cache(maxsize=1024)
def reading_of(sql_type: str) -> TypeReading:
    """Returns how the values of a type are read.

    Args:
        sql_type: as ``__schemas`` spells it: ``numeric(10,2)``, ``int4[]``, ``"public"."mood"``.
    """
    match = _TYPE.fullmatch(sql_type)
    if match is None or (sql_type.startswith('"') and sql_type not in ('"char"', '"bit"')):
        return _as_written(sql_type)
    name, _, first, second = match.groups()
    length = None if first is None else int(first)
    if sql_type == '"char"':
        return TypeReading(_single_byte, "x")
    if name in _PLAIN:
        return _PLAIN[name]
    if name in ("time", "timetz", "timestamp", "timestamptz"):
        return _moment(name, 6 if length is None else length)
    match name:
        case "numeric":
            return _numeric(length, int(second or 0))
        case "char" | "bpchar":
            return _padded(length)
        case "bit":
            return TypeReading(partial(_bits, length=length, is_exact=True), "1" * min(length or 3, 64))
        case "varbit":
            return TypeReading(partial(_bits, length=length, is_exact=False), "1" * min(length or 3, 64))
        case "varchar":
            return _TEXT
    return _as_written(sql_type)


def beginning_of(sql_type: str, text: str) -> str:
    """Returns the beginning of a value as the server would print it, as far as that can be told."""
    if sql_type.startswith("timestamp"):
        return text.replace("T", " ", 1)
    return text.lower() if sql_type in _LOWER_CASE else text


_LOWER_CASE: Final = frozenset({"uuid", "bytea", "macaddr", "macaddr8", "inet", "cidr"})


def _refuse(why: str) -> NoReturn:
    raise ValueError(why)


def _text(text: str) -> str:
    """Refuses only a NUL, which PostgreSQL's text cannot hold."""
    return text if "\0" not in text else _refuse("PostgreSQL's text cannot hold a NUL")


_TEXT: Final = TypeReading(_text, "abc")


def _as_written(sql_type: str) -> TypeReading:
    """Returns the reading of a type whose values only a server can compare."""
    return TypeReading(_text, _UNKNOWN_EXAMPLES.get(sql_type.partition("(")[0], "…"), Identity.UNKNOWN)


_UNKNOWN_EXAMPLES: Final = {
    "money": "$1.50",
    "tsvector": "'fat':2 'rat':3",
    "int4range": "[1,5)",
    "int8range": "[1,5)",
    "numrange": "[1.5,2.5)",
    "daterange": "[2026-01-01,2026-02-01)",
    "tsrange": '["2026-01-01 00:00:00","2026-02-01 00:00:00")',
    "tstzrange": '["2026-01-01 00:00:00+00","2026-02-01 00:00:00+00")',
    "int4multirange": "{[1,5)}",
    "int8multirange": "{[1,5)}",
    "json": '{"a": 1}',
    "jsonb": '{"a": 1}',
}


def _name(text: str) -> str:
    """Reads an identifier. The server would cut a longer one, at a byte that depends on its encoding."""
    return _text(text) if len(text) <= 63 else _refuse("a name has at most 63 bytes")


def _single_byte(text: str) -> str:
    """Reads a ``"char"``: one byte; if it is not ASCII, in octal, as servers from 16 on print it."""
    if (len(text) <= 1 and text.isascii()) or _OCTAL_BYTE.fullmatch(text):
        return _text(text)
    _refuse("it is one ASCII character")


_OCTAL_BYTE: Final = re.compile(r"\\[23][0-7][0-7]")


def _padded(length: int | None) -> TypeReading:
    """Returns the reading of ``char(n)``: trailing blanks do not count, but are printed. A domain's n is unknown."""
    if length is None:
        return TypeReading(_text, "abc", Identity.VALUE, lambda text: text.rstrip(" "), lambda text: f"{text} ")

    def read(text: str) -> str:
        kept = _text(text).rstrip(" ")
        return kept.ljust(length) if len(kept) <= length else _refuse(f"it has at most {length} characters")

    return TypeReading(read, "abc"[:length])


def _boolean(text: str) -> str:
    """Returns ``t`` or ``f`` for the words that PostgreSQL accepts, and for their unambiguous beginnings."""
    word = text.strip(_BLANKS).lower()
    if word in _TRUE:
        return "t"
    return "f" if word in _FALSE else _refuse("write true or false")


_TRUE: Final = frozenset({"true", "tru", "tr", "t", "yes", "ye", "y", "on", "1"})
_FALSE: Final = frozenset({"false", "fals", "fal", "fa", "f", "no", "n", "off", "of", "0"})


_INTEGER: Final = re.compile(r"[+-]?0*([0-9]{1,20})", re.ASCII)


def _integer(text: str, low: int, high: int) -> str:
    match = _INTEGER.fullmatch(text.strip(_BLANKS))
    if match is None:
        _refuse("write a whole number")
    value = int(match[1]) if text.strip(_BLANKS)[0] != "-" else -int(match[1])
    return str(value) if low <= value <= high else _refuse(f"write a whole number from {low} to {high}")


def _unsigned(text: str, high: int) -> str:
    """Reads a number without sign and leading zeros; whether these mean octal depends on the server's version."""
    if _DIGITS.fullmatch(text) is None or int(text) > high:
        _refuse(f"write a whole number from 0 to {high}")
    return text


_DIGITS: Final = re.compile(r"0|[1-9][0-9]{0,19}")


class _Digits(NamedTuple):
    """A decimal number: its sign, and the digits before and after the point; ``whole`` has no leading zeros."""

    minus: bool
    whole: str
    fraction: str

    def __str__(self) -> str:
        text = f"{self.whole or '0'}.{self.fraction}" if self.fraction else self.whole or "0"
        return f"-{text}" if self.minus else text


_NUMBER: Final = re.compile(r"([+-]?)(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))(?:[eE]([+-]?[0-9]{1,6}))?")
_MOST_WHOLE, _MOST_FRACTION = 131_072, 16_383
"""The most digits of a ``numeric`` (numeric.h: 32,768 groups of four before the point, 14 bits of scale)."""
_CANONICAL_NUMBER: Final = re.compile(r"(-?)(0|[1-9][0-9]{0,99})(?:\.([0-9]{1,99}))?")


def _digits(text: str) -> _Digits:
    match = _NUMBER.fullmatch(text)
    if match is None:
        _refuse("write a number")
    sign, whole, fraction, alone, exponent = match.groups()
    whole, fraction, shift = whole or "", fraction or alone or "", int(exponent or 0)
    if abs(shift) > 2 * _MOST_WHOLE:
        _refuse("it has too many digits")
    if shift > 0:
        fraction = fraction.ljust(shift, "0")
        whole, fraction = whole + fraction[:shift], fraction[shift:]
    elif shift < 0:
        whole = whole.rjust(-shift, "0")
        whole, fraction = whole[:shift], whole[shift:] + fraction
    whole = whole.lstrip("0")
    if len(whole) > _MOST_WHOLE or len(fraction) > _MOST_FRACTION:
        _refuse("it has too many digits")
    return _Digits(sign == "-" and bool(whole or fraction.strip("0")), whole, fraction)


_NOT_FINITE: Final = {
    "nan": "NaN",
    **dict.fromkeys(("inf", "infinity", "+inf", "+infinity"), "Infinity"),
    **dict.fromkeys(("-inf", "-infinity"), "-Infinity"),
}


def _unscaled(text: str) -> str:
    stripped = text.strip(_BLANKS)
    return _NOT_FINITE.get(stripped.lower()) or str(_digits(stripped))


def _without_zeros(text: str) -> str:
    """Removes trailing zeros of the fraction: ``1.50`` and ``1.5`` are the same value."""
    return text.rstrip("0").rstrip(".") if "." in text else text


def _with_zero(text: str) -> str:
    return f"{text}0" if "." in text else f"{text}.0"


def _scaled(text: str, precision: int, scale: int) -> str:
    """Returns a number with as many digits after the point as the column has."""
    if (known := _CANONICAL_NUMBER.fullmatch(text)) is not None:  # fast path: it may be spelled as in the topic
        minus, whole, fraction = known.groups()
        if scale == len(fraction or "") and len(whole) <= precision - scale and not (minus and _is_zero(text)):
            return text
    stripped = text.strip(_BLANKS)
    if (special := _NOT_FINITE.get(stripped.lower())) is not None:
        return special if special == "NaN" else _refuse(f"a numeric({precision},{scale}) cannot be infinite")
    minus, whole, fraction = _digits(stripped)
    kept = fraction[: max(scale, 0)].ljust(max(scale, 0), "0")
    if fraction[len(kept) :].strip("0") or (scale < 0 and whole[scale:].strip("0")):
        _refuse(f"it has more digits than a numeric({precision},{scale}) holds, and is not rounded")
    if len((whole + kept if scale >= 0 else whole[:scale]).lstrip("0")) > precision:
        _refuse(f"it is too large for a numeric({precision},{scale})")
    return str(_Digits(minus, whole, kept))


def _is_zero(text: str) -> bool:
    return not text.strip("-0.")


def _numeric(precision: int | None, scale: int) -> TypeReading:
    if precision is None:
        return TypeReading(_unscaled, "1.5", Identity.VALUE, _without_zeros, _with_zero)
    digits = max(precision - scale, 0)
    example = "1"[:digits] + "0" * max(-scale, 0) if digits else "0"
    return TypeReading(partial(_scaled, precision=precision, scale=scale), _scaled(example, precision, scale))


_SHORT_FLOAT: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.(?!0000)[0-9]*[1-9])?")


def _float(text: str, is_single: bool) -> str:
    """Returns the nearest floating point number, as the server prints it."""
    if _SHORT_FLOAT.fullmatch(text) and len(text) <= (6 if is_single else 15):
        return text  # with so few digits, no other decimal is the same floating point number, so it prints like this
    stripped = text.strip(_BLANKS)
    if (special := _NOT_FINITE.get(stripped.lower())) is not None:
        return special
    if stripped.lower() in ("+nan", "-nan"):  # valid only here: a numeric NaN takes no sign
        return "NaN"
    if _NUMBER.fullmatch(stripped) is None:  # stricter than Python's float, which accepts 1_5 and other scripts' digits
        _refuse("write a number")
    value = abs(float(stripped))
    minus = "-" if stripped[0] == "-" else ""
    if value == 0 or isinf(value):
        if isinf(value) or re.split("[eE]", stripped)[0].strip("+-0."):
            _refuse("it is out of range for a floating point number")
        return f"{minus}0"
    return minus + (exact_single(nearest_bits(stripped.lstrip("+-"), value)) if is_single else exact_double(value))


def _one_zero(text: str) -> str:
    return "0" if text == "-0" else text


_UUID: Final = re.compile(r"\{?(?:[0-9a-fA-F]{4}-?){7}[0-9a-fA-F]{4}\}?")
_is_canonical_uuid = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}").fullmatch


def _uuid(text: str) -> str:
    if _is_canonical_uuid(text):
        return text
    if _UUID.fullmatch(text) is None or text.startswith("{") != text.endswith("}"):
        _refuse("write 32 hexadecimal digits")
    plain = text.strip("{}").replace("-", "").lower()
    return f"{plain[:8]}-{plain[8:12]}-{plain[12:16]}-{plain[16:20]}-{plain[20:]}"


_HEX: Final = re.compile(r"\\x((?:[0-9a-fA-F]{2}|[ \n\t\r])*)")
_ESCAPED: Final = re.compile(r"(?:[^\\]|\\\\|\\[0-3][0-7]{2})*", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(?:\\|([0-7]{3}))")


def _bytes(text: str) -> str:
    r"""Reads the hex form, ``\x00ff``, and the escape form if it is ASCII."""
    if (match := _HEX.fullmatch(text)) is not None:
        return "\\x" + re.sub(r"[ \n\t\r]", "", match[1]).lower()
    if text.startswith("\\x") or not text.isascii() or "\0" in text or _ESCAPED.fullmatch(text) is None:
        _refuse("write \\x and hexadecimal digits")
    raw = _ESCAPE.sub(lambda escape: chr(int(escape[1], 8)) if escape[1] else "\\", text)
    return "\\x" + raw.encode("latin-1").hex()


def _bits(text: str, length: int | None, is_exact: bool) -> str:
    digits = text[1:] if text[:1] in ("b", "B") else text
    if text[:1] in ("x", "X") and _HEX_DIGITS.fullmatch(text, 1):
        digits = "".join(f"{int(digit, 16):04b}" for digit in text[1:])
    if digits.strip("01"):
        _refuse("write zeros and ones")
    if length is not None and (len(digits) != length if is_exact else len(digits) > length):
        _refuse(f"it has {'' if is_exact else 'at most '}{length} bits")
    return digits


_HEX_DIGITS: Final = re.compile(r"[0-9a-fA-F]*")
_ADDRESS: Final = re.compile(r"([0-9a-fA-F:.]+)(?:/(0|[1-9][0-9]{0,2}))?")


def _address(text: str, is_network: bool) -> str:
    """Reads ``inet`` and ``cidr``: complete addresses of IPv4, with all four numbers, and of IPv6."""
    match = _ADDRESS.fullmatch(text)
    if match is None:
        _refuse("write an address, and a prefix length for a network")
    address, length = match.groups()
    try:
        found = IPv6Address(address) if ":" in address else IPv4Address(address)
    except ValueError:
        _refuse("write an IPv4 address with all four numbers, or an IPv6 address")
    bits = found.max_prefixlen
    size = bits if length is None else int(length)
    if size > bits:
        _refuse(f"the prefix length is at most {bits}")
    if is_network and int(found) & ((1 << (bits - size)) - 1):
        _refuse("a network address must not have bits set to the right of its prefix")
    shown = _ipv6(int(found)) if bits == 128 else str(found)
    return f"{shown}/{size}" if is_network or size < bits else shown


def _ipv6(number: int) -> str:
    """Returns an address as PostgreSQL's inet_net_ntop writes it: without the first of the longest runs of zeros, and,
    if it embeds an IPv4 address, with that at its end."""
    words = [number >> shift & 0xFFFF for shift in range(112, -1, -16)]
    runs = [(place, _zeros(words, place)) for place in range(8)]
    start, length = max(runs, key=lambda run: (run[1], -run[0]))
    if length < 2:
        return ":".join(f"{word:x}" for word in words)
    is_mapped = length == 5 and words[5] == 0xFFFF
    if start == 0 and (length == 6 or is_mapped):
        return f"::{'ffff:' if is_mapped else ''}{IPv4Address(number & 0xFFFFFFFF)}"
    head, tail = (":".join(f"{word:x}" for word in part) for part in (words[:start], words[start + length :]))
    return f"{head}::{tail}"


def _zeros(words: list[int], start: int) -> int:
    return next((count for count, word in enumerate(words[start:]) if word), 8 - start)


_PAIRS: Final = r"[0-9a-f]{2}"
_MAC: Final = re.compile(
    rf"{_PAIRS}(?::{_PAIRS}){{5}}|{_PAIRS}(?:-{_PAIRS}){{5}}|[0-9a-f]{{6}}[:-][0-9a-f]{{6}}"
    r"|[0-9a-f]{4}(?:\.[0-9a-f]{4}){2}|[0-9a-f]{4}(?:-[0-9a-f]{4}){2}|[0-9a-f]{12}"
)
_MAC8: Final = re.compile(rf"{_PAIRS}([-:.]?){_PAIRS}(?:\1{_PAIRS}){{4}}(?:(?:\1{_PAIRS}){{2}})?")


def _mac(text: str, is_long: bool) -> str:
    """Reads a hardware address; as a ``macaddr8``, six bytes get ``ff:fe`` in the middle."""
    lower = text.lower()
    if (_MAC8 if is_long else _MAC).fullmatch(lower) is None:
        _refuse(f"write {'eight' if is_long else 'six'} bytes in hexadecimal digits")
    digits = re.sub("[-:.]", "", lower)
    if is_long and len(digits) == 12:
        digits = f"{digits[:6]}fffe{digits[6:]}"
    return ":".join(digits[place : place + 2] for place in range(0, len(digits), 2))


_LSN: Final = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


def _lsn(text: str) -> str:
    match = _LSN.fullmatch(text)
    return f"{int(match[1], 16):X}/{int(match[2], 16):X}" if match else _refuse("write two hexadecimal numbers")


def _moment(name: str, places: int) -> TypeReading:
    if name in ("time", "timetz"):
        zone = "+00" if name == "timetz" else ""
        return TypeReading(partial(canonical_time, has_zone=bool(zone), places=places), f"12:30:00{zone}")
    zone = "+00" if name == "timestamptz" else ""
    return TypeReading(partial(canonical_timestamp, has_zone=bool(zone), places=places), f"2026-01-01 12:30:00{zone}")


_PLAIN: Final = {
    "bool": TypeReading(_boolean, "true"),
    "int2": TypeReading(partial(_integer, low=-(2**15), high=2**15 - 1), "7"),
    "int4": TypeReading(partial(_integer, low=-(2**31), high=2**31 - 1), "7"),
    "int8": TypeReading(partial(_integer, low=-(2**63), high=2**63 - 1), "7"),
    "oid": TypeReading(partial(_unsigned, high=2**32 - 1), "7"),
    "xid8": TypeReading(partial(_unsigned, high=2**64 - 1), "7"),
    "float4": TypeReading(partial(_float, is_single=True), "1.5", Identity.VALUE, _one_zero),
    "float8": TypeReading(partial(_float, is_single=False), "1.5", Identity.VALUE, _one_zero),
    "text": _TEXT,
    "name": TypeReading(_name, "abc"),
    "uuid": TypeReading(_uuid, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    "bytea": TypeReading(_bytes, "\\x00ff"),
    "date": TypeReading(canonical_date, "2026-01-01"),
    "inet": TypeReading(partial(_address, is_network=False), "192.168.0.1"),
    "cidr": TypeReading(partial(_address, is_network=True), "192.168.0.0/24"),
    "macaddr": TypeReading(partial(_mac, is_long=False), "08:00:2b:01:02:03"),
    "macaddr8": TypeReading(partial(_mac, is_long=True), "08:00:2b:ff:fe:01:02:03"),
    "pg_lsn": TypeReading(_lsn, "0/1925728"),
    "interval": TypeReading(canonical_interval, "1 day 02:00:00", Identity.UNKNOWN),
}
