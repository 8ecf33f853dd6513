"""Whether a view can be answered from, before and after its feed has shown something."""

from __future__ import annotations

import pytest

from cdc.base.web.tokens import Access
from cdc.views.query.readiness import is_ready, loading, missing, state_of
from cdc.views.table.facts import Facts, TableFacts, ViewFacts

SOURCE = "7711203908938897441,1,16394"


def facts(view: ViewFacts | None, *tables: TableFacts) -> Facts:
    return Facts(version=1, view=view, tables={each.name: each for each in tables}, offsets={})


def table(generation: int) -> TableFacts:
    return TableFacts(
        name="public.t",
        topic="app.public.t",
        number=1,
        generation=generation,
        state="exact" if generation else "loading",
    )


def view(feed: str, source: str = "") -> ViewFacts:
    return ViewFacts(name="app", feed=feed, store_id="x", source=source)  # type: ignore[arg-type]  # a Literal, given as text


@pytest.mark.parametrize(
    "found",
    [
        facts(None),
        facts(view("deployment")),
        facts(view("deployment"), table(0)),
        facts(view("deployment", SOURCE), table(0)),
        facts(view("topics")),
        facts(view("topics"), table(0)),
    ],
)
def test_a_view_that_does_not_know_its_tables_or_has_no_rows_of_one_is_not_ready(found: Facts) -> None:
    assert not is_ready(found)
    assert state_of([found], 0) == "loading"
    assert missing([found], "public.t", Access("", ["*"], metrics=True), 0).kind == "not-ready"


@pytest.mark.parametrize("found", [facts(view("deployment", SOURCE), table(1)), facts(view("topics"), table(1))])
def test_a_loaded_view_is_ready(found: Facts) -> None:
    assert is_ready(found)
    assert state_of([found], 0) == "exact"
    assert missing([found], "public.other", Access("", ["*"], metrics=True), 0).kind == "unknown-table"


def test_a_deployment_without_tables_is_ready_once_it_has_shown_that() -> None:
    assert is_ready(facts(view("deployment", SOURCE)))


@pytest.mark.parametrize(
    ("offsets", "left_s"),
    [((), None), ((50,), 150.0), ((50, 0), 150.0), ((50, 50), 50.0), ((100, 100, 7), 0.0)],
)
def test_a_topic_that_gets_partitions_during_the_load_is_loading(
    offsets: tuple[int, ...], left_s: float | None
) -> None:
    """Its new partitions have targets before they have offsets; /ready answered with an internal error meanwhile."""
    begun = ViewFacts(
        name="app", feed="deployment", store_id="x", source=SOURCE, began_at=1, rows=9, targets={"t": (100, 100)}
    )
    found = Facts(version=1, view=begun, tables={}, offsets={"t": offsets} if offsets else {})
    said = loading(found, now=51)
    assert said["rows"] == 9
    assert said.get("eta_s") == left_s
