"""Alert rules and dashboard name metrics that exist, and the page explains each alert as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import pytest
import yaml

from cdc.base import metrics
from tests.architecture.pages import page
from tests.architecture.tree import ROOT
from tests.support.metric_names import known_metrics, known_series, labels_by_series

PROMETHEUS: Final = ROOT / "config" / "prometheus"
RULES: Final[list[dict[str, Any]]] = [
    rule for group in yaml.safe_load((PROMETHEUS / "rules.yml").read_text())["groups"] for rule in group["rules"]
]
DASHBOARD: Final[dict[str, Any]] = json.loads((ROOT / "config" / "grafana" / "cdc.json").read_text())
PANELS: Final[list[dict[str, Any]]] = [each for each in DASHBOARD["panels"] if each["type"] != "row"]
STATES: Final = {
    "cdc_slot_wal_status": metrics.WAL_STATUSES,
    "cdc_bridge_backfill_state": metrics.BACKFILL_STATES,
    "cdc_sink_table_state": metrics.TABLE_STATES,
    "cdc_serve_table_state": metrics.VIEW_STATES,
    "outcome": metrics.KAFKA_TRANSACTION_OUTCOMES,
}
OTHERS: Final = {"up", "process_resident_memory_bytes", "process_cpu_seconds_total"}
"""Prometheus's own, and what its client library says of a process."""

TARGET_LABELS: Final = {"bridge", "job"}
"""Given by Prometheus."""

_WORDS: Final = {"and", "or", "unless", "on", "by", "without", "ignoring"}


def expressions() -> Iterator[tuple[str, str]]:
    """Of rules and panels, with the name of each."""
    yield from ((rule["alert"], rule["expr"]) for rule in RULES)
    yield from ((panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"])


def series_of(expression: str) -> set[str]:
    """The series that an expression names: what is neither a word of the language, a label nor a function."""
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", expression)
    bare = re.sub(r"\b(by|on|without|ignoring)\s*\([^)]*\)", r"\1 ", bare)
    return set(re.findall(r"\b[a-z_]\w*\b(?!\s*\()", bare)) - _WORDS - {"sum", "max", "min"}


def test_the_reader_of_expressions_finds_names() -> None:
    expression = 'sum by (a, b) (rate(x_total{y="1"}[5m])) / max by (c) (z) > 3 and on (a) w == 0'
    assert series_of(expression) == {"x_total", "z", "w"}


@pytest.mark.parametrize(("name", "expression"), list(expressions()))
def test_every_expression_names_metrics_that_exist(name: str, expression: str) -> None:
    named = series_of(expression)
    assert named
    assert named <= known_series() | OTHERS, name


@pytest.mark.parametrize(("name", "expression"), list(expressions()))
def test_every_state_that_it_names_exists(name: str, expression: str) -> None:
    for label, states in re.findall(r'(\w+)=~?"([^"]*)"', expression):
        if label in STATES:
            assert set(states.split("|")) <= set(STATES[label]), name


@pytest.mark.parametrize(("name", "expression"), list(expressions()))
def test_every_label_that_it_names_exists(name: str, expression: str) -> None:
    """What a rule filters by has to be there, or it never fires."""
    for series, matchers in re.findall(r"(\w+)\{([^}]*)\}", expression):
        named = set(re.findall(r"(\w+)=~?", matchers)) - TARGET_LABELS
        assert named <= labels_by_series().get(series, set()), name


def test_the_dashboard_shows_every_metric() -> None:
    shown = set().union(*(series_of(target["expr"]) for panel in PANELS for target in panel["targets"]))
    shown = {re.sub(r"_(total|bucket)$", "", name) for name in shown}
    assert set(known_metrics()) - shown == set()


def test_no_panel_lies_on_another() -> None:
    places = [each["gridPos"] for each in DASHBOARD["panels"]]
    cells = [(x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({each["id"] for each in DASHBOARD["panels"]}) == len(places)


def test_every_panel_says_what_it_shows() -> None:
    assert [each["title"] for each in PANELS if not each["description"]] == []


def test_every_alert_is_explained_as_it_is() -> None:
    explained = [
        (name.strip("`"), severity, after) for name, severity, after, *_ in page("docs/monitoring.md").rows("alert")
    ]
    assert explained == [
        (rule["alert"], rule["labels"]["severity"], "at once" if rule["for"] == "0m" else rule["for"]) for rule in RULES
    ]


def test_every_job_is_scraped_in_the_example() -> None:
    scraped = yaml.safe_load((PROMETHEUS / "scrape.yml").read_text())["scrape_configs"]
    named = {job for _, expression in expressions() for job in re.findall(r'job="([^"]+)"', expression)}
    assert named | {"cdc-dashboard"} == {each["job_name"] for each in scraped}
    labelled = {
        each["job_name"] for each in scraped for target in each["static_configs"] if "bridge" in target["labels"]
    }
    assert labelled == named, "what cdc dashboard tells has the label already"
