"""Values as people may write them, at random: right ones in many spellings, wrong ones, and ones with a slip."""

from __future__ import annotations

import random
import re
import string
import struct
import uuid
from collections.abc import Callable, Mapping
from ipaddress import IPv6Address
from typing import Final, NamedTuple

Generate = Callable[[random.Random], str]


class Spelled(NamedTuple):
    """Spellings of a type's values.

    Attributes:
        generate: one of them.
        left_out: what a server may take and we do not: documented in ``docs/views.md``.
    """

    generate: Generate
    left_out: str = r"(?!)"


def spelling(rng: random.Random, each: Spelled) -> str:
    """A spelling; one in five with a slip."""
    text = each.generate(rng)
    if rng.random() >= 0.2:
        return text
    place = rng.randint(0, len(text))
    slip = rng.choice("0123456789+-.:/eETZzxXabfFB_ {}\\\t,'١é")
    return text[:place] + (slip if rng.random() < 0.7 else "") + text[place + rng.randint(0, 1) :]


def _padded(rng: random.Random, text: str) -> str:
    return rng.choice(["", "", "", " ", "\t\n"]) + text + rng.choice(["", "", "", " ", "\n"])


def _case(rng: random.Random, text: str) -> str:
    return rng.choice([text, text, text.upper(), text.lower(), text.title()])


def _boolean(rng: random.Random) -> str:
    words = ["true", "false", "yes", "no", "on", "off", "1", "0", "2", "null"]
    word = rng.choice(words)
    return _padded(rng, _case(rng, word[: rng.choice([len(word), rng.randint(0, len(word))])]))


def _integer(bits: int) -> Generate:
    def generate(rng: random.Random) -> str:
        size = rng.choice([rng.getrandbits(rng.randint(1, bits + 1)), (1 << (bits - 1)) - rng.randint(-1, 1)])
        return _padded(rng, rng.choice(["", "", "-", "+"]) + "0" * rng.choice([0, 0, 0, 1, 30]) + str(size))

    return generate


def _unsigned(bits: int) -> Generate:
    return lambda rng: rng.choice(["", "", "", "0", "-", " "]) + str(rng.getrandbits(rng.randint(1, bits + 1)))


def _digits(rng: random.Random, most: int) -> str:
    return "".join(rng.choices("0123456789", k=rng.randint(0, most)))


def _decimal(rng: random.Random) -> str:
    if rng.random() < 0.05:
        return _padded(rng, rng.choice(["", "-", "+"]) + _case(rng, rng.choice(["NaN", "Infinity", "inf", "infin"])))
    zeros = "0" * rng.choice([0, 0, 1, 3])
    point = rng.choice(["", "", ".", "."])
    tail = _digits(rng, rng.choice([2, 2, 5, 20])) + "0" * rng.choice([0, 0, 1, 3]) if point else ""
    exponent = f"{rng.choice('eE')}{rng.choice(['', '+', '-'])}{rng.randint(0, rng.choice([3, 30]))}"
    return _padded(
        rng,
        rng.choice(["", "", "-", "+"])
        + zeros
        + _digits(rng, rng.choice([2, 6, 20]))
        + point
        + tail
        + rng.choice(["", "", exponent]),
    )


def _float(form: str) -> Generate:
    def generate(rng: random.Random) -> str:
        if rng.random() < 0.3:
            return _decimal(rng)
        value = struct.unpack(form, rng.randbytes(struct.calcsize(form)))[0]
        many = rng.choice([repr(value), f"{value:.{rng.randint(1, 25)}e}", f"{value:.{rng.randint(1, 9)}g}"])
        return _padded(rng, rng.choice([many, many.upper(), f"1e{rng.randint(-400, 400)}"]))

    return generate


def _uuid(rng: random.Random) -> str:
    text = str(uuid.UUID(int=rng.getrandbits(128)))
    plain = text.replace("-", "")
    grouped = "-".join(plain[place : place + 4] for place in range(0, 32, 4))
    shown = rng.choice([text, text, plain, grouped, plain[:8] + "-" + plain[8:]])
    return _case(rng, rng.choice([shown, shown, f"{{{shown}}}", f" {shown}"]))


