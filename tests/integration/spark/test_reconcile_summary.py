"""What a report says of findings: counts, the first keys of each class, charts. In one partition as in several."""

from __future__ import annotations

from typing import Any, Final

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdc.spark.reconcile import summary
from cdc.spark.reconcile.second_look import FINDINGS_DDL
from cdc.spark.report.model import Bar

HOUR_US: Final = 3_600_000_000
BEGAN_US: Final = 480_000 * HOUR_US
"""2024-10-04T00:00Z."""


def finding(number: int, difference: str, hours: int | None, cause: str = "", **fields: Any) -> dict[str, Any]:
    key = f'{{"id":{number}}}'
    return {
        "key": key,
        "key_bytes": key.encode(),
        "difference": difference,
        "source": {"id": str(number)},
        "other": {"id": str(number)},
        "partition": None if hours is None else number % 3,
        "commit_ts_us": None if hours is None else BEGAN_US + hours * HOUR_US,
        "cause": cause,
        "bucket": number % 2,
        "key_hash": number,
        "home_partition": number % 3,
    } | fields


FOUND: Final = (
    finding(1, "missing_in_topic", None, "missing record: nobody wrote it", other=None),
    finding(2, "missing_in_topic", 0, "missing record: nobody wrote it", other=None),
    finding(3, "extra_in_topic", 1, "missed tombstone: it was deleted", source=None),
    finding(4, "extra_in_topic", 1, "alias key: of another", source=None),
    finding(5, "extra_in_topic", 90, "alias key: of another", source=None),
    finding(6, "value_mismatch", 90, "stale version: of transaction 6", differing=["name"]),
    finding(7, "in_flight", 91),
    *(finding(number, "identical", 2) for number in range(10, 20)),
)


@pytest.fixture(params=[1, 4])
def findings(request: pytest.FixtureRequest, spark: SparkSession) -> DataFrame:
    frame = spark.createDataFrame([_row(each) for each in FOUND], FINDINGS_DDL)
    return frame.coalesce(1) if request.param == 1 else frame.repartition(request.param)


def _row(fields: dict[str, Any]) -> tuple[Any, ...]:
    names = [column.split(" ")[0] for column in FINDINGS_DDL.replace("map<string,string>", "map").split(", ")]
    return tuple(fields.get(name.strip()) for name in names)


def test_keys_are_counted_by_class(findings: DataFrame) -> None:
    assert summary.counted(findings) == {
        "missing_in_topic": 2, "extra_in_topic": 3, "value_mismatch": 1, "in_flight": 1,
        "identical": 10, "with_row": 4,
    }  # fmt: skip


def test_samples_are_the_first_of_each_class_and_of_the_gravest_first(findings: DataFrame) -> None:
    shown = [(each.difference, each.key) for each in summary.samples(findings, "topic", 2)]
    assert shown == [
        ("missing_in_topic", '{"id":1}'),
        ("missing_in_topic", '{"id":2}'),
        ("extra_in_topic", '{"id":3}'),
        ("extra_in_topic", '{"id":4}'),
        ("value_mismatch", '{"id":6}'),
        ("in_flight", '{"id":7}'),
    ]
    (first, *_) = summary.samples(findings, "replica", 1)
    assert (first.difference, first.source, first.other) == ("extra_in_replica", None, {"id": "1"})


def test_charts_are_of_differences_only(findings: DataFrame) -> None:
    causes, histograms = summary.charts(findings)
    assert causes == (
        Bar(label="alias key", count=2),
        Bar(label="missing record", count=2),
        Bar(label="missed tombstone", count=1),
        Bar(label="stale version", count=1),
    )
    days = (Bar(label="2024-10-04T00:00Z", count=3), Bar(label="2024-10-07T00:00Z", count=2))
    assert histograms.by_commit_time == days, "beyond 60 hours a bar is a day"
    assert histograms.by_partition == (
        Bar(label="partition 0", count=2), Bar(label="partition 1", count=1), Bar(label="partition 2", count=2)
    )  # fmt: skip
    assert histograms.by_bucket == (Bar(label="0", count=3), Bar(label="1", count=3))


def test_differences_without_a_record_have_no_time(findings: DataFrame) -> None:
    _, histograms = summary.charts(findings.where("key_hash = 1"))
    assert (histograms.by_commit_time, histograms.by_partition) == ((), ())
    assert histograms.by_bucket == (Bar(label="1", count=1),)
