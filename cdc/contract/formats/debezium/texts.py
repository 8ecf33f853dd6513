"""Converts PostgreSQL's texts of single types to the JSON of Debezium's, and back. Pure.

Each pair is exact in both directions: a text that Debezium's type cannot hold, or that would come back in another
spelling, is refused. Readers get what may be damaged, so they raise ``ValueError`` for anything else than this form.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode, urlsafe_b64decode, urlsafe_b64encode
from binascii import unhexlify
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Final, TypeAlias

import msgspec
import orjson

from cdc.contract import json_members
from cdc.contract.formats.civil import interval_parts, interval_text

Write: TypeAlias = Callable[[bytes], bytes]
"""Converts the server's text to JSON."""
Read: TypeAlias = Callable[[bytes], str]
"""Converts JSON to the server's text."""

_EPOCH: Final = datetime(1970, 1, 1)
_FIRST_DAY: Final = date(1970, 1, 1).toordinal()
_DIGITS_AS_ZEROS: Final = bytes.maketrans(b"123456789", b"000000000")
_CLOCKS: Final = (b"00:00:00", *(b"00:00:00." + b"0" * places for places in range(1, 7)))
_DAY_US: Final = 86_400_000_000
_ZERO: Final = ord("0")

_decode_string = msgspec.json.Decoder(str).decode
_decode_int = msgspec.json.Decoder(int).decode
_decode_bool = msgspec.json.Decoder(bool).decode
_dumps = orjson.dumps


class VariableScaleDecimal(msgspec.Struct, forbid_unknown_fields=True):
    """Debezium's struct for a ``numeric`` without a scale of its own."""

    scale: int
    value: str


_decode_variable = msgspec.json.Decoder(VariableScaleDecimal).decode
_decode_map = msgspec.json.Decoder(dict[str, str | None]).decode


class BeyondDebezium(ValueError):
    """A value that Debezium's type cannot hold, or not without a loss."""


def string(raw: bytes) -> str:
    """Returns the text of a JSON string."""
    return _decode_string(raw)


def integer(raw: bytes) -> str:
    """Returns the text of a whole number."""
    return str(_decode_int(raw))


def elements(raw: bytes) -> list[bytes]:
    """Returns the JSON of an array's elements."""
    return [bytes(each).strip() for each in json_members.elements(raw)]


# Numbers.


def _unscaled(number: int) -> bytes:
    """Returns the bytes of Java's ``BigInteger.toByteArray``, in base64."""
    size = (number if number >= 0 else ~number).bit_length() // 8 + 1  # -128 takes one byte, 128 two
    return b64encode(number.to_bytes(size, "big", signed=True))


def _number(text: str) -> int:
    raw = b64decode(text, validate=True)
    if not raw:
        raise ValueError("a decimal has no digits")
    return int.from_bytes(raw, "big", signed=True)


def _whole(digits: bytes) -> int:
    """Returns the number with these digits. Python refuses to read more than 4,300 directly, because it is slow."""
    return int(digits) if len(digits) <= 4_000 else int(Decimal(digits.decode()))


def _digits(number: int) -> str:
    return format(Decimal(number), "f")


def _with_point(number: int, scale: int) -> str:
    """Returns a number of 10 to the power of ``-scale`` as PostgreSQL prints it."""
    if scale <= 0:
        return _digits(number * 10**-scale)
    digits = _digits(abs(number)).zfill(scale + 1)
    return f"{'-' if number < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


def write_decimal(scale: int) -> Write:
    """Returns the writer of a ``numeric`` with this scale, which may be negative."""
    point = rb"\.[0-9]{%d}" % scale if scale > 0 else b""
    is_exact = re.compile(rb"-?(?:0|[1-9][0-9]*)" + point).fullmatch

    def write(cell: bytes) -> bytes:
        if is_exact(cell) is None:
            raise BeyondDebezium
        number = _whole(cell.replace(b".", b""))
        if scale < 0:
            number, rest = divmod(number, 10**-scale)
            if rest:
                raise BeyondDebezium
        return b'"%b"' % _unscaled(number)

    return write


def read_decimal(scale: int) -> Read:
    """Returns the reader of what ``write_decimal`` writes."""
    return lambda raw: _with_point(_number(_decode_string(raw)), scale)


_is_number = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.([0-9]+))?").fullmatch


def write_variable(cell: bytes) -> bytes:
    """Converts a ``numeric`` without a scale: each value brings its own."""
    match = _is_number(cell)
    if match is None:
        raise BeyondDebezium
    return b'{"scale":%d,"value":"%b"}' % (len(match[1] or b""), _unscaled(_whole(cell.replace(b".", b""))))


