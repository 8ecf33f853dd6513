"""Segments are found by the rules that a broker closes them by."""

from __future__ import annotations

from cdc.contract.compaction import TopicSettings
from cdc.topics.batches import RecordBatch
from cdc.topics.layout import Layout, LayoutBuilder

HOUR = TopicSettings(segment_ms=3_600_000, segment_bytes=1_000)


def plain(base: int, ms: int, size: int = 100, records: int = 10) -> RecordBatch:
    return RecordBatch(base, base + 9, size, records, ms, None, None, is_control=False)


def layout(*batches: RecordBatch, settings: TopicSettings = HOUR) -> Layout:
    builder = LayoutBuilder(0, settings)
    builder.add(batches)
    return builder.built()


def test_time_closes_a_segment_only_when_it_is_exceeded() -> None:
    found = layout(plain(0, 0), plain(10, 3_600_000), plain(20, 3_600_001))

    assert [(each.base, each.closed_ms) for each in found.segments] == [(0, 3_600_001), (20, None)]


def test_size_closes_a_segment() -> None:
    found = layout(plain(0, 0, 600), plain(10, 0, 400), plain(20, 0, 1))

    assert [each.base for each in found.segments] == [0, 20]


def test_the_largest_compaction_lag_closes_segments_of_compacted_topics() -> None:
    batches = (plain(0, 0), plain(10, 70_000))

    compacted = layout(*batches, settings=TopicSettings(max_compaction_lag_ms=60_000))
    deleted = layout(
        *batches, settings=TopicSettings(cleanup_policy=frozenset({"delete"}), max_compaction_lag_ms=60_000)
    )

    assert (len(compacted.segments), len(deleted.segments)) == (2, 1)


def test_an_older_record_closes_nothing() -> None:
    found = layout(plain(0, 9_000_000), plain(10, 0), plain(20, 9_000_000))

    assert len(found.segments) == 1
    assert found.active is not None
    assert found.active.largest_ms == 9_000_000


def test_segments_are_counted_from_where_the_cleaner_left_its_marks() -> None:
    found = layout(plain(0, 5), plain(10, 6, records=3), plain(20, 7))

    assert (found.cleaned_until, found.cleaned_bytes, found.cleaned_ms) == (20, 200, 6)
    assert [each.base for each in found.segments] == [20]


def test_a_gap_between_batches_is_a_mark() -> None:
    found = layout(plain(0, 5), plain(30, 7))

    assert (found.cleaned_until, found.cleaned_bytes) == (30, 100)


def test_a_transaction_is_open_until_its_marker() -> None:
    def written(base: int, producer: int, *, is_control: bool = False) -> RecordBatch:
        return RecordBatch(base, base, 70, 1, 1_000 + base, None, (producer, 0), is_control=is_control)

    found = layout(written(0, 7), written(1, 8), written(2, 7, is_control=True), written(3, 8))

    assert [(each.producer_id, each.offset, each.since_ms) for each in found.open_transactions] == [(8, 1, 1_001)]
