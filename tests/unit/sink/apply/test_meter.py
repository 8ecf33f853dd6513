"""What the sink says of itself: the moment at which the last table has become exact."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from cdc.base.errors import TopicUnavailable
from cdc.base.lsn import LSN
from cdc.base.waits import Waits
from cdc.contract.ports import ReplicaTable
from cdc.contract.record import Progress, SourceIdentity
from cdc.sink.apply import run
from cdc.sink.apply.run import SinkMeter
from cdc.sink.apply.session import CutReport


def report(*states: str) -> CutReport:
    progress = Progress(LSN(7), None, 1, SourceIdentity("1", 1, 1))
    tables = {
        str(number): ReplicaTable(str(number), f"public.t{number}", state, None, 0)
        for number, state in enumerate(states)
    }
    return CutReport(progress, True, {}, tables, {})


def test_it_is_said_once_when_all_tables_are_exact_with_the_time_it_took() -> None:
    meter = SinkMeter()
    with capture_logs() as said:
        meter.cut(report())
        meter.cut(report("exact", "loading"))
        assert not said
        for _ in range(3):
            meter.cut(report("exact", "exact"))
    (line,) = said
    assert line["event"] == "all 2 tables are exact"
    assert line["lsn"] == "0/7"
    assert line["took_s"] >= 0


def test_a_moment_in_between_is_not_told_of() -> None:
    meter = SinkMeter()
    with capture_logs() as said:
        for state in ("exact", "catching_up", "exact"):
            meter.cut(report(state))
    assert [each["event"] for each in said] == ["the table is exact"]


def value(meter: SinkMeter, name: str, **labels: str) -> float | None:
    return meter.metrics.registry.get_sample_value(name, labels)


def test_rows_are_counted_by_the_name_that_their_table_has_in_the_replica() -> None:
    meter = SinkMeter()
    for _ in range(2):
        meter.cut(report("exact")._replace(rows={"0": 3, "unknown": 1}))
    assert meter.rows == 8
    rows = [value(meter, "cdc_sink_rows_applied_total", table=table) for table in ("public.t0", "unknown")]
    assert rows == [6, 2]
    assert value(meter, "cdc_sink_table_state", table="public.t0", cdc_sink_table_state="exact") == 1


def test_the_lag_is_the_age_of_a_transaction_that_is_new_and_a_quiet_source_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "time", SimpleNamespace(time=lambda: 1_000.0, monotonic=lambda: 5.0))
    meter = SinkMeter()
    for commit_ts, lag_s in ((990_000_000, 10.0), (990_000_000, 0.0), (1_001_000_000, 0.0), (998_500_000, 1.5)):
        cut = report("exact")
        meter.cut(cut._replace(progress=replace(cut.progress, commit_ts=commit_ts)))
        assert value(meter, "cdc_sink_lag_seconds") == lag_s


def test_it_is_ready_after_a_cut_until_an_error_or_a_wait() -> None:
    meter = SinkMeter()
    assert meter.ready() == (False, {"cut_lsn": None, "waits": []})
    meter.cut(report("exact"))
    assert meter.ready() == (True, {"cut_lsn": "0/7", "waits": []})
    meter.retried(TopicUnavailable("no broker answers", remedy="wait"))
    assert value(meter, "cdc_sink_restarts_total", error="TopicUnavailable") == 1
    assert meter.ready() == (
        False,
        {"cut_lsn": "0/7", "error": "no broker answers", "remedy": "wait", "waits": []},
    )
    meter.cut(report("exact"))
    assert meter.ready()[0]


def test_while_it_waits_for_a_server_it_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    waits = Waits(lambda: now[0])
    monkeypatch.setattr(run, "WAITS", waits)
    meter = SinkMeter()
    for _ in range(2):  # the second one without a new transaction
        meter.cut(report("exact"))
    waits.begin("replica", "the replica", "look")
    now[0] = 9.0
    is_ready, facts = meter.ready()
    assert not is_ready
    assert value(meter, "cdc_sink_lag_seconds") == 9.0
    assert value(meter, "cdc_sink_waiting_seconds", server="replica") == 9.0
    assert facts["waits"] == waits.document() != []


def test_a_table_whose_rows_wait_for_a_lock_says_how_long() -> None:
    meter = SinkMeter()
    meter.waits("public.t", 2.5)
    assert value(meter, "cdc_sink_lock_wait_seconds", table="public.t") == 2.5


def test_only_a_true_cut_says_where_the_replica_stands() -> None:
    meter = SinkMeter()
    meter.cut(report("catching_up")._replace(is_true=False))
    assert meter.ready()[1]["cut_lsn"] is None
    assert value(meter, "cdc_sink_catching_up") == 1
    meter.cut(report("exact"))
    assert meter.ready()[1]["cut_lsn"] == "0/7"
    assert value(meter, "cdc_sink_catching_up") == 0
    assert value(meter, "cdc_sink_cut_lsn") == 7


def test_a_long_time_in_between_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(run, "time", SimpleNamespace(time=lambda: 0.0, monotonic=lambda: now[0]))
    meter = SinkMeter()
    with capture_logs() as said:
        for state, at_s in (("exact", 103.0), ("loading", 110.0), ("loading", 111.0), ("exact", 112.5)):
            now[0] = at_s
            meter.cut(report(state))
    assert [each["took_s"] for each in said] == [3.0, 2.5]
