"""Counts that several processes share."""

from __future__ import annotations

from prometheus_client.exposition import generate_latest

from cdc.base.metrics import ServedTable, ServedView, ServeMetrics
from cdc.views.http.tally import Tally, shared_cells


def test_each_process_shows_what_all_of_them_counted() -> None:
    shared = shared_cells(2)
    one, other = Tally(shared, 0), Tally(shared, 1)
    one.answered("row", 200, 0.0004)
    other.answered("row", 304, 0.003)
    other.answered("rows", 503, 60.0)
    other.watches(1)
    assert one.numbers() == other.numbers()
    said = generate_latest(ServeMetrics(one.numbers, lambda: None).registry).decode()
    assert 'cdc_serve_requests_total{page="row",status="2xx"} 1.0' in said
    assert 'cdc_serve_requests_total{page="row",status="3xx"} 1.0' in said
    assert 'cdc_serve_requests_total{page="rows",status="5xx"} 1.0' in said
    assert 'cdc_serve_request_seconds_bucket{le="0.0005",page="row"} 1.0' in said
    assert 'cdc_serve_request_seconds_bucket{le="+Inf",page="row"} 2.0' in said
    assert 'cdc_serve_request_seconds_bucket{le="10.0",page="rows"} 0.0' in said
    assert "cdc_serve_watches 1.0" in said
    assert "\ncdc_serve_lsn " not in said


def test_a_process_goes_on_with_the_counts_of_the_one_before_it_and_not_with_its_watches() -> None:
    shared = shared_cells(1)
    first = Tally(shared)
    first.answered("row", 200, 0.1)
    first.watches(3)
    numbers = Tally(shared).numbers()
    assert (numbers.requests["row", "2xx"], numbers.watches) == (1, 0)


def test_the_view_is_shown() -> None:
    view = ServedView(17, 1.5, [ServedTable("public.a", "suspect", 3, 1)])
    said = generate_latest(ServeMetrics(Tally(shared_cells(1)).numbers, lambda: view).registry).decode()
    assert 'cdc_serve_table_state{cdc_serve_table_state="suspect",table="public.a"} 1.0' in said
    assert 'cdc_serve_rows{table="public.a"} 3.0' in said
    assert "cdc_serve_age_seconds 1.5" in said
