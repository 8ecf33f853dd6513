"""Points and durations as people write them."""

from __future__ import annotations

import pytest

from cdc.base.errors import ConfigError
from cdc.contract.jobspec.snapshot import AsOfLsn, AsOfNow, AsOfOffsets, AsOfTime
from cdc.ops.jobs.as_of import parse_as_of, parse_every, parse_time


def test_points() -> None:
    assert parse_as_of("now", None) == AsOfNow()
    assert parse_as_of("0/1a2b", None) == AsOfLsn(lsn="0/1A2B")
    assert parse_as_of("1970-01-01T01:00:01+01:00", None) == AsOfTime(time_us=1_000_000)
    assert parse_as_of("now", '{"t":{"0":5}}') == AsOfOffsets(offsets={"t": {0: 5}})


@pytest.mark.parametrize(
    ("text", "offsets", "words"),
    [
        ("0/", None, "invalid LSN"),
        ("yesterday", None, "invalid time"),
        ("2026-11-21T15:00:00", None, "has no time zone"),
        ("0/1", "{}", "both name a point"),
        ("now", "[1]", "expected offsets"),
        ("now", '{"t":{"x":5}}', "expected offsets"),
    ],
)
def test_no_points(text: str, offsets: str | None, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_as_of(text, offsets)


def test_durations() -> None:
    assert [parse_every(each) for each in ("30s", "15m", "1h", "2d")] == [30, 900, 3600, 172_800]
    for bad in ("", "0s", "1", "1w", "-1h"):
        with pytest.raises(ConfigError, match="invalid duration"):
            parse_every(bad)


def test_microseconds_are_exact() -> None:
    assert parse_time("2026-11-21T15:00:00.123457Z", "--since") % 1_000_000 == 123_457
