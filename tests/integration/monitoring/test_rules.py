"""Prometheus takes the rules, and each alert comes when it should and is silent when all is well."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.architecture.test_monitoring import PANELS, PROMETHEUS, RULES
from tests.support.promtool import promtool

RULES_FILE: Final = PROMETHEUS / "rules.yml"
HEALTHY: Final = (
    'up{job="cdc-bridge"}',
    'up{job="cdc-sink"}',
    'up{job="cdc-serve"}',
    "cdc_bridge_streaming",
    "cdc_slot_active",
)
QUIET: Final = (
    "cdc_bridge_publish_lag_seconds",
    'cdc_bridge_waiting_seconds{server="kafka"}',
    'cdc_sink_waiting_seconds{server="replica"}',
    'cdc_feed_waiting_seconds{server="replica"}',
    "cdc_slot_invalidated",
    'cdc_slot_wal_status{cdc_slot_wal_status="unreserved"}',
    "cdc_slot_retained_bytes",
    'cdc_sink_table_state{table="t",cdc_sink_table_state="stopped"}',
    'cdc_sink_table_state{table="t",cdc_sink_table_state="excepted"}',
    "cdc_sink_lag_seconds",
    "cdc_sink_catching_up",
    'cdc_sink_lock_wait_seconds{table="t"}',
    "cdc_serve_age_seconds",
    'cdc_serve_unreadable_records{table="t"}',
    "cdc_feed_lag_seconds",
)
GROWING: Final = ('cdc_bridge_changes_total{table="t"}', "cdc_sink_cut_lsn", 'cdc_serve_requests_total{status="2xx"}')

BROKEN: Final[dict[str, dict[str, str]]] = {
    "CdcBridgeDown": {'up{job="cdc-bridge"}': "0x400"},
    "CdcBridgeNotStreaming": {"cdc_bridge_streaming": "0x400"},
    "CdcBridgeBehind": {"cdc_bridge_publish_lag_seconds": "61x400"},
    "CdcBridgeRestarting": {'cdc_bridge_restarts_total{error="E"}': "0+1x400"},
    "CdcKafkaTransactionsAborted": {'cdc_bridge_kafka_transactions_total{outcome="aborted"}': "0+1x400"},
    "CdcRowsInQuarantine": {'cdc_bridge_quarantined_keys{table="t"}': "1x400"},
    "CdcWaitsForServer": {'cdc_sink_waiting_seconds{server="replica"}': "31x400"},
    "CdcSlotInvalidated": {"cdc_slot_invalidated": "1x400"},
    "CdcSlotAboutToBeLost": {'cdc_slot_wal_status{cdc_slot_wal_status="unreserved"}': "1x400"},
    "CdcSlotFillsUp": {'cdc_slot_seconds_to_full{job="cdc-sink"}': "3599x400"},
    "CdcSlotKeepsWal": {"cdc_slot_retained_bytes": f"{11 * 2**30}x400"},
    "CdcSlotUnread": {"cdc_slot_active": "0x400"},
    "CdcBackfillFailed": {'cdc_bridge_backfill_state{table="t",cdc_bridge_backfill_state="failed"}': "1x400"},
    "CdcSinkDown": {'up{job="cdc-sink"}': "0x400"},
    "CdcSinkBehind": {"cdc_sink_lag_seconds": "61x400"},
    "CdcSinkStandsStill": {"cdc_sink_cut_lsn": "7x400"},
    "CdcSinkCatchingUp": {"cdc_sink_catching_up": "1x400"},
    "CdcSinkTableStopped": {'cdc_sink_table_state{table="t",cdc_sink_table_state="stopped"}': "1x400"},
    "CdcReplicaLacksRows": {'cdc_sink_table_state{table="t",cdc_sink_table_state="excepted"}': "1x400"},
    "CdcSinkTableLoading": {'cdc_sink_table_state{table="t",cdc_sink_table_state="loading"}': "1x400"},
    "CdcSinkWaitsForLock": {'cdc_sink_lock_wait_seconds{table="t"}': "61x400"},
    "CdcSinkRestarting": {'cdc_sink_restarts_total{error="E"}': "0+1x400"},
    "CdcServeDown": {'up{job="cdc-serve"}': "0x400"},
    "CdcViewOld": {"cdc_serve_age_seconds": "61x400"},
    "CdcViewTableDoubtful": {'cdc_serve_table_state{table="t",cdc_serve_table_state="suspect"}': "1x400"},
    "CdcViewRecordsUnreadable": {'cdc_serve_unreadable_records{table="t"}': "1x400"},
    "CdcFeedBehind": {"cdc_feed_lag_seconds": "61x400"},
    "CdcFeedRestarting": {'cdc_feed_restarts_total{error="E"}': "0+1x400"},
    "CdcServeErrors": {'cdc_serve_requests_total{status="5xx"}': "0+5x400"},
    "CdcServeSlow": {
        'cdc_serve_request_seconds_bucket{page="row",le="1"}': "0+1x400",
        'cdc_serve_request_seconds_bucket{page="row",le="5"}': "0+60x400",
        'cdc_serve_request_seconds_bucket{page="row",le="+Inf"}': "0+60x400",
    },
    "CdcWatchesCut": {"cdc_serve_watches_cut_total": "0+1x400"},
}
"""The series that make just this alert fire, beside a deployment in which all is well."""


def labelled(series: str) -> str:
    """Of bridge ``shop``."""
    return re.sub(r"\{(.*)\}$", r'{\1,bridge="shop"}', series) if "{" in series else f'{series}{{bridge="shop"}}'


def deployment(broken: dict[str, str]) -> list[dict[str, str]]:
    """Series for seven hours, a minute apart: all is well but for what is broken."""
    values = {**dict.fromkeys(HEALTHY, "1x400"), **dict.fromkeys(QUIET, "0x400"), **dict.fromkeys(GROWING, "0+100x400")}
    return [{"series": labelled(name), "values": each} for name, each in {**values, **broken}.items()]


def firing(broken: dict[str, str], alerts: list[str], minute: int = 400) -> dict[str, Any]:
    """A test of promtool: at that minute, these alerts fire and no others."""
    return {
        "interval": "1m",
        "input_series": deployment(broken),
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": f"{minute}m",
                "exp_samples": [{"labels": f'{{alertname="{each}"}}', "value": 1} for each in sorted(alerts)],
            }
        ],
    }


def check(tmp_path: Path, *tests: dict[str, Any], every: str = "1m") -> None:
    """Have promtool run these tests, and look at the rules so often."""
    file = tmp_path / "tests.yml"
    file.write_text(
        yaml.safe_dump({"rule_files": [str(RULES_FILE)], "evaluation_interval": every, "tests": list(tests)})
    )
    promtool("test", "rules", file)


def test_prometheus_takes_the_rules() -> None:
    assert f"{len(RULES)} rules found" in promtool("check", "rules", RULES_FILE)


def test_prometheus_takes_the_example() -> None:
    promtool("check", "config", PROMETHEUS / "scrape.yml")


def test_every_alert_fires_by_its_cause_alone(tmp_path: Path) -> None:
    assert set(BROKEN) == {rule["alert"] for rule in RULES}
    # Seven hours, thirty times: looked at each minute, it would take twenty seconds of CPU.
    check(tmp_path, *(firing(series, [alert]) for alert, series in BROKEN.items()), every="20m")


def test_nothing_fires_when_all_is_well(tmp_path: Path) -> None:
    check(tmp_path, firing({}, []))


def test_nothing_fires_before_its_time(tmp_path: Path) -> None:
    """A restart, or a minute of lag, calls nobody."""
    patient = {rule["alert"] for rule in RULES if rule["for"] not in ("0m", "1m")}
    series = {name: f"_x100 {values}" for alert in patient for name, values in BROKEN[alert].items()}
    calm = {name: values for name, values in series.items() if name not in GROWING}
    check(tmp_path, firing(calm, [], minute=101))


def test_a_second_bridge_that_waits_is_no_alarm(tmp_path: Path) -> None:
    unknown = " ".join(["NaN"] * 20)  # for which promtool has no shorter form
    waiting = {
        'cdc_bridge_streaming{instance="b"}': "0x400",
        'cdc_slot_active{instance="b"}': unknown,
        'cdc_slot_invalidated{instance="b"}': unknown,
        'cdc_slot_safe_wal_bytes{instance="b"}': unknown,
        'up{job="cdc-bridge",instance="c"}': "0x400",
    }
    check(tmp_path, firing(waiting, [], minute=19))


@pytest.mark.parametrize(("safe", "alerts"), [("1000", ["CdcSlotAboutToBeLost"]), ("9000", []), ("+Inf", [])])
def test_a_slot_with_less_than_a_quarter_left_is_about_to_be_lost(tmp_path: Path, safe: str, alerts: list[str]) -> None:
    series = {
        "cdc_slot_safe_wal_bytes": f"{safe} {safe} {safe} {safe}",
        "cdc_slot_retained_bytes": "9000x9",
    }
    check(tmp_path, firing(series, alerts, minute=3))


def test_an_idle_source_is_no_sink_that_stands_still(tmp_path: Path) -> None:
    check(tmp_path, firing({"cdc_sink_cut_lsn": "7x400", 'cdc_bridge_changes_total{table="t"}': "9x400"}, []))


def test_a_summary_names_bridge_and_figure(tmp_path: Path) -> None:
    expected = {
        "eval_time": "10m",
        "alertname": "CdcBridgeBehind",
        "exp_alerts": [
            {
                "exp_labels": {"severity": "warning", "bridge": "shop"},
                "exp_annotations": {"summary": "Bridge shop publishes 1m 30s behind the source's commits."},
            }
        ],
    }
    series = deployment({"cdc_bridge_publish_lag_seconds": "90x400"})
    check(tmp_path, {"interval": "1m", "input_series": series, "alert_rule_test": [expected]})


def test_prometheus_takes_the_expressions_of_the_dashboard(tmp_path: Path) -> None:
    expressions = [target["expr"] for panel in PANELS for target in panel["targets"]]
    rules = [
        {"record": f"panel:{number}", "expr": expression.replace("$__rate_interval", "5m")}
        for number, expression in enumerate(expressions)
    ]
    file = tmp_path / "dashboard.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool("check", "rules", file)


def test_wal_that_fills_the_disk_is_told_by_the_sink_when_the_bridge_is_dead(tmp_path: Path) -> None:
    """Its metrics are gone with it, exactly when they are wanted."""
    gone = {f"cdc_slot_{each}": "_x400" for each in ("active", "invalidated", "retained_bytes")}
    sinks = {
        'cdc_slot_retained_bytes{job="cdc-sink"}': f"{11 * 2**30}x400",
        'cdc_slot_seconds_to_full{job="cdc-sink"}': "600x400",
        'cdc_slot_active{job="cdc-sink"}': "0x400",
    }
    dead = {'up{job="cdc-bridge"}': "0x400", "cdc_bridge_streaming": "_x400", **gone, **sinks}
    check(tmp_path, firing(dead, ["CdcBridgeDown", "CdcSlotFillsUp", "CdcSlotKeepsWal", "CdcSlotUnread"]))
