"""The metrics of a process that the dashboard shows, read in the process itself or from its port."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from prometheus_client import CollectorRegistry

Sample: TypeAlias = tuple[str, Mapping[str, str], float]
"""Name, labels, value."""

_BY_TABLE: Final[Mapping[str, str]] = {
    "cdc_bridge_changes_total": "changes",
    "cdc_sink_rows_applied_total": "applied",
    "cdc_feed_rows_applied_total": "fed",
    "cdc_serve_rows": "rows",
}
_SINGLE: Final = (
    "cdc_bridge_publish_lag_seconds",
    "cdc_bridge_restarts_total",
    "cdc_feed_lag_seconds",
    "cdc_serve_age_seconds",
    "cdc_serve_requests_total",
    "cdc_serve_watches",
    "cdc_sink_restarts_total",
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
)
_STATE: Final = "cdc_serve_table_state"
_WANTED: Final = frozenset({*_BY_TABLE, *_SINGLE, _STATE})

_LINE: Final = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPES: Final[Mapping[str, str]] = {r"\n": "\n", r"\"": '"', r"\\": "\\"}
_PATIENCE_S: Final = 1.0
_LARGEST: Final = 8 * 1024 * 1024
"""How much of an answer is read: another program may have the port, and send without end."""


class Numbers(NamedTuple):
    """The numbers of one process, or of several together.

    Attributes:
        by_table: counters by what they count (changes, applied, fed, rows) and by table.
        single: values by metric name; for a metric with labels, the sum.
        states: the states of a view's tables.
    """

    by_table: Mapping[str, Mapping[str, float]]
    single: Mapping[str, float]
    states: Mapping[str, str]


def of_registry(registry: CollectorRegistry) -> Iterator[Sample]:
    """Yields the samples of this process."""
    for family in registry.restricted_registry(_WANTED).collect():
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value


def of_text(text: str) -> Iterator[Sample]:
    """Yields the samples in a text that is written for Prometheus."""
    for line in text.splitlines():
        found = _LINE.match(line)
        if found is None or found[1] not in _WANTED:
            continue
        labels = {name: re.sub(r"\\.", _unescaped, value) for name, value in _LABEL.findall(found[2] or "")}
        try:
            yield found[1], labels, float(found[3])
        except ValueError:
            continue


def of_url(url: str) -> list[Sample]:
    """Returns the samples of another process.

    Raises:
        OSError: the process does not answer, or refuses.
    """
    with urllib.request.urlopen(url, timeout=_PATIENCE_S) as answer:
        return list(of_text(answer.read(_LARGEST).decode("utf-8", "replace")))


def numbers(samples: Iterable[Sample]) -> Numbers:
    """Sort samples by what they count."""
    by_table: dict[str, dict[str, float]] = {}
    single: dict[str, float] = {}
    states: dict[str, str] = {}
    for name, labels, value in samples:
        table = labels.get("table", "")
        if what := _BY_TABLE.get(name):
            by_table.setdefault(what, {})[table] = value
        elif name == _STATE:
            if value:
                states[table] = labels.get(_STATE, "")
        elif name in _SINGLE:
            single[name] = single.get(name, 0.0) + value
    return Numbers(by_table, single, states)


def _unescaped(found: re.Match[str]) -> str:
    return _ESCAPES.get(found[0], found[0])
