"""The page says what the commands say, and one row of it is all that is known of a table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cdc.base.errors import SourceUnavailable
from cdc.bridge.source.preflight import Finding
from cdc.ops.dashboard.alarms import Alarm, Since, alarms
from cdc.ops.dashboard.numbers import Numbers
from cdc.ops.dashboard.rates import Rates
from cdc.ops.dashboard.tables import LONGEST_LIST, tables
from cdc.ops.status.checkup import as_document as check_document
from cdc.ops.status.document import as_document
from cdc.ops.status.parts import Part
from cdc.sink.replica import TableStatus
from tests.support.topic_writer import FIRST_BACKFILL
from tests.unit.ops.status.test_document import HEALTHY, SINK, SLOT, SOURCE, TABLE

NOTHING = Numbers({}, {}, {})


def test_a_slot_that_lags_is_an_alarm_with_its_remedy() -> None:
    short = replace(SLOT, wal_status="unreserved", safe_wal_size=1_000)
    lagging = replace(HEALTHY, source=Part(replace(SOURCE, slot=short, limit_bytes=64 * 1024 * 1024)))
    [found] = alarms(as_document(lagging, now_us=0), None, None)
    assert (found.level, found.part, found.told_by) == ("error", "source", "cdc status")
    assert "slot cdc_shop is about to be lost" in found.text
    assert "ALTER SYSTEM SET max_slot_wal_keep_size = '256MB'" in found.remedy


def test_every_problem_of_the_status_is_an_alarm_in_the_same_words() -> None:
    stopped = TableStatus("shop.public.s", "public.s", "stopped", 1, "value out of range\n  remedy: alter it")
    sick = replace(
        HEALTHY,
        source=Part(None, SourceUnavailable("gone", remedy="try again")),
        sink=Part(replace(SINK, tables=(stopped,))),
    )
    document = as_document(sick, now_us=0)
    assert [(each.part, each.text, each.remedy) for each in alarms(document, None, None)] == [
        (each["part"], each["text"], each["remedy"]) for each in document["problems"]
    ]
    assert len(document["problems"]) == 2


def test_findings_of_the_check_follow_errors_first_and_nothing_is_said_twice() -> None:
    down = as_document(replace(HEALTHY, source=Part(None, SourceUnavailable("gone", remedy="try again"))), now_us=0)
    check = check_document(
        {
            "source": [
                Finding("FAIL", "connection", "gone", "start it"),
                Finding("WARN", "server", "old", "upgrade"),
                Finding("OK", "rights", "enough"),
            ],
            "kafka": [Finding("FAIL", "topic shop.a", "has two partitions", "make it anew")],
        }
    )
    found = alarms(down, check, None)
    assert [(each.level, each.text) for each in found] == [
        ("error", "gone"),
        ("error", "topic shop.a: has two partitions"),
        ("warning", "server: old"),
    ]


def test_topics_raise_alarms_where_they_lose_rows_and_only_there() -> None:
    findings = [
        {"level": "warning", "code": "one_replica", "text": "one copy", "remedy": "", "by": "cdc topics lint"},
        {"level": "error", "code": "delete", "text": "policy", "remedy": "alter", "by": "cdc topics lint"},
    ]
    found = alarms(as_document(HEALTHY, now_us=0), None, {"topics": [{"topic": "shop.a", "findings": findings}]})
    assert found == [Alarm("error", "topics", "shop.a: policy", "alter", "cdc topics lint")]


def test_an_alarm_keeps_the_moment_when_it_came() -> None:
    since, alarm = Since(), Alarm("error", "source", "gone", "", "cdc status")
    assert since.document([alarm], 10.0)[0]["since"] == 10.0
    assert since.document([alarm._replace(remedy="start it")], 20.0)[0]["since"] == 10.0
    assert since.document([], 30.0) == []
    assert since.document([alarm], 40.0)[0]["since"] == 40.0


def test_an_alarm_whose_figures_change_is_the_same_one() -> None:
    since, alarm = Since(), Alarm("error", "bridge", "the bridge has waited 8 s for Kafka", "", "cdc status")
    before = since.document([alarm], 10.0)[0]
    now = since.document([alarm._replace(text="the bridge has waited 1,012.5 s for Kafka")], 20.0)[0]
    assert (now["since"], now["key"]) == (10.0, before["key"])


def test_commands_name_the_file_and_prose_is_no_command() -> None:
    down = replace(HEALTHY, sink=Part(replace(SINK, running=False)))
    found = Since().document(alarms(as_document(down, now_us=0), None, None, Path("/etc/shop.yaml")), 0.0)
    assert [(each["remedy"], each["command"]) for each in found] == [
        ("start the sink: cdc sink -c /etc/shop.yaml", "cdc sink -c /etc/shop.yaml")
    ]


def test_a_table_is_one_row_whoever_tells_of_it() -> None:
    status = as_document(replace(HEALTHY, backfills=(replace(FIRST_BACKFILL, table="public.t"),)), now_us=0)
    seen = Numbers({"changes": {"public.t": 5}, "rows": {"public.t": 9}}, {}, {"public.t": "exact"})
    found = tables(status, seen, Rates(), lambda table: f"shop.{table}")
    assert found["count"] == 1
    [row] = found["rows"]
    assert (row["topic"], row["changes"], row["rows"], row["view"]) == ("shop.public.t", 5, 9, "exact")
    assert row["replica"]["state"] == "exact"
    assert row["backfill"]["table"] == "public.t"


def test_of_thousands_of_tables_those_that_want_attention_come_first() -> None:
    many = tuple(replace(TABLE, topic=f"shop.public.t{i}", replica_table=f"public.t{i}") for i in range(2_000))
    stopped = replace(TABLE, topic="shop.public.zz", replica_table="public.zz", state="stopped")
    status = as_document(replace(HEALTHY, sink=Part(replace(SINK, tables=(*many, stopped)))), now_us=0)
    found = tables(status, NOTHING, Rates(), lambda table: table)
    assert (found["count"], len(found["rows"])) == (2_001, LONGEST_LIST)
    assert found["rows"][0]["table"] == "public.zz"
