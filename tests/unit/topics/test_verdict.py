"""The cleaner's rules on made-up partitions: what a real broker shows only after hours."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.contract.compaction import TopicSettings
from cdc.topics.batches import RecordBatch
from cdc.topics.census import Census
from cdc.topics.layout import LayoutBuilder
from cdc.topics.settings import CleanerSettings
from cdc.topics.verdict import PATIENCE_MS, PartitionSeen, Verdict, cleanable, judge

HOUR = 3_600_000
NOW = 1_000 * HOUR


def seen(
    settings: TopicSettings, *segments: tuple[int, list[str]], last_stable: int | None = None, **more: Any
) -> PartitionSeen:
    """A partition whose batches are (hours ago, keys), of a hundred bytes each."""
    builder, end = LayoutBuilder(0, settings), 0
    for hours, keys in segments:
        batch = RecordBatch(end, end + len(keys) - 1, 100, len(keys), NOW - hours * HOUR, None, None, is_control=False)
        builder.add([batch])
        end += len(keys)
    layout = builder.built()
    census = Census(layout)
    for offset, key in enumerate(key for _, keys in segments for key in keys):
        census.add(offset, key.encode(), 5, is_tombstone=False)
    stable = end if last_stable is None else last_stable
    return PartitionSeen("t", 0, layout, census.garbage, stable, end, layout.size, census.size, **more)


def judged(settings: TopicSettings, partition: PartitionSeen, cleaner: CleanerSettings | None = None) -> list[Verdict]:
    return list(judge(partition, settings, cleaner or CleanerSettings(), NOW))


HOURLY = TopicSettings(segment_ms=HOUR, segment_bytes=1 << 30)


def test_garbage_that_nothing_forbids_to_clean_is_the_cleaners() -> None:
    partition = seen(HOURLY, (9, ["a", "a"]), (7, ["b"]), (0, ["c"]))

    (verdict,) = judged(HOURLY, partition)

    assert verdict.code == "cleaner_stopped"


def test_the_cleaner_is_given_time() -> None:
    partition = seen(HOURLY, (9, ["a", "a"]), (0, ["c"]))

    (verdict,) = judged(HOURLY, partition)

    assert PATIENCE_MS > 0
    assert (verdict.code, verdict.needs_someone) == ("due", False)


def test_a_cleaner_that_is_off_is_no_guess() -> None:
    partition = seen(HOURLY, (9, ["a", "a"]), (0, ["c"]))

    (verdict,) = judged(HOURLY, partition, CleanerSettings(enabled=False))

    assert verdict.code == "cleaner_off"
    assert "likely" not in verdict.text


def test_the_largest_lag_has_it_cleaned_below_the_ratio() -> None:
    patient = TopicSettings(segment_ms=HOUR, min_cleanable_dirty_ratio=1.0)
    pressed = TopicSettings(segment_ms=HOUR, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=4 * HOUR)
    segments = ((9, ["a", "a"]), (7, ["b"]), (0, ["c"]))

    assert [each.code for each in judged(patient, seen(patient, *segments))] == ["ratio_not_reached"]
    assert [each.code for each in judged(pressed, seen(pressed, *segments))] == ["cleaner_stopped"]


def test_what_was_not_read_counts_as_clean() -> None:
    partition = seen(HOURLY, (9, ["a", "a"]), (0, ["c"]))
    longer = PartitionSeen("t", 0, partition.layout, partition.garbage, 3, 3, 10_000)

    assert cleanable(partition, HOURLY, NOW).ratio == 1.0
    assert cleanable(longer, HOURLY, NOW).ratio == 100 / 9_900
    assert [each.code for each in judged(HOURLY, longer)] == ["ratio_not_reached"]


def test_several_reasons_are_all_named_those_that_need_someone_first() -> None:
    partition = seen(HOURLY, (9, ["a", "a"]), (4, ["b", "b"]), (2, ["c", "c"]))

    assert [each.code for each in judged(HOURLY, partition)] == ["cleaner_stopped", "idle"]


def test_a_short_transaction_in_the_active_segment_keeps_nothing_back() -> None:
    partition = seen(HOURLY, (0, ["a"]), (0, ["a"]), last_stable=1)

    assert [each.code for each in judged(HOURLY, partition)] == ["active_segment"]


def test_a_short_transaction_before_it_ends_by_itself() -> None:
    partition = seen(HOURLY, (9, ["a"]), (7, ["a"]), (0, ["z"]), last_stable=1)

    (verdict,) = judged(HOURLY, partition)

    assert (verdict.code, verdict.needs_someone) == ("open_transaction", False)


@pytest.mark.parametrize(("keys", "needs_someone"), [("aaaa", True), ("abcdd", False)])
def test_an_idle_partition_needs_someone_when_half_of_it_is_garbage(keys: str, needs_someone: bool) -> None:
    (verdict,) = judged(HOURLY, seen(HOURLY, (9, list(keys))))

    assert (verdict.code, verdict.needs_someone) == ("idle", needs_someone)


def test_expired_tombstones_alone_bring_no_pass() -> None:
    partition = seen(HOURLY, (0, ["a"]), expired_tombstones=3)

    (verdict,) = judged(HOURLY, partition)

    assert verdict.code == "tombstones_stuck"
    assert verdict.text.startswith("3 tombstones could go by now")


def test_an_empty_partition_is_clean() -> None:
    assert [each.code for each in judged(HOURLY, seen(HOURLY))] == ["clean"]
