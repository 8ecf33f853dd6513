"""Every metric of this project, as its registries have it."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from cdc.base import metrics

_KINDS = {"counter": "counter", "gauge": "gauge", "stateset": "state", "histogram": "histogram"}
_SERIES = {"counter": ("_total",), "gauge": ("",), "state": ("",), "histogram": ("_bucket", "_count", "_sum")}


def known_metrics() -> dict[str, str]:
    """Kind by name: counter, gauge, state or histogram."""
    served = metrics.ServeMetrics(lambda: metrics.ServeNumbers({}, {}, 0, 0), lambda: None)
    makers = (metrics.BridgeMetrics, metrics.SinkMetrics, metrics.FeedMetrics)
    slot = CollectorRegistry()
    metrics.SlotMetrics(slot)
    registries = (*(make().registry for make in makers), slot, served.registry)
    found = [metric for registry in registries for metric in registry.collect()]
    return {each.name: _KINDS[each.type] for each in found if each.name.startswith("cdc_")}


@functools.cache
def labels_by_series() -> Mapping[str, set[str]]:
    """The labels of each series, as a process exposes it."""
    numbers = metrics.ServeNumbers({("row", "2xx"): 1.0}, {"row": ([("1", 1.0), ("+Inf", 1.0)], 1.0)}, 0, 0)
    view = metrics.ServedView(1, 0.0, [metrics.ServedTable("t", "exact", 1, 0)])
    made: list[metrics.BridgeMetrics | metrics.SinkMetrics | metrics.FeedMetrics] = [
        metrics.BridgeMetrics(),
        metrics.SinkMetrics(),
        metrics.FeedMetrics(),
    ]
    for metric in (each for one in made for each in vars(one).values()):
        if names := getattr(metric, "_labelnames", ()):
            metric.labels(*names)  # until then, there is no series
    slot = CollectorRegistry()
    metrics.SlotMetrics(slot)
    registries = (*(each.registry for each in made), slot, metrics.ServeMetrics(lambda: numbers, lambda: view).registry)
    found: dict[str, set[str]] = {}
    for registry in registries:
        for family in text_string_to_metric_families(generate_latest(registry).decode()):
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
    return found


def known_series() -> set[str]:
    """Names as Prometheus stores them: counters end with ``_total``, a histogram is three."""
    return {name + suffix for name, kind in known_metrics().items() for suffix in _SERIES[kind]}