def _date(rng: random.Random) -> str:
    year = rng.choice(
        [f"{rng.randint(1900, 2100)}", f"{rng.randint(0, 9999):04d}", str(rng.randint(10_000, 6_000_000))]
    )
    year = rng.choice([year, year, year, "294276", "4714", "4713", "5874897"])
    month, day = rng.randint(0, 13) if rng.random() < 0.1 else rng.randint(1, 12), rng.randint(1, 31)
    return rng.choice([f"{year}-{month:02d}-{day:02d}"] * 4 + [f"{year}-{month}-{day}"])


def _time(rng: random.Random) -> str:
    hour = rng.choice([rng.randint(0, 23), rng.randint(0, 23), rng.randint(0, 23), 24, 25])
    minute, second = rng.choice([rng.randint(0, 59), 0, 0, 60]), rng.choice([rng.randint(0, 59), 0, 0, 60, 61])
    if rng.random() < 0.15:
        return f"{hour:02d}:{minute:02d}"
    fraction = rng.choice(["", "", "." + _digits(rng, 6), "." + _digits(rng, 3) + "000000", "." + _digits(rng, 9)])
    return f"{hour:02d}:{minute:02d}:{second:02d}{fraction if fraction != '.' else ''}"


def _zone(rng: random.Random) -> str:
    if rng.random() < 0.3:
        return rng.choice(["Z", "Z", "z", " Z", "+00", "+00:00", "-00"])
    hours, minutes, seconds = rng.randint(0, rng.choice([14, 17])), rng.choice([0, 0, 30, 45, 60]), rng.randint(0, 59)
    shown = rng.choice([f"{hours:02d}", f"{hours:02d}:{minutes:02d}", f"{hours:02d}{minutes:02d}", f"{hours}"])
    seconds_too = f"{hours:02d}:{minutes:02d}:{seconds:02d}"
    return rng.choice(["", "", " "]) + rng.choice("+-") + rng.choice([shown, shown, shown, seconds_too])


def _era(rng: random.Random, text: str) -> str:
    return _padded(rng, text + rng.choice(["", "", "", "", "", " BC", " bc"]))


def _infinite(rng: random.Random) -> str:
    return _padded(rng, rng.choice(["", "-"]) + _case(rng, "infinity"))


def _day(rng: random.Random) -> str:
    return _infinite(rng) if rng.random() < 0.02 else _era(rng, _date(rng))


def _clock(rng: random.Random) -> str:
    return _padded(rng, _time(rng) + rng.choice(["", "", "", _zone(rng)]))


def _moment(rng: random.Random) -> str:
    if rng.random() < 0.02:
        return _infinite(rng)
    return _era(rng, _date(rng) + rng.choice(["", f"{rng.choice('T T t')}{_time(rng)}{rng.choice(['', _zone(rng)])}"]))


def _interval(rng: random.Random) -> str:
    def number(most: int) -> int:
        return rng.randint(-most, most)

    parts = [
        f"{number(30)} year{rng.choice(['s', ''])}" if rng.random() < 0.4 else "",
        f"{rng.choice(['', '+', ''])}{number(13)} mon{rng.choice(['s', ''])}" if rng.random() < 0.4 else "",
        f"{rng.choice(['', '+', ''])}{number(40)} day{rng.choice(['s', ''])}" if rng.random() < 0.5 else "",
        f"{rng.choice(['', '-', '+'])}{rng.randint(0, 30):02d}:{rng.randint(0, 59):02d}:{rng.randint(0, 59):02d}"
        f"{rng.choice(['', '', '.' + str(rng.randint(0, 999999)).zfill(6)])}"
        if rng.random() < 0.6
        else "",
    ]
    return " ".join(filter(None, parts))


def _bytes(rng: random.Random) -> str:
    raw = rng.randbytes(rng.randint(0, 12))
    spaced = " ".join(f"{byte:02x}" for byte in raw)
    plain = "".join(rng.choices(string.ascii_letters + " '\"/", k=rng.randint(0, 8)))
    escaped = "".join(rng.choice([f"\\{byte:03o}", "\\\\", plain[:2], f"\\{byte}"]) for byte in raw)
    return rng.choice([f"\\x{raw.hex()}", f"\\x{raw.hex().upper()}", f"\\x{spaced}", plain, escaped])


