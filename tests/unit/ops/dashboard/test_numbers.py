"""What processes count, read from within and from ``/metrics``, and what that is in a second."""

from __future__ import annotations

from prometheus_client.exposition import generate_latest

from cdc.base.metrics import BridgeMetrics, SinkMetrics
from cdc.ops.dashboard.numbers import numbers, of_registry, of_text
from cdc.ops.dashboard.rates import Rates

NAMES = ("public.orders", 'public."a\\b', "public.line\nbreak", "public.<script>")


def test_both_ways_to_read_agree_whatever_a_table_is_called() -> None:
    metrics = BridgeMetrics()
    for count, name in enumerate(NAMES, 1):
        metrics.changes.labels(name).inc(count)
    metrics.restarts.labels("SourceUnavailable").inc(2)
    metrics.restarts.labels("TopicUnavailable").inc()
    inside = numbers(of_registry(metrics.registry))
    outside = numbers(of_text(generate_latest(metrics.registry).decode()))
    assert inside.by_table == outside.by_table == {"changes": dict(zip(NAMES, (1, 2, 3, 4), strict=True))}
    assert inside.single["cdc_bridge_restarts_total"] == outside.single["cdc_bridge_restarts_total"] == 3


def test_of_the_sink_and_of_a_view() -> None:
    metrics = SinkMetrics()
    metrics.rows_applied.labels("public.t").inc(5)
    assert numbers(of_registry(metrics.registry)).by_table["applied"] == {"public.t": 5}
    text = (
        'cdc_serve_table_state{cdc_serve_table_state="exact",table="public.t"} 0.0\n'
        'cdc_serve_table_state{cdc_serve_table_state="loading",table="public.t"} 1.0\n'
        'cdc_serve_rows{table="public.t"} 7.0\ncdc_serve_age_seconds nan\nnonsense\ncdc_serve_watches x\n'
    )
    found = numbers(of_text(text))
    assert found.states == {"public.t": "loading"}
    assert found.by_table["rows"] == {"public.t": 7}
    assert "cdc_serve_watches" not in found.single


def test_a_rate_is_of_the_time_that_passed() -> None:
    rates = Rates()
    rates.look(10.0)
    assert rates.of("a", 100) is None
    rates.look(14.0)
    assert rates.of("a", 300) == 50
    assert rates.of_each("b", {"t": 1}) == {}
    rates.look(15.0)
    assert rates.of("a", None) is None
    rates.look(16.0)
    assert rates.of("a", 900) is None  # it was not counted at the look before


def test_a_counter_that_begins_anew_has_no_rate() -> None:
    rates = Rates()
    rates.look(1.0)
    rates.of("a", 100)
    rates.look(2.0)
    assert rates.of("a", 5) is None
    rates.look(3.0)
    assert rates.of("a", 8) == 3
