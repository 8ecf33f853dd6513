"""The rule, one example for each sentence of it."""

from __future__ import annotations

import pytest

from cdc.spark.reconcile.verdict import (
    ABSENT,
    KeyClass,
    RecordFacts,
    TableEvidence,
    TopicState,
    fold,
    is_outrun,
    judge,
    judge_scattered,
    kept_since_ms,
    why_unverifiable,
)
from cdc.spark.source.visibility import VisibleTransactions

S = VisibleTransactions.parse("10:20:12")
KEPT_SINCE = 1000
YOUNG, OLD = 1001, 1000


def record(offset: int, author: int | str, digest: str | None, timestamp_ms: int = OLD, *, newer: bool = False):
    who = VisibleTransactions.parse(author) if isinstance(author, str) else author
    return RecordFacts(0, offset, timestamp_ms, who, digest, newer)


def said(source: str | None, *records: RecordFacts, **circumstances: bool) -> KeyClass:
    return judge(source, fold(records, S, KEPT_SINCE), **circumstances)


def test_the_latest_visible_record_counts() -> None:
    older, latest, invisible = record(1, 9, "a"), record(5, 13, "b"), record(7, 12, "c", YOUNG)
    for records in ((older, latest, invisible), (invisible, latest, older)):
        assert fold(records, S, KEPT_SINCE) == TopicState(0, 5, "b", False, YOUNG, True)
        assert said("b", *records) is KeyClass.IDENTICAL
        assert said("c", *records) is KeyClass.VALUE_MISMATCH
        assert said(None, *records) is KeyClass.EXTRA_IN_TOPIC


def test_absent_is_no_record_or_a_tombstone() -> None:
    for records in ((), (record(1, 9, "a"), record(2, 13, None))):
        assert said(None, *records) is KeyClass.IDENTICAL
        assert said("a", *records) is KeyClass.MISSING_IN_TOPIC
    assert fold((), S, KEPT_SINCE) == ABSENT


def test_only_invisible_records_mean_absent_when_nothing_can_be_cleaned_away() -> None:
    assert said("a", record(3, 12, "b", YOUNG)) is KeyClass.MISSING_IN_TOPIC
    assert said(None, record(3, 12, "b", YOUNG)) is KeyClass.IDENTICAL


def test_only_invisible_records_of_some_age_are_in_flight() -> None:
    assert said("a", record(3, 12, "b", OLD), record(4, 20, "c", YOUNG)) is KeyClass.IN_FLIGHT
    assert said(None, record(3, 12, "b", OLD)) is KeyClass.IN_FLIGHT


def test_a_cleaning_during_the_scan_can_take_the_latest_visible_record() -> None:
    records = (record(1, 9, "read before the cleaning"), record(4, 12, "cleaned by", OLD))
    assert said("cleaned before it was read", *records) is KeyClass.IN_FLIGHT
    assert said("read before the cleaning", *records) is KeyClass.IDENTICAL


def test_a_backfill_record_counts_when_its_chunk_is_covered() -> None:
    assert said("a", record(1, "10:20:12,13", "a")) is KeyClass.IDENTICAL
    assert said("a", record(1, "10:20:", "a", YOUNG)) is KeyClass.MISSING_IN_TOPIC


def test_a_value_newer_than_its_record_is_looked_at_again() -> None:
    assert said("a", record(1, 9, "b", newer=True)) is KeyClass.IN_FLIGHT
    assert said("a", record(1, 9, "a", newer=True)) is KeyClass.IDENTICAL
    assert said("a", record(1, 9, "b", newer=True), record(2, 11, "c")) is KeyClass.VALUE_MISMATCH


def test_a_row_gone_before_its_reread_is_no_difference() -> None:
    assert said("new version", record(1, 9, "old"), record(2, 12, None, YOUNG), rereads=True) is KeyClass.IN_FLIGHT
    assert said("new version", record(1, 9, "old"), record(2, 12, None, YOUNG)) is KeyClass.VALUE_MISMATCH
    assert said("new version", record(1, 9, "old"), rereads=True) is KeyClass.VALUE_MISMATCH
    assert said("new version", record(2, 12, None, YOUNG), rereads=True) is KeyClass.IN_FLIGHT


def test_a_scan_slower_than_the_lag_proves_no_difference() -> None:
    since = kept_since_ms(scan_end_ms=100_000, min_compaction_lag_ms=60_000, clock_margin_ms=5_000)
    assert since == 45_000
    assert is_outrun(45_000, since)
    assert not is_outrun(45_001, since)
    assert said("a", outrun=True) is KeyClass.IN_FLIGHT
    assert said("a", record(1, 9, "b"), outrun=True) is KeyClass.IN_FLIGHT
    assert said("b", record(1, 9, "b"), outrun=True) is KeyClass.IDENTICAL