def _inet(rng: random.Random) -> str:
    bits = rng.choice([32, 128])
    number = rng.getrandbits(bits)
    if rng.random() < 0.5:
        number &= ~((1 << rng.randint(0, bits)) - 1)
    if bits == 128 and rng.random() < 0.3:
        number = rng.choice([0xFFFF << 32, 0, 0xFFFF << 16]) | rng.getrandbits(rng.choice([0, 1, 16, 32]))
    if bits == 128 and rng.random() < 0.3:
        for _ in range(rng.randint(1, 6)):
            number &= ~(0xFFFF << rng.choice(range(0, 128, 16)))
    four = ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))
    six = IPv6Address(number)
    mixed = f"::ffff:{four}"
    text = four if bits == 32 else _case(rng, rng.choice([str(six), six.exploded, str(six), mixed]))
    return text + rng.choice(["", "", f"/{rng.randint(0, bits + 1)}", f"/{bits}"])


def _mac(count: int) -> Generate:
    def generate(rng: random.Random) -> str:
        raw = rng.randbytes(rng.choice([count, count, count, 6, 8])).hex()
        size, mark = rng.choice(
            [(2, ":"), (2, ":"), (2, "-"), (4, "."), (6, ":"), (6, "-"), (4, "-"), (16, ""), (2, ".")]
        )
        return _case(rng, mark.join(raw[place : place + size] for place in range(0, len(raw), size)))

    return generate


def _bits(length: int) -> Generate:
    def generate(rng: random.Random) -> str:
        size = rng.choice([length, length, length, rng.randint(0, length + 2)])
        plain = "".join(rng.choices("01", k=size))
        return rng.choice([plain, plain, f"B{plain}", f"b{plain}", f"X{_digits(rng, 2)}", f"x{rng.choice('aFf')}"])

    return generate


def _characters(length: int) -> Generate:
    def generate(rng: random.Random) -> str:
        text = "".join(rng.choices("abcéß€😀 1\t\x01", k=rng.randint(0, length + 1)))
        return text + " " * rng.choice([0, 0, 1, 3, length])

    return generate


def _lsn(rng: random.Random) -> str:
    return _case(rng, f"{'0' * rng.randint(0, 2)}{rng.getrandbits(rng.randint(1, 33)):x}/{rng.getrandbits(32):X}")


_SPACE: Final = r"[ \t\n\r\v\f]*"
_ISO_DATE: Final = r"[0-9]{4,7}-[0-9]{1,2}-[0-9]{1,2}"
_ISO_TIME: Final = r"[0-9]{1,2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?"
_ISO_ZONE: Final = r"( ?([Zz]|[+-]([0-9]{1,2}(:[0-9]{2}(:[0-9]{2})?)?|[0-9]{4})))?"
_NO_BC: Final = r"( [Bb][Cc])?"
_ROUNDED: Final = r"(?s:.*)\.[0-9]{6}[0-9]*[1-9](?s:.*)"
_NOT_ISO_DATE: Final = rf"(?!{_SPACE}{_ISO_DATE}{_NO_BC}{_SPACE}\Z)(?s:.*)"
_NOT_ISO_TIME: Final = rf"(?!{_SPACE}{_ISO_TIME}{_ISO_ZONE}{_SPACE}\Z)(?s:.*)|{_ROUNDED}"
_NOT_ISO: Final = rf"(?!{_SPACE}{_ISO_DATE}([Tt ]{_ISO_TIME}{_ISO_ZONE})?{_NO_BC}{_SPACE}\Z)(?s:.*)|{_ROUNDED}"
_WITH_OFFSET: Final = rf"(?s:.*)[0-9] ?[+-]([0-9]{{1,2}}|[0-9:]{{4,}}){_NO_BC}{_SPACE}"
"""Of a type without a time zone: the server passes over it in silence."""
_OTHER_BASES: Final = rf"{_SPACE}[+-]?(0[xXoObB]|[0-9]*_)(?s:.*)"
"""``0x1F`` and ``1_000`` are numbers from PostgreSQL 16 on."""

_HEX: Final = "[0-9a-fA-F]"
_MACS: Final = [
    f"{_HEX}{{{size}}}({mark}{_HEX}{{{size}}}){{{12 // size - 1}}}"
    for size, mark in [(2, ":"), (2, "-"), (6, ":"), (6, "-"), (4, r"\."), (4, "-"), (12, "")]
]
_MACS8: Final = [f"{_HEX}{{2}}({mark}{_HEX}{{2}}){{{count}}}" for mark in (":", "-", r"\.", "") for count in (5, 7)]