def read_variable(raw: bytes) -> str:
    """Reads what ``write_variable`` writes."""
    found = _decode_variable(raw)
    if not 0 <= found.scale <= 16_383:
        raise ValueError(f"not a scale: {found.scale}")
    return _with_point(_number(found.value), found.scale)


_is_money = re.compile(rb"(-?)\$([0-9]{1,3}(?:,[0-9]{3})*\.[0-9]{2})").fullmatch


def write_money(cell: bytes) -> bytes:
    """Converts money, which the bridge has printed in the locale C."""
    match = _is_money(cell)
    if match is None:
        raise BeyondDebezium
    number = int(match[2].replace(b",", b"").replace(b".", b""))
    return b'"%b"' % _unscaled(-number if match[1] else number)


def read_money(raw: bytes) -> str:
    """Reads what ``write_money`` writes."""
    number = _number(_decode_string(raw))
    whole, cents = divmod(abs(number), 100)
    return f"{'-' if number < 0 else ''}${whole:,}.{cents:02d}"


def write_plain_money(cell: bytes) -> bytes:
    """Converts money to a string of digits."""
    write_money(cell)
    return b'"%b"' % cell.replace(b"$", b"").replace(b",", b"")


def read_plain_money(raw: bytes) -> str:
    """Reads what ``write_plain_money`` writes."""
    text = _decode_string(raw)
    if re.fullmatch(r"-?[0-9]{1,18}\.[0-9]{2}", text) is None:
        raise ValueError(f"not an amount: {text!r}")
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    return f"{sign}${int(digits[:-3]):,}{digits[-3:]}"


_is_float = re.compile(rb'-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|"(?:NaN|-?Infinity)"|null').fullmatch


def checked_floats(raw: bytes) -> bytes:
    """Returns an array of floats unchanged; a damaged one would be a text of another array."""
    for each in elements(raw):
        if _is_float(each) is None:
            raise ValueError(f"not a float: {each[:60]!r}")
    return raw


# Dates and times.


def _day(cell: bytes) -> int:
    if cell.translate(_DIGITS_AS_ZEROS) != b"0000-00-00":
        raise BeyondDebezium
    return date.fromisoformat(cell.decode()).toordinal() - _FIRST_DAY


def write_date(cell: bytes) -> bytes:
    """Converts a date to days since 1970."""
    return b"%d" % _day(cell)


def read_date(raw: bytes) -> str:
    """Reads what ``write_date`` writes."""
    days = _decode_int(raw)
    if not 1 <= days + _FIRST_DAY <= date.max.toordinal():
        raise ValueError(f"the date is outside the years 1 to 9999: {days} days since 1970")
    return date.fromordinal(days + _FIRST_DAY).isoformat()


def write_iso_date(cell: bytes) -> bytes:
    """Converts a date to ``2026-01-31Z``."""
    _day(cell)
    return b'"%bZ"' % cell


def read_iso_date(raw: bytes) -> str:
    """Reads what ``write_iso_date`` writes."""
    text = _decode_string(raw)
    if text[-1:] != "Z":
        raise ValueError(f"not a date: {text!r}")
    return date.fromisoformat(text[:-1]).isoformat()


def _clock_micros(cell: bytes) -> int:
    if cell.translate(_DIGITS_AS_ZEROS) not in _CLOCKS or (len(cell) > 8 and cell[-1] == _ZERO):
        raise BeyondDebezium
    hour, minute, second = int(cell[:2]), int(cell[3:5]), int(cell[6:8])
    micros = ((hour * 60 + minute) * 60 + second) * 1_000_000 + int(cell[9:].ljust(6, b"0") or b"0")
    if minute > 59 or second > 59 or micros > _DAY_US:
        raise BeyondDebezium
    return micros


