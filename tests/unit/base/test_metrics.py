"""Metrics: each process has its own, and the names hold together."""

from __future__ import annotations

import re

import pytest
from prometheus_client.exposition import generate_latest

from cdc.base.metrics import TABLE_STATES, BridgeMetrics, ServeMetrics, ServeNumbers, SinkMetrics, SlotMetrics

SERVE = ServeMetrics(lambda: ServeNumbers({}, {}, 0, 0), lambda: None)


def test_two_of_a_kind_share_nothing() -> None:
    one, other = BridgeMetrics(), BridgeMetrics()
    one.changes.labels("public.orders").inc()
    assert 'cdc_bridge_changes_total{table="public.orders"} 1.0' in generate_latest(one.registry).decode()
    assert 'table="public.orders"' not in generate_latest(other.registry).decode()


@pytest.mark.parametrize(
    ("metrics", "prefix"), [(BridgeMetrics(), "cdc_bridge_"), (SinkMetrics(), "cdc_sink_"), (SERVE, "cdc_serve_")]
)
def test_names_say_the_process_and_all_have_help(
    metrics: BridgeMetrics | SinkMetrics | ServeMetrics, prefix: str
) -> None:
    for family in metrics.registry.collect():
        assert re.match(rf"{prefix}|process_", family.name), family.name
        assert family.documentation.endswith("."), family.name


def test_states_are_one_hot() -> None:
    sink, bridge = SinkMetrics(), BridgeMetrics()
    for state in TABLE_STATES:
        sink.table_state.labels("public.orders").state(state)
    SlotMetrics(bridge.registry).wal_status.state("lost")
    said = generate_latest(sink.registry).decode()
    assert 'cdc_sink_table_state{cdc_sink_table_state="stopped",table="public.orders"} 1.0' in said
    assert 'cdc_sink_table_state{cdc_sink_table_state="loading",table="public.orders"} 0.0' in said


def test_both_outcomes_are_there_before_the_first_kafka_transaction() -> None:
    said = generate_latest(BridgeMetrics().registry).decode()
    assert 'cdc_bridge_kafka_transactions_total{outcome="aborted"} 0.0' in said
    assert "_created" not in said
