"""PostgreSQL types with edge values, as input text: what a lossless bridge has to carry unchanged.

``KEY_TYPES`` make as many distinct values as asked for; ``VALUE_TYPES`` list values worth trying. Custom types live in
``CUSTOM_TYPES``, to be created in source and replica alike.
"""

from __future__ import annotations

import random
import re
import uuid
from collections.abc import Callable
from typing import Final

CUSTOM_TYPES: Final = """
CREATE TYPE mood AS ENUM ('sad', 'ok', 'so "happy"', 'ünï');
CREATE DOMAIN positive AS integer CHECK (value > 0);
CREATE DOMAIN very_positive AS positive CHECK (value > 1);
CREATE DOMAIN texts AS text[];
CREATE TYPE pair AS (a integer, b text);
"""

_TRICKY_TEXT: Final = (
    "", " ", "null", "NULL", '"', "\\", "\\N", "a\tb\nc\rd", "\x01\x1f\x7f", "{}", "{1,2}", "[1]", "é", "e\u0301",
    "\u2028", "𝔘𝔫𝔦", "👩‍👩‍👧", "'; DROP TABLE x; --", "%s %d {0}", "true", "0", "x" * 3000,
)  # fmt: skip

_DEEP: Final = "[" * 1200 + '{"a": 1.50}' + "]" * 1200
"""A document that PostgreSQL takes and that most parsers refuse."""

