"""Each cause that the reconciler can name, from the facts that show it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.base.lsn import LSN
from cdc.spark.reconcile.causes import KnownDifference, RecordPlace, Row, differing_columns, likely_cause
from cdc.spark.reconcile.likeness import likeness
from cdc.spark.reconcile.verdict import KeyClass

MISSING, EXTRA, MISMATCH = KeyClass.MISSING_IN_TOPIC, KeyClass.EXTRA_IN_TOPIC, KeyClass.VALUE_MISMATCH
PLACE = RecordPlace("u", LSN(0x1925728), 734, 1795190486566123, 2, 41)
ROW = {"id": "1", "name": "Ann"}
KEY = b'{"id":1}'


def cause(verdict: KeyClass, source: Row | None, topic: Row | None, **facts: object) -> str:
    finding = KnownDifference(verdict, source, topic, KEY, KEY, PLACE, 2)
    return likely_cause(replace(finding, **facts))  # type: ignore[arg-type]  # keywords, checked when it runs


def test_differing_columns() -> None:
    assert differing_columns({"b": "1", "a": None, "c": "x"}, {"c": "y", "a": "", "b": "1"}) == ("a", "c")
    assert differing_columns({"a": None}, {}) == ("a",)
    assert differing_columns({}, {"z": None}) == ("z",)
    assert differing_columns(ROW, ROW) == ()


def test_missed_tombstone_names_the_record() -> None:
    assert cause(EXTRA, None, ROW) == (
        "missed tombstone: the source does not have this row, and no tombstone in the topic deletes the update at"
        " partition 2, offset 41 (LSN 0/1925728 of transaction 734, 2026-11-20 16:01:26 UTC)"
    )


def test_a_backfill_record_has_no_transaction() -> None:
    said = cause(EXTRA, None, ROW, record=replace(PLACE, op="r", xid=None))
    assert "deletes the backfill at partition 2, offset 41 (LSN 0/1925728, 2026" in said


def test_missing_record() -> None:
    assert cause(MISSING, ROW, None, record=None).startswith("missing record: the topic has no record of this key")
    said = cause(MISSING, ROW, None, record=replace(PLACE, op="d"))
    assert said.startswith("missing record: what followed the delete at partition 2, offset 41")


@pytest.mark.parametrize(("verdict", "source", "topic"), [(MISMATCH, ROW, {**ROW, "name": "Bob"}), (EXTRA, None, ROW)])
def test_stale_version_after_a_newer_one(verdict: KeyClass, source: Row | None, topic: Row) -> None:
    said = cause(verdict, source, topic, record=replace(PLACE, newer_before=True))
    assert said.startswith("stale version: the update at partition 2, offset 41")
    assert said.endswith("was appended after a newer record of this key")


def test_older_value() -> None:
    said = cause(MISMATCH, ROW, {**ROW, "name": "Bob"}, types={"name": "text"})
    assert said.startswith("older value: the update at partition 2")
    assert "does not hold the last change" in said


def test_alias_key() -> None:
    said = cause(EXTRA, None, ROW, key=b'{"id": 1}')
    assert said.startswith('alias key: {"id": 1} and {"id":1} are the same logical key')
    assert "\\xff" in cause(EXTRA, None, ROW, key=b"\xff")
    assert "…" in cause(EXTRA, None, ROW, key=b"x" * 101)


def test_partition_move() -> None:
    said = cause(EXTRA, None, ROW, expected_partition=0)
    assert said.startswith("partition move: the update at partition 2, offset 41")
    assert "outside of partition 0" in said
    assert "partition move" not in cause(EXTRA, None, ROW, expected_partition=None)


def test_where_a_record_stands_explains_more_than_its_values() -> None:
    facts = {"key": b'{"id": 1}', "expected_partition": 0, "record": replace(PLACE, newer_before=True)}
    assert cause(MISMATCH, ROW, {**ROW, "name": "ann"}, **facts).startswith("alias key")
    del facts["key"]
    assert cause(MISMATCH, ROW, {**ROW, "name": "ann"}, **facts).startswith("partition move")
    del facts["expected_partition"]
    assert cause(MISMATCH, ROW, {**ROW, "name": "ann"}, **facts).startswith("stale version")


def test_older_schema() -> None:
    said = cause(MISMATCH, {**ROW, "new": "x"}, ROW)
    assert said.startswith("older schema: the update at")
    assert "lacks new; it was written before the table had that column" in said
    assert "had those columns" in cause(MISMATCH, {**ROW, "new": "x", "more": None}, ROW)
    assert "still has old, which the table no longer has" in cause(MISMATCH, ROW, {**ROW, "old": None})


def test_values_treated_differently_are_named_by_column() -> None:
    types = {"name": "text", "n": "numeric(8,2)", "m": "numeric(8,2)"}
    source = {"id": "1", "name": "Ann", "n": "1.50", "m": "2.00"}
    topic = {"id": "1", "name": "ANN", "n": "1.5", "m": "2"}
    assert cause(MISMATCH, source, topic, types=types) == (
        "in name the topic's value differs in upper and lower case only;"
        " in n, m the topic's value is the same number with a different scale (trailing zeros)"
    )
    assert cause(MISMATCH, source, {**topic, "id": "2"}, types=types).startswith("older value")


def test_a_time_zone_shifts_all_timestamps_alike() -> None:
    types = {"a": "timestamp", "b": "timestamptz", "c": "timestamp"}
    source = {"a": "2026-11-20 12:00:00", "b": "2026-11-20 13:00:00+00", "c": None}
    topic = {"a": "2026-11-20 17:30:00", "b": "2026-11-20 18:30:00+00", "c": None}
    assert cause(MISMATCH, source, topic, types=types) == (
        "in a, b the topic's value is later by 5:30 hours: a time zone"
    )
    assert cause(MISMATCH, source, {**topic, "b": "2026-11-20 14:00:00+00"}, types=types).startswith("older value")


@pytest.mark.parametrize(
    ("verdict", "words"),
    [(MISSING, "has a row that the topic does not"), (EXTRA, "lacks a row"), (MISMATCH, "not the one that the topic")],
)
def test_replica(verdict: KeyClass, words: str) -> None:
    said = cause(verdict, ROW, ROW, side="replica")
    assert said.startswith("replica changed by others than the sink: it")
    assert cause(verdict, ROW, ROW, side="lake").startswith("lake changed by others than the mirror: it")
    assert cause(verdict, ROW, ROW, side="lake", copies=2).startswith("several rows of one key: the lake has 2")
    assert words in said


def test_what_is_no_difference_has_no_cause() -> None:
    assert cause(KeyClass.IN_FLIGHT, ROW, None) == "nothing is proven to differ"


@pytest.mark.parametrize(
    ("source", "topic", "sql_type", "words"),
    [
        (None, "x", "text", "is a value where the source has NULL"),
        ("x", None, "text", "is NULL where"),
        ("", None, "text", "is NULL where"),
        ("1.50", "1.5", "numeric(12,2)", "different scale"),
        ("1E+2", "100", "numeric", "different scale"),
        ("1.2345", "1.23", "numeric", "rounded"),
        ("1.2355", "1.236", "numeric", "rounded"),
        ("12345678901234567890.12", "12345678901234567000", "numeric", "as a double"),
        ("0.1234567890123456789", "0.12345678901234568", "numeric", "rounded"),
        ("1.23", "2.23", "numeric", None),
        ("1.50", "1.5", "text", None),
        ("NaN", "1", "numeric", None),
        ("100000", "1e+05", "float8", "written differently"),
        ("0.1", "0.10000000149011612", "float8", "as a float4"),
        ("0.30000000000000004", "0.3", "float8", "rounded"),
        ("1e300", "1.000000000000001e300", "float8", "rounded"),
        ("1", "2", "float8", None),
        ("2026-01-01 12:00:00", "2026-01-01 11:15:00", "timestamp", "earlier by 0:45"),
        ("2026-01-01 12:00:00+00", "2026-01-02 02:00:00+00", "timestamptz", "later by 14:00"),
        ("2026-01-01 12:00:00", "2026-01-02 02:15:00", "timestamp", None),
        ("2026-01-01 12:00:00", "2026-01-01 12:07:00", "timestamp", None),
        ("2026-01-01 12:00:00+00", "2026-01-01 13:00:00+01", "timestamptz", "written differently"),
        ("2026-01-01 12:00:00.123456", "2026-01-01 12:00:00.123", "timestamp(6)", "less precision"),
        ("2026-01-01 12:00:00.1", "2026-01-01 12:00:00.2", "timestamp", None),
        ("infinity", "2026-01-01 12:00:00", "timestamp", None),
        ("2026-02-30 12:00:00", "2026-01-01 12:00:00", "timestamp", None),
        ("ab  ", "ab", "char(4)", "trailing blanks"),
        ("ab", "AB", "text", "case only"),
        ("é", "Ã©", "text", "mojibake"),
        ("“", "â€œ", "text", "mojibake"),
        ("Ã©", "é", "text", "the source holds"),
        ("é", "\ufffd", "text", "could not be decoded"),
        ("a", "b", "text", None),
    ],
)
def test_likeness(source: str | None, topic: str | None, sql_type: str, words: str | None) -> None:
    found = likeness(source, topic, sql_type)
    assert found is None if words is None else words in (found or "")


def test_a_foreign_record_says_where_it_is_and_what_its_header_says() -> None:
    """A foreign tombstone was "after the ? … 1970-01-01"."""
    nameless = RecordPlace(None, None, None, None, 2, 41, said="garbage")
    said = cause(MISSING, ROW, None, record=nameless, foreign="its header is not of the topic contract")
    assert said == (
        "foreign record: another program wrote the record at partition 2, offset 41, because its header is not of the"
        " topic contract; its header says garbage"
    )
    assert cause(KeyClass.FOREIGN, ROW, ROW, record=replace(nameless, said=""), foreign="it has no header").endswith(
        "because it has no header"
    )


def test_a_value_that_is_no_row_is_told_as_what_it_is() -> None:
    """``not json`` was told as 33 NULL columns."""
    said = cause(MISMATCH, ROW, {}, unreadable="not an object: 'not json'")
    assert said.startswith("unreadable value: the update at partition 2, offset 41")
    assert said.endswith("does not hold a row; its value: not an object: 'not json'")
