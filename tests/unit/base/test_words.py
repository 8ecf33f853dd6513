"""Numbers and times of terminals and pages."""

from __future__ import annotations

import pytest

from cdc.base.words import counted, duration, moment, size


@pytest.mark.parametrize(("number", "said"), [(0, "0 B"), (1023, "1,023 B"), (1536, "1.5 KiB"), (5 << 40, "5.0 TiB")])
def test_size(number: int, said: str) -> None:
    assert size(number) == said


def test_counted() -> None:
    assert (counted(1, "key"), counted(2_000, "key")) == ("1 key", "2,000 keys")


@pytest.mark.parametrize(
    ("milliseconds", "said"),
    [(1_499, "1,499 ms"), (1_500, "1.5 s"), (90_000, "1.5 min"), (86_400_000, "24 h"), (604_800_000, "7 days")],
)
def test_duration(milliseconds: int, said: str) -> None:
    assert duration(milliseconds) == said


def test_a_duration_beyond_a_hundred_years_is_for_ever() -> None:
    assert duration(2**63 - 1) == "for ever"


def test_moment() -> None:
    assert (moment(None), moment(1_500)) == ("never", "1970-01-01T00:00:01Z")