_UNDERSCORED: Final = r"(?s:.*)_(?s:.*)|(?s:.*)[eE][+-]?[0-9]{5,}(?s:.*)|(?s:.*)[eE][ \t\n\r\v\f](?s:.*)"
"""Or of an exponent that only a zero can have, or that stands behind a blank, which servers before 16 passed over."""
_ODD_OCTETS: Final = (
    r".*\b0[0-9].*|.*[:.]\..*|.*\.(/.*)?|.*[^:]:(/.*)?"
    r"|.*:(?!([0-9]{1,3}\.){3}[0-9]{1,3}(/.*)?\Z)[^:]*\..*"
)
"""Zeros in front, octets that are not there, and addresses of IPv4 in IPv6 that are cut short."""

SPELLED: Final[Mapping[str, Spelled]] = {
    "bool": Spelled(_boolean),
    "int2": Spelled(_integer(16), _OTHER_BASES),
    "int4": Spelled(_integer(32), _OTHER_BASES),
    "int8": Spelled(_integer(64), _OTHER_BASES),
    "oid": Spelled(_unsigned(32), rf"{_SPACE}(0.+|[+-].*|[0-9_]*){_SPACE}"),
    "xid8": Spelled(_unsigned(64), r"(?s:.*)"),
    "numeric": Spelled(_decimal, rf"{_OTHER_BASES}|{_UNDERSCORED}"),
    **{
        sql_type: Spelled(_decimal, rf"{_OTHER_BASES}|{_UNDERSCORED}")
        for sql_type in ("numeric(10,2)", "numeric(5,0)", "numeric(30,12)")
    },
    "float4": Spelled(_float(">f"), rf"{_OTHER_BASES}|{_UNDERSCORED}"),
    "float8": Spelled(_float(">d"), rf"{_OTHER_BASES}|{_UNDERSCORED}"),
    "uuid": Spelled(_uuid),
    "text": Spelled(_characters(5)),
    "varchar": Spelled(_characters(4)),
    "char(5)": Spelled(_characters(5)),
    "bpchar": Spelled(_characters(5)),
    "name": Spelled(_characters(5)),
    "date": Spelled(_day, _NOT_ISO_DATE),
    "time": Spelled(_clock, rf"{_NOT_ISO_TIME}|{_WITH_OFFSET}"),
    "time(3)": Spelled(_clock, rf"{_NOT_ISO_TIME}|{_WITH_OFFSET}"),
    "timetz": Spelled(_clock, _NOT_ISO_TIME),
    "timestamp": Spelled(_moment, rf"{_NOT_ISO}|{_WITH_OFFSET}"),
    "timestamp(0)": Spelled(_moment, rf"{_NOT_ISO}|{_WITH_OFFSET}"),
    "timestamptz": Spelled(_moment, _NOT_ISO),
    "timestamptz(3)": Spelled(_moment, _NOT_ISO),
    "interval": Spelled(_interval, r"(?s:.*)"),
    "bytea": Spelled(_bytes, r"(?s:.*[^\x00-\x7f].*)"),
    "inet": Spelled(_inet, rf"(?s:.*)(?<![0-9.])([0-9]+\.){{0,2}}[0-9]+(/.*)?|{_ODD_OCTETS}"),
    "cidr": Spelled(_inet, rf"([0-9]+\.){{0,3}}[0-9]*(/.*)?|{_ODD_OCTETS}"),
    "macaddr": Spelled(_mac(6), rf"(?!({'|'.join(_MACS)})\Z)(?s:.*)"),
    "macaddr8": Spelled(_mac(8), rf"(?!({'|'.join(_MACS8)})\Z)(?s:.*)"),
    "bit(5)": Spelled(_bits(5)),
    "varbit(5)": Spelled(_bits(5)),
    '"bit"': Spelled(_bits(5)),
    "pg_lsn": Spelled(_lsn, r"(?!)"),
}
SINCE_16: Final[Mapping[str, Spelled]] = {
    '"char"': Spelled(_characters(1), r"(?s:.*[^ -~].*|..+)"),
}
"""What servers before 16 print as a byte that is no text."""
SINCE_15: Final[Mapping[str, Spelled]] = {
    "numeric(3,-2)": SPELLED["numeric(10,2)"],
    "numeric(2,4)": SPELLED["numeric(10,2)"],
}
"""Scales that PostgreSQL knows from 15 on."""


def is_left_out(text: str, each: Spelled) -> bool:
    """Whether it is one of those that we refuse although a server may take them."""
    return re.fullmatch(each.left_out, text) is not None
