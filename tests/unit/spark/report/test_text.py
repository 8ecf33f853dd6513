"""What a person reads on a terminal."""

from __future__ import annotations

import pytest

from cdc.spark.report.model import Counts, Report
from cdc.spark.report.text import WIDTH, as_text
from tests.support import reports


def test_each_table_opens_with_its_verdict() -> None:
    lines = as_text(reports.mixed()).splitlines()
    place = "at snapshot 812734:812741:812736,812739 (LSN 0/1925728)"
    assert lines[0].startswith(f"DIFFERENT public.orders: 1,310 of 1,000,002 keys differ {place}: 412")
    assert lines[2].startswith("DIFFERENT public.orders -> replica mirror.public.orders: 53 of 1,000,001 keys differ")
    assert lines[4].startswith("NOT VERIFIED public.events: the bridge did not reach LSN 0/1925728 within 60 s")
    assert lines[5].startswith("    what to do: start the bridge (cdc run)")
    assert lines[6] == f"IDENTICAL public.customers: 52,300 rows {place}"


def test_details_lead_to_the_record() -> None:
    text = as_text(reports.mixed())
    assert "cause    803 x stale version: a later change never reached the topic" in text
    assert 'sample   values differ: key {"id":42}' in text
    assert "record: partition 3 offset 118204, update, LSN 0/18FF2A0 seq 17, xid 812650" in text
    assert "status: 'paid' | 'open'" in text
    assert "all keys reconcile/" in text
    assert "1,310 keys handed to the bridge: 1,308 verified, 2 still different" in text


def test_an_identical_run_is_short() -> None:
    text = as_text(reports.all_identical())
    assert "All 3 tables are identical. Exit code 0." in text
    assert len(text.splitlines()) < 16
    assert "sample" not in text


def test_keys_that_were_not_judged_are_said_with_the_verdict() -> None:
    counts = Counts(source_rows=10, identical=9, in_flight=1)
    text = as_text(reports.report(reports.identical_table(counts=counts)))
    assert "(LSN 0/1925728): 1 in flight" in " ".join(text.split())


def test_limits_of_this_very_run_are_told() -> None:
    assert "1 column left out" in as_text(reports.mixed())
    assert "Rows outside the filter of 1 table." in as_text(reports.mixed())
    assert "left out" not in as_text(reports.all_identical())


@pytest.mark.parametrize("report", [reports.mixed(), reports.all_identical(), reports.hostile()])
def test_it_is_plain_ascii_and_fits(report: Report) -> None:
    for line in as_text(report).splitlines():
        assert len(line) <= WIDTH
        assert line.isascii()
        assert line.isprintable()


def test_a_run_without_tables() -> None:
    assert as_text(reports.report()).lstrip().startswith("No table was compared. Exit code 0.")
