"""Random columns and rows as the stream has them, good and damaged: what a twin in C must treat as Python does."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection, Sequence
from itertools import cycle
from typing import Final, Literal

from cdc.contract.change import UNCHANGED_TOAST, Column, Row, UnchangedToast
from cdc.contract.hiding import ColumnRules, Mask

_TEXT: Final = (
    b"", b" ", b"null", b'"', b"\\", b"\\N", b"a\tb\nc\rd\x08\x0c", b"\x01\x1f\x7f", b"{}", b"[1]", "é".encode(),
    "e\u0301".encode(), "\u2028".encode(), "𝔘𝔫𝔦".encode(), "\U0010ffff".encode(), b"%s %d {0}", b"x" * 300, b"/",
)  # fmt: skip
_NOT_UTF8: Final = (
    b"\x80", b"\xc0\x80", b"\xc1\xbf", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xf0\x80\x80\x80",
    b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xff", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"a\xc3(", b"\xe2(\xa1",
)  # fmt: skip

_TEXT_ARRAYS: Final = (
    b"{}", b"{a,bc}", "{é,\u2028,/}".encode(), b"{,}", b"{a\x01,b\\}", b"{NUL,null,ULL}", b"{XNULL,N}", b"{a}}", b"{",
    b'{a,"b c",NULL,"NULL"}', b'{"\\"","\\\\"}', b"{{a},{b}}",
)  # fmt: skip

_COPY_ESCAPED: Final = re.compile(rb"[\\\b\f\n\r\t\v]")
_COPY_LETTERS: Final = {b"\b": b"b", b"\f": b"f", b"\n": b"n", b"\r": b"r", b"\t": b"t", b"\v": b"v"}
_ODD_ESCAPES: Final = (
    b"\\", b"\\N", b"\\.", b"\\101", b"\\x41", b"\\q", b"\\\t", b"\\\n", b"\\\x80", b"\t", b"\n", b"\x00", b"n\\ull",
)  # fmt: skip

_TEXTS: Final[dict[str, Callable[[random.Random], bytes]]] = {
    "bool": lambda rng: rng.choice((b"t", b"f")),
    "int4": lambda rng: b"%d" % rng.randrange(-(1 << 31), 1 << 31),
    "int8": lambda rng: b"%d" % rng.randrange(-(1 << 63), 1 << 63),
    "float8": lambda rng: rng.choice((b"NaN", b"Infinity", b"-Infinity", b"-0", b"1e+20", b"%a" % rng.random())),
    "numeric": lambda rng: rng.choice((b"NaN", b"0.00", b"%d.5" % rng.randrange(10**12))),
    "timestamptz": lambda rng: b"2026-03-29 01:30:00.%06d+00" % rng.randrange(10**6),
    "uuid": lambda rng: b"%032x" % rng.getrandbits(128),
    "text": lambda rng: b"".join(rng.choices(_TEXT, k=rng.randrange(4))),
    "bytea": lambda rng: b"\\x%x" % rng.getrandbits(64),
    "jsonb": lambda rng: rng.choice((b"null", b" null\n", b"{}", b'{"a": [1, null, "\\u0000"]}', b"nullx", b'"null"')),
    "_int4": lambda rng: rng.choice((b"{}", b"{1,-23}", b"{1,NULL,-3}", b"{{1},{2}}", b"[0:1]={1,2}")),
    "_text": lambda rng: rng.choice(_TEXT_ARRAYS),
    "_jsonb": lambda rng: rng.choice((b"{}", b'{"{}","[1]"}', b'{"null"}', b"{NULL}")),
    "_bool": lambda rng: rng.choice((b"{t,f}", b"{NULL}")),
}


def text_of(kind: str) -> Callable[[random.Random], bytes]:
    """What makes texts of a type of ``pg_catalog``."""
    return _TEXTS[kind]


def columns(rng: random.Random) -> tuple[Column, ...]:
    """Of one relation, in any mixture of types; the first ones are its identity."""
    width, keys = rng.choice((1, 2, 3, 5, 9, 30)), rng.choice((1, 1, 2))
    names = [f"c{i}" + rng.choice(("", "", "é", '"', "%s", "\\", " ")) for i in range(width)]
    return tuple(
        Column(name, 0, -1, f"pg_catalog.{rng.choice(tuple(_TEXTS))}", i < keys) for i, name in enumerate(names)
    )


def columns_of(*kinds: str) -> tuple[Column, ...]:
    """Columns of these types, all of them the relation's identity."""
    return tuple(Column(f"c{i}", 0, -1, f"pg_catalog.{kind}", True) for i, kind in enumerate(kinds))


def rules(of: Sequence[Column], keys: Collection[str]) -> ColumnRules:
    """What hides columns: each mask by turns, and every sixth is left out. Of some keys, the first column is hashed."""
    others = [each.name for each in of if each.name not in keys]
    by_turns: dict[str, Mask | None] = dict(
        zip(others, cycle(("sha256", None, "null", "last4", "sha256-joinable")), strict=False)
    )
    masks = {name: mask for name, mask in by_turns.items() if mask is not None}
    excluded = frozenset(others[::6])
    hashed: dict[str, Mask] = {next(iter(keys)): "sha256"} if len(of) % 2 else {}
    shown = {name: mask for name, mask in masks.items() if name not in excluded}
    return ColumnRules(excluded, shown | hashed, None, b"salt")


def row(rng: random.Random, of: Sequence[Column], *, damage: float = 0.02) -> Row:
    """Of these columns. ``damage``: how likely a cell's text is not of its type, or was not sent."""
    return tuple([_cell(rng, column, damage) for column in of])


def copy_line(rng: random.Random, of: Sequence[Column], *, damage: float = 0.02) -> bytes:
    """A row of these columns as a line of COPY's text format, now and then with escapes that no server writes."""
    cells = [None if cell is UNCHANGED_TOAST else cell for cell in row(rng, of, damage=damage)]
    line = b"\t".join([b"\\N" if cell is None else _escaped(rng, cell, damage) for cell in cells]) + b"\n"
    return damaged(rng, line) if rng.random() < damage else line


def damaged(rng: random.Random, data: bytes) -> bytes:
    """Cut, lengthened, or with a few other bytes."""
    way = rng.randrange(4)
    if way == 0 or not data:
        return data[: rng.randrange(len(data) + 1)]
    if way == 1:
        return data + rng.randbytes(rng.randrange(1, 5))
    place = rng.randrange(len(data))
    if way == 2:
        return data[:place] + rng.randbytes(rng.randrange(3)) + data[place:]
    return data[:place] + bytes((data[place] ^ 1 << rng.randrange(8),)) + data[place + 1 :]


def _escaped(rng: random.Random, cell: bytes, damage: float) -> bytes:
    text = _COPY_ESCAPED.sub(lambda match: b"\\" + _COPY_LETTERS.get(match[0], match[0]), cell)
    if rng.random() < damage:
        place = rng.randrange(len(text) + 1)
        return text[:place] + rng.choice(_ODD_ESCAPES) + text[place:]
    return text


def _cell(rng: random.Random, column: Column, damage: float) -> bytes | Literal[UnchangedToast.UNCHANGED_TOAST] | None:
    chance = rng.random()
    if chance < damage / 4:
        return UNCHANGED_TOAST
    if chance < damage / 2:
        return rng.choice(_NOT_UTF8)
    text = _TEXTS[column.type_name.rpartition(".")[2]](rng)
    if chance < damage:
        return damaged(rng, text)
    return None if chance > 0.9 else text
