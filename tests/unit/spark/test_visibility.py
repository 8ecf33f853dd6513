"""Snapshots, by example and against their definition."""

from __future__ import annotations

import random

import pytest

from cdc.base.errors import DecodeError
from cdc.spark.source.visibility import VisibleTransactions


def test_reads_and_prints_the_servers_text() -> None:
    snapshot = VisibleTransactions.parse("10:20:10,14,15")
    assert snapshot == VisibleTransactions(10, 20, frozenset({10, 14, 15}))
    assert str(snapshot) == "10:20:10,14,15"
    assert str(VisibleTransactions.parse("1:1:")) == "1:1:"


def test_sees_what_is_over() -> None:
    snapshot = VisibleTransactions.parse("10:20:10,14")
    assert [xid for xid in range(8, 23) if snapshot.sees(xid)] == [8, 9, 11, 12, 13, 15, 16, 17, 18, 19]


@pytest.mark.parametrize("text", ["", "1:2", "2:1:", "10:20:9", "10:20:20", "10:20:,", "a:b:", "10:20:11,", "-1:2:"])
def test_refuses_other_texts(text: str) -> None:
    with pytest.raises(DecodeError, match="not a snapshot"):
        VisibleTransactions.parse(text)


@pytest.mark.parametrize(
    ("mine", "others", "covers"),
    [
        ("10:10:", "10:10:", True),
        ("10:11:10", "10:10:", True),
        ("10:10:", "10:11:10", True),
        ("10:10:", "11:11:", False),
        ("10:20:12", "10:12:", True),
        ("10:20:12", "10:13:", False),
        ("10:20:12", "10:20:12,13", True),
        ("10:20:12,13", "10:20:12", False),
    ],
)
def test_covers(mine: str, others: str, covers: bool) -> None:
    assert VisibleTransactions.parse(mine).covers(VisibleTransactions.parse(others)) is covers


def test_covers_is_what_it_says() -> None:
    rng = random.Random(1)

    def some() -> VisibleTransactions:
        xmin = rng.randint(1, 6)
        xmax = rng.randint(xmin, 8)
        return VisibleTransactions(xmin, xmax, frozenset(xid for xid in range(xmin, xmax) if rng.random() < 0.4))

    seen = set()
    for _ in range(5000):
        mine, other = some(), some()
        expected = all(mine.sees(xid) for xid in range(10) if other.sees(xid))
        assert mine.covers(other) is expected, f"{mine} {other}"
        seen.add(expected)
    assert seen == {True, False}
