"""Health without servers: when two keys are one, what is a finding, and what the page shows."""

from __future__ import annotations

import pytest

from cdc.spark.health.findings import findings
from cdc.spark.health.key_form import logical_form
from cdc.spark.health.model import (
    DistributionBar,
    HealthFinding,
    HealthReport,
    HotKey,
    Oddities,
    PartitionHealth,
    SchemaUse,
    Settings,
    TopicHealth,
)
from cdc.spark.health.page import as_html
from cdc.spark.health.text import as_text

HOUR = 3_600_000
NOW = 1_800_000_000_000


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b'{"id":1}', b'{ "id" : 1 }'),
        (b'{"a":1,"b":2}', b'{"b":2,"a":1}'),
        (b'{"id":100}', b'{"id":1e2}'),
        (b'{"id":1}', b'{"id":1.0}'),
        (b'{"id":1}', b'{"id":"1"}'),
        (b'{"id":-0}', b'{"id":0.0}'),
        (b'{"t":"a/b"}', b'{"t":"a\\/b"}'),
        (b'{"t":"\xc3\xa9"}', b'{"t":"\\u00e9"}'),
        (b'{"id":123456789012345678901234567890123456789}', b'{"id":123456789012345678901234567890123456789.0}'),
    ],
)
def test_one_logical_key(one: bytes, other: bytes) -> None:
    assert logical_form(one) == logical_form(other) is not None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b'{"t":"1.0"}', b'{"t":"1"}'),
        (b'{"t":"01"}', b'{"t":1}'),
        (b'{"t":null}', b'{"t":"null"}'),
        (b'{"id":123456789012345678901234567890123456789}', b'{"id":123456789012345678901234567890123456780}'),
        (b'{"t":"a"}', b'{"t":"A"}'),
    ],
)
def test_two_logical_keys(one: bytes, other: bytes) -> None:
    assert logical_form(one) != logical_form(other)


def test_strings_of_a_numeric_column_are_numbers() -> None:
    assert logical_form(b'{"n":"1.00"}', {"n"}) == logical_form(b'{"n":"1"}', {"n"})
    assert logical_form(b'{"n":"NaN"}', {"n"}) == '{"n":"NaN"}'


@pytest.mark.parametrize("key", [b"", b"1", b"[1]", b'{"id":1', b"\xff", b'{"id":NaN}', b"[" * 100_000])
def test_no_object(key: bytes) -> None:
    assert logical_form(key) is None


def topic(**changes: object) -> TopicHealth:
    whole = TopicHealth(
        topic="shop.public.item",
        table="public.item",
        settings=Settings(
            cleanup_policy="compact",
            delete_retention_ms=24 * HOUR,
            max_compaction_lag_ms=10 * HOUR,
            min_compaction_lag_ms=0,
            segment_ms=HOUR,
            min_cleanable_dirty_ratio=0.5,
        ),
        partitions=(PartitionHealth(partition=0, start=0, end=10, records=10, bytes=1000, live_keys=10),),
        tombstone_ages=(DistributionBar(label="under 1 h", count=0),),
        expired_tombstones=0,
        oldest_tombstone_ms=None,
        superseded_since_ms=None,
        records_per_key=(DistributionBar(label="1", count=10),),
        hot_keys=(HotKey(key="<b>", partition=0, records=1, bytes=100),),
        aliases=(),
        split_examples=(),
        schemas=(SchemaUse(fingerprint="f", columns=2, records=10, live_keys=10, oldest_ms=NOW, newest_ms=NOW),),
        oldest_schema="f",
        oddities=Oddities(),
        seconds=1.0,
    )
    return whole.model_copy(update=changes)


def found(**changes: object) -> dict[str, str]:
    return {each.code: each.severity for each in findings(topic(**changes), NOW)}


def test_nothing_is_found_in_a_whole_topic() -> None:
    assert found() == {}


@pytest.mark.parametrize(
    ("since", "expected"), [(NOW - 11 * HOUR, {}), (NOW - 11 * HOUR - 1, {"compaction_overdue": "warning"})]
)
def test_a_superseded_record_may_stay_for_a_while(since: int, expected: dict[str, str]) -> None:
    assert found(superseded_since_ms=since) == expected


@pytest.mark.parametrize(("age", "severity"), [(25, "note"), (36, "warning")])
def test_tombstones_that_are_older_than_they_should_be(age: int, severity: str) -> None:
    seen = found(expired_tombstones=3, oldest_tombstone_ms=NOW - age * HOUR)
    assert seen == {"tombstones_expired": severity}


def test_uneven_partitions_and_a_hot_key() -> None:
    sizes = (100 * 1024 * 1024, 1, 1, 1)
    partitions = tuple(
        PartitionHealth(partition=number, start=0, end=1, records=5000, bytes=size, live_keys=1)
        for number, size in enumerate(sizes)
    )
    hot = HotKey(key='{"id":1}', partition=0, records=9000, bytes=1)
    assert found(partitions=partitions, hot_keys=(hot,)) == {"partition_skew": "warning", "hot_key": "note"}


def test_the_worst_comes_first_and_says_what_to_do() -> None:
    seen = findings(
        topic(oddities=Oddities(without_header=1, split_keys=2), split_examples=("k",), superseded_since_ms=0), NOW
    )
    assert [each.severity for each in seen] == ["error", "error", "warning"]
    assert all(each.remedy for each in seen)


def test_texts_and_page_hold_what_was_found_and_run_nothing() -> None:
    finding = HealthFinding(severity="error", code="x", text="a <script> in a key", remedy="stop & look")
    report = HealthReport(
        measured_ms=NOW, kafka="k:9092", spark_version="4", healthy=False, topics=(topic(findings=(finding,)),)
    )
    page = as_html(report)
    assert "a &lt;script&gt; in a key" in page
    assert "stop &amp; look" in page
    assert "&lt;b&gt;" in page
    assert "<script" not in page
    assert "prefers-color-scheme: dark" in page
    text = as_text(report)
    assert "ERROR   a <script> in a key" in text
    assert "what to do: stop & look" in text
    assert text.endswith("1 topic at k:9092: not healthy: 1 error\n")
