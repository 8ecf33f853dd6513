"""Array literals: parsing and writing are each other's inverse."""

from __future__ import annotations

import random

import pytest

from cdc.contract.formats.arrays import Array, array_literal, bare_elements, parse_array

PIECES = [
    "",
    "a",
    "NULL",
    "null",
    "a b",
    '"',
    "\\",
    "{",
    "}",
    ",",
    ";",
    "\n",
    "\t",
    "\v",
    "é",
    "\u00a0",
    "😀",
    "[1]",
    "=",
]


def same(text: str) -> str:
    return text


@pytest.mark.parametrize("delimiter", [",", ";"])
def test_inverse(delimiter: str) -> None:
    rng = random.Random(1)

    def element() -> str | None:
        return None if rng.random() < 0.1 else "".join(rng.choices(PIECES, k=rng.randrange(4)))

    def array(dimensions: int) -> Array:
        length = rng.randrange(1, 4)
        return [array(dimensions - 1) if dimensions > 1 else element() for _ in range(length)]

    for _ in range(300):
        nested = array(rng.randrange(1, 4))
        literal = array_literal(nested, delimiter)
        assert parse_array(literal, same, delimiter) == nested, literal
    assert parse_array(array_literal([]), same) == []


def test_literals_are_written_as_the_server_does() -> None:
    assert (
        array_literal(["a", None, "NULL", "", " ", 'q"\\', "é", "\u00a0"])
        == '{a,NULL,"NULL",""," ","q\\"\\\\",é,\u00a0}'
    )
    assert array_literal([["a"], [None]]) == "{{a},{NULL}}"
    assert array_literal(["a;b", "a,b"], ";") == '{"a;b";a,b}'


def test_explicit_bounds_are_no_json_array() -> None:
    assert parse_array("[2:3]={a,b}", same) is None


@pytest.mark.parametrize(
    "literal",
    [
        "",
        "a",
        "{",
        "}",
        "{}}",
        "{}{}",
        "{a}b",
        "{,}",
        "{a,}",
        "{,a}",
        "{a b",
        '{"a"b}',
        '{a"b"}',
        "{{a}b}",
        '{"a',
        "{a,{b}",
    ],
)
def test_malformed(literal: str) -> None:
    with pytest.raises(ValueError, match="array literal"):
        parse_array(literal, same)


def test_damaged_literals_end() -> None:
    rng = random.Random(2)
    for _ in range(3000):
        literal = "".join(rng.choices('{}",\\aN[ ;', k=rng.randrange(12)))
        try:
            parsed = parse_array(literal, same)
        except ValueError:
            continue
        assert parsed is None or isinstance(parsed, list)


@pytest.mark.parametrize("delimiter", [",", ";"])
def test_bare_elements_are_those_of_the_parser(delimiter: str) -> None:
    rng = random.Random(2)
    found = 0
    for _ in range(3_000):
        literal = "{" + "".join(rng.choices(["a", "é", "\u00a0", "NULL", *PIECES, delimiter], k=rng.randrange(6))) + "}"
        if (bare := bare_elements(literal, delimiter)) is not None:
            found += 1
            parsed: Array = list(bare)
            assert parse_array(literal, same, delimiter) == parsed, literal
            assert array_literal(parsed, delimiter) == literal
    assert found > 300


@pytest.mark.parametrize("literal", ["{}", "{a,NULL}", "{annulled}", '{"a b"}', "{{a}}", "{a,}", "[2:2]={a}", "{a", ""])
def test_other_arrays_are_left_to_the_parser(literal: str) -> None:
    assert bare_elements(literal) is None
