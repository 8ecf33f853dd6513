"""A report that may leave the house."""

from __future__ import annotations

import pytest

from cdc.spark.report.document import as_json
from cdc.spark.report.html import as_html
from cdc.spark.report.junit import as_junit
from cdc.spark.report.model import Bar
from cdc.spark.report.redact import HIDDEN, redacted
from cdc.spark.report.text import as_text
from tests.support import reports

SECRETS = ("4711-secret", "Ann Lee", "1999.9", "11:58:03+00", "paid")


def test_no_view_holds_a_value() -> None:
    secret = reports.sample(
        key='{"id":"4711-secret"}',
        source=reports.row(customer="4711-secret"),
        cause='alias key: {"id":"4711-secret"} and 4711-secret, amount is "1999.90", status paid',
    )
    table = reports.different_table(
        samples=(secret, *reports.different_table().samples),
        reason="Key (id)=(4711-secret) is bad",
        where="name = '4711-secret' and id > 1000",
        causes=(Bar(label="key '4711-secret' twice", count=1),),
    )
    report = redacted(reports.report(table))
    for view in (as_text, as_html, as_junit, as_json):
        for value in SECRETS:
            assert value not in view(report), (view.__name__, value)
    assert report.tables[0].where == f"name = {HIDDEN} and id > {HIDDEN}"


def test_what_leads_to_the_record_stays() -> None:
    full, hidden = reports.mixed(), redacted(reports.mixed())
    assert hidden.redacted
    assert hidden.tables[0].counts == full.tables[0].counts
    assert hidden.tables[0].histograms == full.tables[0].histograms
    assert hidden.tables[0].causes == full.tables[0].causes
    before, after = full.tables[0].samples[0], hidden.tables[0].samples[0]
    assert (after.partition, after.offset, after.lsn, after.xid) == (
        before.partition,
        before.offset,
        "0/18FF2A0",
        812_650,
    )
    assert after.differing == ("status", "amount")
    assert after.cause == before.cause
    assert after.key == f'{{"id": "{HIDDEN}"}}'
    assert after.source == dict.fromkeys(before.source or {}, HIDDEN)


def test_nulls_and_differences_of_numbers_are_values_too() -> None:
    table = redacted(reports.mixed()).tables[0]
    assert table.samples[0].source is not None
    assert table.samples[0].source["note"] == HIDDEN
    assert all(column.largest_difference is None and not column.examples for column in table.columns)


@pytest.mark.parametrize(
    "key", ["4711secret", '{"id":"4711secret"}', '{"a":"}{","id":"4711secret"}', f'{{"id":"4711secret{"x" * 200}"}}']
)
def test_a_key_in_a_cause_is_hidden_however_it_is_written(key: str) -> None:
    shown = key if len(key) <= 100 else key[:100] + "\N{HORIZONTAL ELLIPSIS}"
    cause = f'alias key: {shown} and {{"id":4711}} are the same logical key in different bytes'
    sample = reports.sample(key=key, cause=cause)
    found = redacted(reports.report(reports.different_table(samples=(sample,)))).tables[0].samples[0].cause
    assert "4711" not in found
    assert found.startswith(f"alias key: {HIDDEN}")
    assert found.endswith("are the same logical key in different bytes")


def test_coordinates_in_a_cause_stay() -> None:
    cause = "stale version: the update at partition 3, offset 118204 (LSN 0/18FF2A0 of transaction 812650, 2026-11-21)"
    row = reports.row(id="3", amount="118204", placed_at="2026-11-21")
    sample = reports.sample(key='{"id":3}', source=row, cause=cause)
    found = redacted(reports.report(reports.different_table(samples=(sample,)))).tables[0].samples[0]
    assert found.cause == cause


def test_an_apostrophe_is_no_quote() -> None:
    cause = "in amount the topic's value is rounded; in note the topic's value differs in trailing blanks only"
    sample = reports.sample(cause=cause)
    assert redacted(reports.report(reports.different_table(samples=(sample,)))).tables[0].samples[0].cause == cause


def test_hiding_twice_changes_nothing() -> None:
    once = redacted(reports.mixed())
    assert redacted(once) == once


def test_a_key_that_is_no_object_is_hidden_whole() -> None:
    samples = tuple(reports.sample(key=key) for key in ("4711", "not json", "[1]"))
    found = redacted(reports.report(reports.different_table(samples=samples))).tables[0].samples
    assert {sample.key for sample in found} == {HIDDEN}
