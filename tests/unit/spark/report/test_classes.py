"""A class of keys that is forgotten somewhere must not make a table identical."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from cdc.spark.reconcile.summary import not_identical
from cdc.spark.reconcile.verdict import KeyClass
from cdc.spark.report.html import as_html
from cdc.spark.report.junit import as_junit
from cdc.spark.report.model import Counts, ReplicaCounts, Side, by_class
from cdc.spark.report.text import as_text
from cdc.spark.report.words import CLASS, MEANING
from tests.support import reports


@pytest.mark.parametrize("kind", KeyClass)
def test_every_class_but_two_makes_a_table_different(kind: KeyClass) -> None:
    counts = Counts(**not_identical({kind: 1, "with_row": 1}, "topic"))
    assert (counts.differences > 0) == kind.is_difference
    assert sum(by_class(counts).values()) == (kind is not KeyClass.IDENTICAL)


@pytest.mark.parametrize("kind", KeyClass)
def test_a_replica_too_and_a_class_that_it_cannot_have_ends_the_run(kind: KeyClass) -> None:
    found = not_identical({kind: 1}, "replica")
    if kind is KeyClass.FOREIGN:
        with pytest.raises(ValidationError, match="foreign"):
            ReplicaCounts(kind="replica", table="t", lsn="0/1", **found)
    else:
        counts = ReplicaCounts(kind="replica", table="t", lsn="0/1", **found)
        assert (counts.differences > 0) == kind.is_difference


@pytest.mark.parametrize("side", ["topic", "replica"])
def test_every_class_has_its_words(side: Side) -> None:
    names = not_identical(dict.fromkeys(KeyClass, 1), side)
    assert names.keys() <= CLASS.keys()
    assert CLASS.keys() == MEANING.keys()


def test_a_lake_is_called_a_lake_in_every_view() -> None:
    lake = ReplicaCounts(kind="lake", table="/lake/t.orders", lsn="0/1", version=17, rows=5, missing_in_replica=2)
    report = reports.report(reports.different_table(replica=lake, samples=()))
    text, page, junit = " ".join(as_text(report).split()), as_html(report), as_junit(report)
    assert "DIFFERENT public.orders -> lake /lake/t.orders: 2 of 2 keys differ at LSN 0/1 (version 17)" in text
    assert "2 missing in lake" in text
    assert "topic = lake /lake/t.orders" in junit
    for said in ("Topic and lake", "missing in lake", "/lake/t.orders at LSN 0/1 (version 17)", "in topics and lake"):
        assert said in page
    for view in (text, junit):
        assert "replica" not in view, view
