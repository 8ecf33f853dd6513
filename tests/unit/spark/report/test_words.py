"""Numbers and times as people read them."""

from __future__ import annotations

import pytest

from cdc.spark.report.model import Report
from cdc.spark.report.words import duration, headline, moment
from tests.support import reports

DIFFERENT, UNKNOWN, SAME = reports.different_table(), reports.unverified_table(), reports.identical_table()


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.4, "0.40 s"), (12.34, "12.3 s"), (65, "1 min 05 s"), (7_380, "2 h 03 min")]
)
def test_duration(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_moment() -> None:
    assert moment("2026-11-21T14:03:11.25+00:00") == "2026-11-21 14:03:11 UTC"
    assert moment("2026-11-21T14:03:11+02:00") == "2026-11-21 14:03:11 +0200"
    assert moment("infinity") == "infinity"


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (reports.report(), "No table was compared"),
        (reports.report(SAME), "public.orders is identical"),
        (reports.report(DIFFERENT), "public.orders differs"),
        (reports.report(UNKNOWN), "public.events could not be verified"),
        (reports.report(SAME, SAME), "All 2 tables are identical"),
        (reports.report(SAME, UNKNOWN), "1 of 2 tables could not be verified"),
        (reports.report(DIFFERENT, DIFFERENT, SAME), "2 of 3 tables differ"),
    ],
)
def test_headline(report: Report, said: str) -> None:
    assert headline(report) == said
