"""Values that are hard to look at."""

from __future__ import annotations

import random

import pytest

from cdc.spark.report.values import SHOWN_CHARACTERS, ascii_text, differing_spans, pieces, shortened


@pytest.mark.parametrize(
    ("one", "other", "marked"),
    [
        ("same", "same", ([], [])),
        ("paid", "open", (["paid"], ["open"])),
        ("Ann", "Ann  ", ([], ["  "])),
        ("2026-11-21 11:58:03+00", "2026-11-21 13:58:03+00", (["1"], ["3"])),
        ("1999.90", "1999.9", (["0"], [])),
        ("", "x", ([], ["x"])),
        ("aa", "aaa", ([], ["a"])),
    ],
)
def test_marks(one: str, other: str, marked: tuple[list[str], list[str]]) -> None:
    left, right = differing_spans(one, other)
    assert ([one[a:b] for a, b in left], [other[a:b] for a, b in right]) == marked


def test_without_the_marked_parts_both_are_equal() -> None:
    seed = random.randrange(1_000_000)
    source = random.Random(seed)
    for _ in range(300):
        one, other = ("".join(source.choices("ab -", k=source.randrange(24))) for _ in range(2))
        left, right = differing_spans(one, other)
        rest = []
        for text, spans in ((one, left), (other, right)):
            rest.append("".join(letter for i, letter in enumerate(text) if not any(a <= i < b for a, b in spans)))
        assert rest[0] == rest[1], f"random.Random({seed}): {one!r}, {other!r}"


def test_a_long_value_keeps_head_tail_and_first_difference() -> None:
    one = "a" * 3_000 + "NEEDLE" + "b" * 3_000
    spans, _ = differing_spans(one, one.replace("NEEDLE", ""))
    shown = list(pieces(one, spans))
    assert sum(len(piece.text) for piece in shown if piece.kind == "plain") <= SHOWN_CHARACTERS
    assert [piece.text for piece in shown if piece.differs] == ["NEEDLE"]
    notes = [piece.text for piece in shown if piece.kind == "left_out"]
    hidden = sum(int(note.split()[0].replace(",", "")) for note in notes)
    assert hidden + sum(len(piece.text) for piece in shown if piece.kind == "plain") == len(one)


def test_text_is_one_unambiguous_line() -> None:
    assert ascii_text(None) == "NULL"
    assert ascii_text("NULL") == "'NULL'"
    assert ascii_text("it's\n\\n \x00 \u202e \U0001f600") == "'it''s\\n\\\\n \\x00 \\u202e \\U0001f600'"


def test_short_sentences_stay() -> None:
    assert shortened("stale version") == "stale version"
    assert "9,865 characters left out" in shortened("x" * 10_000)