def _clock(micros: int) -> str:
    if not 0 <= micros <= _DAY_US:
        raise ValueError(f"not a time of day: {micros} µs")
    seconds, fraction = divmod(micros, 1_000_000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{fraction:06d}".rstrip("0") if fraction else text


def write_time(units: int) -> Write:
    """Returns the writer of times of day as this many units a second."""
    return lambda cell: b"%d" % _in_units(_clock_micros(cell), units)


def read_time(units: int) -> Read:
    """Returns the reader of what ``write_time`` writes."""
    return lambda raw: _clock(_in_micros(_decode_int(raw), units))


def _in_units(micros: int, units: int) -> int:
    if units >= 1_000_000:
        return micros * (units // 1_000_000)
    found, rest = divmod(micros, 1_000_000 // units)
    if rest:
        raise BeyondDebezium
    return found


def _in_micros(number: int, units: int) -> int:
    if units <= 1_000_000:
        return number * (1_000_000 // units)
    micros, rest = divmod(number, units // 1_000_000)
    if rest:
        raise ValueError(f"PostgreSQL keeps microseconds, not this: {number}")
    return micros


def write_iso_time(cell: bytes) -> bytes:
    """Converts a time of day to ``12:30:00.5Z``."""
    if _clock_micros(cell) == _DAY_US:
        raise BeyondDebezium  # Debezium would make 00:00:00 of it
    return b'"%bZ"' % cell


def read_iso_time(raw: bytes) -> str:
    """Reads what ``write_iso_time`` writes."""
    text = _stripped(_decode_string(raw))
    return _clock(_clock_micros(text.encode()))


def _padded(text: bytes, places: int) -> bytes:
    """Returns a text with so many digits after the second."""
    whole, _, fraction = text.partition(b".")
    return b"%b.%b" % (whole, fraction.ljust(places, b"0")) if places else whole


def _stripped(text: str) -> str:
    """Returns a text without its Z and without zeros at the end of the fraction."""
    if text[-1:] != "Z":
        raise ValueError(f"not a time in UTC: {text!r}")
    whole, point, fraction = text[:-1].partition(".")
    fraction = fraction.rstrip("0")
    return f"{whole}{point}{fraction}" if fraction else whole


_MOMENTS: Final = frozenset(b"0000-00-00 " + clock for clock in _CLOCKS)


def _moment(cell: bytes) -> datetime:
    if cell.translate(_DIGITS_AS_ZEROS) not in _MOMENTS:
        raise BeyondDebezium
    if (cell[-1] == _ZERO and len(cell) > 19) or cell[11:13] == b"24":
        raise BeyondDebezium
    try:
        return datetime.fromisoformat(cell.decode())
    except ValueError:
        raise BeyondDebezium from None


def _moment_micros(cell: bytes) -> int:
    since = _moment(cell) - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def write_timestamp(units: int) -> Write:
    """Returns the writer of timestamps as this many units a second since 1970."""

    def write(cell: bytes) -> bytes:
        found = _in_units(_moment_micros(cell), units)
        if not -(1 << 63) <= found < 1 << 63:
            raise BeyondDebezium
        return b"%d" % found

    return write


def read_timestamp(units: int) -> Read:
    """Returns the reader of what ``write_timestamp`` writes."""

    def read(raw: bytes) -> str:
        micros = _in_micros(_decode_int(raw), units)
        try:
            text = (_EPOCH + timedelta(0, 0, micros)).isoformat(" ")
        except OverflowError:
            raise ValueError(f"the timestamp is outside the years 1 to 9999: {micros} µs since 1970") from None
        return text.rstrip("0") if len(text) > 19 else text

    return read


def write_iso_timestamp(cell: bytes) -> bytes:
    """Converts a timestamp without time zone to ``2026-01-31T12:30:00.5Z``."""
    _moment(cell)
    return b'"%bZ"' % cell.replace(b" ", b"T")


def write_zoned_timestamp(places: int) -> Write:
    """Returns the writer of timestamps with time zone: ``2026-01-31T12:30:00.500000Z``, always with so many digits."""

    def write(cell: bytes) -> bytes:
        if not cell.endswith(b"+00"):
            raise BeyondDebezium
        text = cell[:-3]
        _moment(text)
        return b'"%bZ"' % _padded(text.replace(b" ", b"T"), places)

    return write


def read_iso_timestamp(zone: str) -> Read:
    """Returns the reader of ISO timestamps; ``zone`` ends the server's text."""

    def read(raw: bytes) -> str:
        text = _stripped(_decode_string(raw))
        if text[10:11] != "T":
            raise ValueError(f"not a timestamp: {text!r}")
        moment = f"{text[:10]} {text[11:]}"
        _moment(moment.encode())
        return moment + zone

    return read


def write_interval(cell: bytes) -> bytes:
    """Converts an interval to ``P1Y2M3DT4H5M6.78S``."""
    months, days, micros = interval_parts(cell.decode())
    size = abs(micros)
    sign = "-" if micros < 0 else ""
    year, month = divmod(abs(months), 12)
    of_months = "-" if months < 0 else ""
    seconds, fraction = divmod(size, 1_000_000)
    second = f"{seconds % 60}.{fraction:06d}".rstrip("0") if fraction else str(seconds % 60)
    parts = (
        _signed(of_months, year),
        _signed(of_months, month),
        days,
        _signed(sign, seconds // 3600),
        _signed(sign, seconds // 60 % 60),
        second if second == "0" else sign + second,
    )
    return b'"%b"' % "P{}Y{}M{}DT{}H{}M{}S".format(*parts).encode()


def _signed(sign: str, number: int) -> str:
    return f"{sign}{number}" if number else "0"


_is_interval = re.compile(
    r"P(-?[0-9]+)Y(-?[0-9]+)M(-?[0-9]+)DT(-?[0-9]+)H(-?[0-9]+)M(-?)([0-9]+)(?:\.([0-9]{1,6}))?S"
).fullmatch


def read_interval(raw: bytes) -> str:
    """Reads what ``write_interval`` writes."""
    text = _decode_string(raw)
    match = _is_interval(text)
    if match is None:
        raise ValueError(f"not an interval: {text!r}")
    years, months, days, hours, minutes = (int(match[place]) for place in range(1, 6))
    second = int(match[7]) * 1_000_000 + int((match[8] or "").ljust(6, "0"))
    micros = (hours * 60 + minutes) * 60_000_000 + (-second if match[6] else second)
    return interval_text(years * 12 + months, days, micros)


# Bytes and bits.


def _raw(cell: bytes) -> bytes:
    if cell[:2] != b"\\x":
        raise ValueError("not the hexadecimal form of bytes")
    return unhexlify(cell[2:])


def write_base64(cell: bytes) -> bytes:
    """Converts bytes to base64."""
    return b'"%b"' % b64encode(_raw(cell))


def read_base64(raw: bytes) -> str:
    """Reads what ``write_base64`` writes."""
    return "\\x" + b64decode(_decode_string(raw), validate=True).hex()


def write_url_base64(cell: bytes) -> bytes:
    """Converts bytes to base64 with the letters that an address may have."""
    return b'"%b"' % urlsafe_b64encode(_raw(cell))


def read_url_base64(raw: bytes) -> str:
    """Reads what ``write_url_base64`` writes."""
    return "\\x" + urlsafe_b64decode(_decode_string(raw)).hex()


def write_hex(cell: bytes) -> bytes:
    """Converts bytes to hexadecimal digits."""
    _raw(cell)
    return b'"%b"' % cell[2:]


def read_hex(raw: bytes) -> str:
    """Reads what ``write_hex`` writes."""
    return "\\x" + unhexlify(_decode_string(raw)).hex()


BIT: Final[Write] = {b"0": b"false", b"1": b"true"}.__getitem__
"""Converts a single bit."""


def read_bit(raw: bytes) -> str:
    """Reads a single bit."""
    return "1" if _decode_bool(raw) else "0"


def write_bits(cell: bytes) -> bytes:
    """Converts bits to bytes in base64, the last bit first, without bytes of zeros at the end."""
    number = int(cell, 2)
    return b'"%b"' % b64encode(number.to_bytes((number.bit_length() + 7) // 8, "little"))


def read_bits(length: int) -> Read:
    """Returns the reader of so many bits."""

    def read(raw: bytes) -> str:
        number = int.from_bytes(b64decode(_decode_string(raw), validate=True), "little")
        if number.bit_length() > length:
            raise ValueError(f"more than {length} bits")
        return f"{number:0{length}b}"

    return read


# Types of extensions.

_PAIR: Final = re.compile(r'"((?:[^"\\]|\\.)*)"=>(?:"((?:[^"\\]|\\.)*)"|NULL)(?:, |$)', re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


def _pairs(cell: bytes) -> dict[str, str | None]:
    text, place, found = cell.decode(), 0, {}
    while place < len(text):
        match = _PAIR.match(text, place)
        if match is None:
            raise ValueError("not the text of an hstore")
        key, value = match.groups()
        found[_ESCAPED.sub(r"\1", key)] = None if value is None else _ESCAPED.sub(r"\1", value)
        place = match.end()
    return found


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _hstore(pairs: dict[str, str | None]) -> str:
    return ", ".join(f"{_quoted(key)}=>{'NULL' if value is None else _quoted(value)}" for key, value in pairs.items())


def write_map(cell: bytes) -> bytes:
    """Converts an hstore to a JSON object."""
    return _dumps(_pairs(cell))


def read_map(raw: bytes) -> str:
    """Reads what ``write_map`` writes."""
    return _hstore(_decode_map(raw))


def write_json_map(cell: bytes) -> bytes:
    """Converts an hstore to a JSON string that holds an object."""
    return _dumps(_dumps(_pairs(cell)).decode())


def read_json_map(raw: bytes) -> str:
    """Reads what ``write_json_map`` writes."""
    return _hstore(_decode_map(_decode_string(raw)))


_is_vector = re.compile(rb"\[[-+.0-9e]+(?:,[-+.0-9e]+)*\]").fullmatch


def write_vector(cell: bytes) -> bytes:
    """Converts a vector, whose text is a JSON array already."""
    if _is_vector(cell) is None:
        raise BeyondDebezium
    return cell


def read_vector(raw: bytes) -> str:
    """Reads what ``write_vector`` writes."""
    return "[" + ",".join(each.decode() for each in elements(raw)) + "]"
