"""The page's content; how it looks is seen in ``tests/acceptance/test_report_page.py``."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from cdc.spark.report.html import as_html
from cdc.spark.report.html.charts import class_strip, columns_chart
from cdc.spark.report.html.markup import element
from cdc.spark.report.model import Bar, Report
from cdc.spark.report.redact import redacted
from tests.support import reports

VOID = {"meta", "link", "br", "input"}


class Balance(HTMLParser):
    """Every opened element is closed, in order; collects scripts and addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.scripts = 0
        self.addresses: list[str] = []
        self.handlers: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.scripts += tag == "script"
        self.addresses += [value for name, value in attrs if name in ("href", "src", "action")]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize(
    "report", [reports.mixed(), reports.all_identical(), redacted(reports.mixed()), reports.hostile(), reports.report()]
)
def test_it_is_whole_and_asks_for_nothing(report: Report) -> None:
    page = Balance()
    page.feed(as_html(report))
    assert page.open == []
    assert page.scripts == 1
    assert page.handlers == []
    assert [address for address in page.addresses if not address.startswith(("#", "data:"))] == []
    as_html(report).encode("utf-8")


def test_hostile_values_stay_text() -> None:
    page = as_html(reports.hostile())
    assert "<script>alert" not in page
    assert "<img" not in page
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e\u2066\ud800]", page)
    assert '<span class="ctl" title="U+202E">U+202E</span>' in page
    assert '<span class="ctl" title="U+0000">NUL</span>' in page
    assert "9,866 characters left out" in page


def test_it_tells_the_whole_story() -> None:
    page = as_html(reports.mixed())
    for said in (
        "1 of 5 tables differs, 1 could not be verified",
        "What this report can and cannot see",
        "the bridge did not reach LSN 0/1925728 within 60 s",
        "start the bridge (cdc run)",
        "missed tombstone: the source deleted the row",
        "0/18FF2A0",
        "118204",
        "generated column: not published",
        "amount: trailing zeros are equal",
        "14 min 00 s, 1.1 MiB",
        "reconcile/20261121T140311Z-7f3a/keys/public.orders",
        "1,308 repaired and 2 still different",
        "7406172390811235124",
    ):
        assert said in page, said


def test_differing_characters_are_marked_and_blanks_seen() -> None:
    page = as_html(reports.mixed())
    assert "<mark>0</mark>" in page
    assert "<mark>\N{OPEN BOX}\N{OPEN BOX}</mark>" in page


def test_tables_that_differ_are_open_and_equal_ones_folded() -> None:
    found = re.findall(r'<details id="t(\d)" class="table (\w+)"( open)?', as_html(reports.mixed()))
    assert [(kind, bool(unfolded)) for _, kind, unfolded in found] == [
        ("different", True),
        ("not_verified", True),
        ("identical", False),
        ("identical", False),
        ("identical", False),
    ]


def test_many_bars_become_few() -> None:
    chart = columns_chart("Key bucket", "", [Bar(label=str(n), count=n) for n in range(4_096)])
    assert chart.count("<rect") <= 48
    assert "most in 3956 \N{EN DASH} 4041 (343,871), 8,386,560 in all" in chart
    assert columns_chart("x", "", []) == ""
    assert "most in a (0), 0 in all" in columns_chart("x", "", [Bar(label="a", count=0)])


def test_almost_all_is_not_all() -> None:
    assert "over 99.99 %" in class_strip(999_999, {"value_mismatch": 1})
    assert "100 %" in class_strip(5, {"value_mismatch": 0})
    assert "under 0.01 %" in class_strip(1, {"value_mismatch": 999_999})


def test_text_cannot_become_markup() -> None:
    assert element("p", "<b>", element("i", "&"), None, [1, "x"], title='"', hidden=True, cls=None) == (
        '<p title="&quot;" hidden>&lt;b&gt;<i>&amp;</i>1x</p>'
    )
