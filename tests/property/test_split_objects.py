"""Values are split into the texts of their members alike: plain ones in one step, others in several."""

from __future__ import annotations

import json
import os
import random
from typing import Any, NoReturn

import pytest

from cdc.base.errors import DecodeError
from cdc.spark.values.objects import split_array, split_object, unquote
from tests.support.soak import times

SEED = int(os.environ.get("SEED", str(random.SystemRandom().randrange(1 << 32))))
SCALARS = (
    "null", "true", "false", "0", "-0", "7", "-12.50", "1e5", "1E-7", "-0.0e+1", "12345678901234567890", '""', '"a"',
    '"é,}]"', '"\\u00e9"', '"\\""', '"\\\\"', '"\x7f"', '"null"', '": ,"',
)  # fmt: skip
BROKEN = (
    "nul",
    "01",
    "1.",
    ".5",
    "+1",
    "NaN",
    "-Infinity",
    '"a',
    '"\t"',
    '"\\x"',
    "'a'",
    "[",
    "{",
    "",
    "1 2",
    '"a""b"',
    "²",
)
BLANKS = ("", "", "", " ", "\n\t")

pytestmark = pytest.mark.soak


def no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def parsed(text: str) -> Any:
    """What Python's own parser makes of it, with numbers as text and objects as pairs."""
    return json.loads(text, parse_int=str, parse_float=str, parse_constant=no_constant, object_pairs_hook=tuple)


def value(rng: random.Random, depth: int = 0) -> str:
    kind = rng.random()
    if kind < 0.01:
        return rng.choice(BROKEN)
    if depth < 3 and kind < 0.15:
        return between("[]", [value(rng, depth + 1) for _ in range(rng.randrange(4))], rng)
    if depth < 3 and kind < 0.25:
        return between("{}", [f"{name(rng)}:{value(rng, depth + 1)}" for _ in range(rng.randrange(4))], rng)
    return rng.choice(SCALARS)


def name(rng: random.Random) -> str:
    return (
        rng.choice(('"a"', '"b"', '"c d"', '"é"', '"\\u0061"', '""', '"e"', '"f"', '"g"'))
        if rng.random() < 0.99
        else "a"
    )


def between(braces: str, parts: list[str], rng: random.Random) -> str:
    blank = rng.choice(BLANKS)
    return braces[0] + blank + f"{blank},{rng.choice(BLANKS)}".join(parts) + blank + braces[1]


def split(text: str, *, is_object: bool) -> Any:
    try:
        return list(split_object(text).items()) if is_object else split_array(text)
    except DecodeError:
        return None


def expected(text: str, *, is_object: bool) -> Any:
    try:
        found = parsed(text)
    except ValueError:
        return None
    names = [each for each, _ in found] if is_object else []
    return found if len(set(names)) == len(names) else None


def test_members_and_elements_are_what_a_parser_finds() -> None:
    rng = random.Random(SEED)
    taken = refused = 0
    for _ in range(times(3_000, soak=200_000)):
        is_object = rng.random() < 0.6
        count = rng.randrange(6)
        parts = [f"{name(rng)}:{value(rng)}" if is_object else value(rng) for _ in range(count)]
        text = between("{}" if is_object else "[]", parts, rng)
        if rng.random() < 0.05:
            place = rng.randrange(len(text))
            text = text[:place] + rng.choice('"\\,:{}[]x ') + text[place + rng.randrange(2) :]
        if not text.startswith("{" if is_object else "["):
            continue
        found, wanted = split(text, is_object=is_object), expected(text, is_object=is_object)
        if wanted is None or found is None:
            assert found is wanted, (SEED, text)
            refused += 1
            continue
        read = [(each, parsed(raw)) for each, raw in found] if is_object else [parsed(raw) for raw in found]
        assert read == [*wanted], (SEED, text)
        assert all((raw if not is_object else raw[1]) in text for raw in found), (SEED, text)
        taken += 1
    assert taken > 10 * min(refused, 20) > 0


def test_a_string_is_what_a_parser_finds() -> None:
    rng = random.Random(SEED)
    for _ in range(times(1_000, soak=50_000)):
        text = "".join(
            rng.choice(('"', "a", "é", "\\\\", "\\n", "\t", '\\"', " ", "\\")) for _ in range(rng.randrange(5))
        )
        text = rng.choice((f'"{text}"', text, f' "{text}" '))
        try:
            wanted = parsed(text)
        except ValueError:
            wanted = None
        try:
            found = unquote(text)
        except DecodeError:
            found = None
        assert found == (wanted if isinstance(wanted, str) and text.strip().startswith('"') else None), (SEED, text)
