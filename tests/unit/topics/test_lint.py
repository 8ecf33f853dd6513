"""Each rule of ``cdc topics lint``: what it says, what it is silent about."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.base.lsn import LSN
from cdc.contract.header import UPDATE, HeaderStamp
from cdc.topics.foreign import ForeignRecords
from cdc.topics.formats import FormatsOfRows
from cdc.topics.lint import Subject, lint

GOOD = {
    "cleanup.policy": "compact",
    "delete.retention.ms": "604800000",
    "max.compaction.lag.ms": "86400000",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.3",
    "min.compaction.lag.ms": "60000",
    "min.insync.replicas": "2",
    "remote.storage.enable": "false",
    "retention.ms": "604800000",
    "segment.ms": "3600000",
    "unclean.leader.election.enable": "false",
}
HOUR = 3_600_000


def codes(replicas: int = 3, settings: dict[str, str] | None = None, **more: Any) -> list[tuple[str, str]]:
    subject = Subject("t", {**GOOD, **(settings or {})}, replicas, **more)
    return [(each.level, each.code) for each in lint(subject)]


def test_a_good_topic_is_passed_in_silence() -> None:
    assert codes() == []


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        ("cleanup.policy", "compact,delete", ("error", "compact_delete")),
        ("cleanup.policy", "delete, compact", ("error", "compact_delete")),
        ("cleanup.policy", "delete", ("error", "delete")),
        ("cleanup.policy", "", ("warning", "keeps_all")),
        ("remote.storage.enable", "true", ("error", "remote_storage")),
        ("unclean.leader.election.enable", "true", ("error", "unclean_election")),
        ("segment.ms", "10000", ("warning", "short_segments")),
        ("max.compaction.lag.ms", "59999", ("warning", "short_segments")),
        ("max.compaction.lag.ms", "9223372036854775807", ("warning", "no_max_lag")),
        ("min.cleanable.dirty.ratio", "0.01", ("warning", "low_ratio")),
        ("min.cleanable.dirty.ratio", "0.0", ("warning", "low_ratio")),
        ("message.timestamp.after.max.ms", "9223372036854775807", ("warning", "future_timestamps")),
        ("min.insync.replicas", "1", ("warning", "min_insync")),
        ("min.insync.replicas", "3", ("warning", "min_insync")),
    ],
)
def test_settings(setting: str, value: str, expected: tuple[str, str]) -> None:
    assert codes(settings={setting: value}) == [expected]


def test_append_time_needs_no_bound() -> None:
    append_time = {"message.timestamp.type": "LogAppendTime", "message.timestamp.after.max.ms": "9223372036854775807"}
    assert codes(settings=append_time) == []


def test_one_copy_is_told_once() -> None:
    assert codes(replicas=1, settings={"min.insync.replicas": "1"}) == [("warning", "one_replica")]


@pytest.mark.parametrize(
    ("retention", "lag", "rebuild_ms", "told"),
    [
        ("100", "0", None, True),
        ("60000", "0", None, False),
        (str(HOUR), "0", 2 * HOUR, True),
        (str(HOUR), str(HOUR), 2 * HOUR, False),  # the cleaner meets no tombstone before the lag is over
    ],
)
def test_tombstones_outlive_a_rebuild(retention: str, lag: str, rebuild_ms: int | None, told: bool) -> None:
    found = codes(settings={"delete.retention.ms": retention, "min.compaction.lag.ms": lag}, rebuild_ms=rebuild_ms)
    assert found == ([("error", "tombstones_too_short")] if told else [])


def test_records_and_readers() -> None:
    assert codes(keyless=3, looked_at=10, share_groups=["work"]) == [("error", "keyless"), ("error", "share_group")]
    keyless, _ = lint(Subject("t", GOOD, 3, keyless=3, looked_at=10, share_groups=["work"]))
    assert keyless.text.startswith("3 records without a key among the 10 that were read")


def test_an_empty_value_deletes_nothing() -> None:
    assert codes(empty=1, looked_at=5) == [("warning", "empty_values")]


def test_rows_in_several_formats_are_told_and_former_values_are_not() -> None:
    formats = FormatsOfRows({7: "avro", 8: "json-schema"})
    formats.add(0, b"a", b'{"id"')
    formats.add(0, b"b", b'{"id"')
    formats.add(0, b"c", b'{"id"')
    formats.add(0, b"c", None)
    formats.add(0, b"a", b"\0\0\0\0\7")
    assert codes(formats=formats.found()) == [("warning", "mixed_formats")]
    formats.add(0, b"b", b"\0\0\0\0\7")
    assert formats.found() == {"avro": 2}
    assert codes(formats=formats.found()) == []
    formats.add(1, b"b", b"\0\0\0\0\10")
    formats.add(1, b"d", b"\0\0\0\0\11")
    formats.add(1, b"e", b"text")
    formats.add(1, None, b'{"id"')
    assert formats.found() == {"avro": 2, "json-schema": 1, "a schema that no definition names": 1}
    (told,) = lint(Subject("t", GOOD, 3, formats=formats.found()))
    assert "1 in a schema that no definition names, 2 in avro, 1 in json-schema" in told.text


def test_errors_come_first() -> None:
    assert [level for level, _ in codes(replicas=1, settings={"cleanup.policy": "delete"})] == ["error", "warning"]


def test_records_that_another_program_wrote_are_named() -> None:
    """Who else writes here?"""
    header = HeaderStamp(LSN(90), 7, 1).header(UPDATE, 1, "a" * 16)
    records = ForeignRecords({"a" * 16}, published=LSN(80))
    for offset, each in enumerate((header, None, b"garbage", header.replace(b"v=1", b"v=2"), b"")):
        records.add(2, offset, b'{"id":1}', each)
    records.add(0, 7, b"k", HeaderStamp(LSN(10), 7, 1).header(UPDATE, 1, "b" * 16))
    records.add(0, 8, b"k", HeaderStamp(LSN(500), 7, 1).header(UPDATE, 1, "a" * 16))
    found = records.found(LSN(100))
    assert [(each.partition, each.offset) for each in found] == [(2, 1), (2, 2), (2, 3), (2, 4), (0, 7), (0, 8)]
    assert len(records.found(None)) == 5, "rows may be ahead of the progress"
    (told,) = lint(Subject("t", GOOD, 3, foreign=found, looked_at=10))
    assert told.code == "foreign"
    assert told.text.startswith("6 records among the 10 that were read are not this bridge's; the first: ")
    assert told.text.endswith('partition 2, offset 1, key {"id":1}: it has no header cdc')