VALUE_TYPES: Final[dict[str, tuple[str, ...]]] = {
    "boolean": ("t", "f"),
    "smallint": ("-32768", "0", "32767"),
    "integer": ("-2147483648", "0", "2147483647"),
    "bigint": ("-9223372036854775808", "0", "9007199254740993", "9223372036854775807"),
    "oid": ("0", "4000000000"),
    "real": ("0", "-0", "3.3", "1e-45", "3.4028235e38", "NaN", "Infinity", "-Infinity"),
    "double precision": ("0.1", "-0", "1e20", "1e-7", "5e-324", "1.7976931348623157e308", "NaN", "-Infinity"),
    "numeric": ("0", "-0.00", "1.10", "NaN", "Infinity", "1e100", "0." + "0" * 40 + "1", "9" * 60 + ".5"),
    "numeric(12,3)": ("0", "22.2", "-999999999.999", "NaN"),
    "money": ("$1234.11", "($1,234.11)", "-92233720368547758.08"),
    "text": _TRICKY_TEXT,
    "varchar(20)": ("", "žluťoučký kůň", "trail   "),
    "char(8)": ("", "ab", "  lead"),
    '"char"': ("", "a"),
    "name": ("", "some_name", "Ünï"),
    "bytea": ("", "\\x00", "\\xdeadbeef00ff", "\\x" + "5c" * 50),
    "bit(5)": ("00000", "10101"),
    "bit varying": ("", "101", "0" * 70),
    "date": ("2026-02-28", "infinity", "-infinity", "4713-01-01 BC", "5874897-12-31", "0001-01-01"),
    "time": ("00:00", "24:00:00", "11:51:30.123789"),
    "timetz": ("04:05:06-08:00", "24:00:00+15:59"),
    "timestamp": (
        "2026-11-20 12:13:14.123456",
        "infinity",
        "-infinity",
        "4713-12-31 BC",
        "294276-12-31 23:59:59.999999",
    ),
    "timestamp(3)": ("2018-06-27 13:17:51.123456", "1936-10-25 22:10:12.6"),
    "timestamptz": ("2026-03-29 01:30:00+02", "infinity", "21016-11-04 06:51:30.123456Z", "4714-12-31 23:59:59Z BC"),
    "interval": ("1 year 2 mons 3 days 04:05:06.78", "-1 mons +1 day", "0", "178000000 years", "-00:00:00.000001"),
    "uuid": ("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "00000000-0000-0000-0000-000000000000"),
    "json": (
        "{}",
        "[]",
        '""',
        "1.0e5",
        '{"a" : 1,   "a": 2}',
        '"\\u00e9\\n"',
        '{"deep": [[[null]]]}',
        "[1,\n 2]",
        "false",
        '{"half of a pair" : "\\ud800"}',
        _DEEP,
    ),
    "jsonb": (
        "null",
        "{}",
        "[]",
        '{"b": 1, "a": [true, null, "x"]}',
        "12345678901234567890.10",
        '"a\\"b"',
        '{"": {"": ""}}',
        _DEEP,
    ),
    "inet": ("192.168.2.0/12", "::1", "10.0.0.1"),
    "cidr": ("192.168.100.128/25", "2001:4f8:3:ba::/64"),
    "macaddr": ("08:00:2b:01:02:03",),
    "macaddr8": ("08:00:2b:01:02:03:04:05",),
    "point": ("(1.5,-2)", "(NaN,Infinity)"),
    "line": ("{1,-1,0}",),
    "lseg": ("[(0,0),(1,1)]",),
    "box": ("(1,1),(0,0)",),
    "path": ("[(0,0),(1,1),(2,0)]", "((0,0),(1,1))"),
    "polygon": ("((0,0),(1,1),(2,0))",),
    "circle": ("<(0,0),1.5>",),
    "int4range": ("empty", "[1,10)", "(,5)", "[7,)"),
    "numrange": ("[1.10,2.2]", "(,)"),
    "tstzrange": ('["2019-03-31 15:30:00+00",infinity)', "empty"),
    "daterange": ("[2026-01-01,2026-02-01)",),
    "int8multirange": ("{}", "{[1,3), [5,9)}"),
    "tsvector": ("a fat cat", "'quo''te':1A,2 'with space':3"),
    "tsquery": ("fat & (rat | cat:*A)", "'a b' <-> c"),
    "pg_lsn": ("0/0", "16/B374D848"),
    "jsonpath": ('$."a"[*] ? (@ > 1)',),
    "int2vector": ("1 2 3", ""),
    "mood": ("sad", 'so "happy"', "ünï"),
    "positive": ("1", "2147483647"),
    "very_positive": ("2",),
    "pair": ("(1,)", '(,"a ""b"" , c")', "(2,NULL)", "(,)"),
    "boolean[]": ("{}", "{t,NULL,f}"),
    "integer[]": ("{}", "{1,NULL,-3}", "{{1,2},{3,4}}", "[0:2]={7,8,9}", "{{{1}}}"),
    "text[]": (
        "{}",
        '{"",NULL,"NULL",null,"a,b","{x}"," y ","back\\\\slash","q\\"q"}',
        '{{"a b",c},{"\\n",d}}',
        "{é,👩‍👧}",
    ),
    "numeric(6,2)[]": ("{1.1,NaN,NULL}",),
    "double precision[]": ("{NaN,Infinity,1e-7}",),
    "timestamptz[]": ('{"2026-01-01 00:00:00+00",infinity}',),
    "uuid[]": ("{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}",),
    "bytea[]": ('{"\\\\x00ff",""}',),
    "jsonb[]": ('{"{\\"a\\": 1}",NULL,"\\"s\\"","7"}', "{}", '{"null",NULL}', "{{1,2},{3,4}}", '{"[1,2]","[]"}'),
    "box[]": ("{(1,1),(0,0);(2,2),(1,1)}",),
    "int4range[]": ('{"[1,3)",empty}',),
    "mood[]": ('{sad,"so \\"happy\\""}', "{{sad,ok}}"),
    "pair[]": ('{"(1,\\"a b\\")",NULL}',),
    "positive[]": ("{1,2,NULL}",),
    "texts": ("{}", "{a,NULL}"),
}

KEY_TYPES: Final[dict[str, Callable[[random.Random, int], str]]] = {
    "integer": lambda _, n: str((-1) ** n * n),
    "bigint": lambda _, n: str(9007199254740993 + n),
    "smallint": lambda _, n: str(n % 60_000 - 30_000),
    "text": lambda rng, n: f"{n}-{rng.choice(_TRICKY_TEXT[:-1])}",
    "varchar(60)": lambda rng, n: f'{rng.choice(("Ä", "a", " "))}"{n}\\',
    "char(12)": lambda _, n: f"k{n}",
    "uuid": lambda rng, n: str(uuid.UUID(int=rng.getrandbits(96) << 32 | n)),
    "numeric": lambda rng, n: f"{n}.{rng.randint(0, 9)}0",
    "date": lambda _, n: f"{2000 + n // 336}-{n // 28 % 12 + 1:02}-{n % 28 + 1:02}",
    "timestamptz": lambda _, n: f"2026-01-01 00:{n // 60 % 60:02}:{n % 60:02}.{n:06}+00",
    "boolean": lambda _, n: "t" if n % 2 else "f",
    "bytea": lambda _, n: f"\\x{n:08x}",
    "inet": lambda _, n: f"10.{n >> 16 & 255}.{n >> 8 & 255}.{n & 255}",
    "mood": lambda rng, n: rng.choice(("sad", "ok", "ünï")),
}

NOT_UNIQUE: Final = frozenset({"boolean", "mood", "smallint"})
"""Key types with too few values to identify a row alone; they come with another key column."""


def fits_debezium(name: str, text: str) -> bool:
    """Whether Debezium's types hold this value of a type, in all modes of the envelope."""
    base = re.split(r"[(\[]", name)[0].removesuffix(" day to second").removesuffix(" year to month")
    if (name.endswith("[]") or name == "texts") and (
        text.startswith(("[", "{{")) or ("{" in text[1:] and not text.startswith('{"'))
    ):
        return False
    if base in ("numeric", "other.price") and re.search("NaN|nfinity", text):
        return False
    if base in ("date", "time", "timestamp", "timestamptz"):
        return not re.search(r"nfinity| BC|\b[0-9]{5,}-|24:00:00", text)
    return True