def test_partitions_are_folded_apart() -> None:
    with pytest.raises(ValueError, match="partitions 0 and 1"):
        fold([record(1, 9, "a"), RecordFacts(1, 1, OLD, 9, "a")], S, KEPT_SINCE)


@pytest.mark.parametrize(
    ("source", "home", "stray", "expected"),
    [
        ("a", ABSENT, TopicState(1, 7, "a"), KeyClass.MISSING_IN_TOPIC),
        ("a", TopicState(0, 7, "a"), TopicState(1, 9, "a"), KeyClass.EXTRA_IN_TOPIC),
        (None, ABSENT, TopicState(1, 9, "a"), KeyClass.EXTRA_IN_TOPIC),
        (None, TopicState(0, 7, None), TopicState(1, 9, "a"), KeyClass.EXTRA_IN_TOPIC),
        ("a", TopicState(0, 7, "a"), TopicState(1, 9, None), KeyClass.IDENTICAL),
        ("a", TopicState(0, 7, "a"), TopicState(1, oldest_invisible_ms=YOUNG), KeyClass.IDENTICAL),
        ("a", TopicState(0, 7, "a"), TopicState(1, oldest_invisible_ms=OLD, kept=False), KeyClass.IN_FLIGHT),
        ("a", TopicState(0, 7, "a"), TopicState(1, 3, "a", False, OLD, False), KeyClass.IN_FLIGHT),
        ("a", TopicState(0, 7, "b"), TopicState(1, 9, "a"), KeyClass.VALUE_MISMATCH),
    ],
)
def test_a_key_in_a_partition_where_it_does_not_belong(
    source: str | None, home: TopicState, stray: TopicState, expected: KeyClass
) -> None:
    states = [stray, home] if home.partition is not None else [stray]
    assert judge_scattered(source, states, home=0) is expected


def test_a_stray_is_no_proof_either_when_the_scan_was_outrun() -> None:
    states = [TopicState(0, 7, "a"), TopicState(1, 9, "a")]
    assert judge_scattered("a", states, home=0, outrun=True) is KeyClass.IN_FLIGHT
    assert judge_scattered("b", [TopicState(0, 7, "a", oldest_invisible_ms=YOUNG)], home=0, rereads=True) is (
        KeyClass.IN_FLIGHT
    )


def test_what_lies_at_home_is_judged_as_without_strays() -> None:
    young = TopicState(0, 7, "a", oldest_invisible_ms=YOUNG)
    assert judge_scattered("b", [young], home=0) is KeyClass.VALUE_MISMATCH, "nothing of this table is read again"
    assert judge_scattered("b", [TopicState(0, 7, "a")], home=0, outrun=True) is KeyClass.IN_FLIGHT


@pytest.mark.parametrize(
    ("whole", "unseen", "reading_ms", "reason"),
    [
        (True, (11,), 999, None),
        (False, (), 999, "its backfill is not complete: the topic does not hold every row yet"),
        (
            True,
            (11, 12),
            999,
            "the topic has transactions that the snapshot does not see yet (do they wait for a synchronous standby?), "
            "and the backfill left out the rows that they changed; compare again when they are visible",
        ),
        (
            True,
            (),
            1000,
            "the scan ended 1000 ms after the snapshot, but tombstones are kept for only 1000 ms "
            "(delete.retention.ms), so a delete may have gone unseen; use more --passes, or raise "
            "topics.delete_retention_ms",
        ),
    ],
)
def test_tables_that_cannot_be_judged(
    whole: bool, unseen: tuple[int, ...], reading_ms: int, reason: str | None
) -> None:
    assert why_unverifiable(TableEvidence(whole, unseen, S, reading_ms, delete_retention_ms=1000)) == reason


def test_four_classes_are_differences() -> None:
    words = {each.value for each in KeyClass if each.is_difference}
    assert words == {"missing_in_topic", "extra_in_topic", "value_mismatch", "foreign"}


def test_a_right_row_that_the_bridge_cannot_have_written_is_not_identical() -> None:
    assert judge("a", TopicState(0, 7, "a", is_foreign=True)) is KeyClass.FOREIGN
    assert judge("b", TopicState(0, 7, "a", is_foreign=True)) is KeyClass.VALUE_MISMATCH
    assert judge(None, TopicState(0, 7, "a", is_foreign=True)) is KeyClass.EXTRA_IN_TOPIC
    assert judge("a", TopicState(0, 7, None, is_foreign=True)) is KeyClass.MISSING_IN_TOPIC
    assert judge(None, TopicState(0, 7, None, is_foreign=True)) is KeyClass.IDENTICAL, "a delete that is right"
