"""Single judgements of the rule for erased pasts; its soundness is in tests/property."""

from __future__ import annotations

from cdc.spark.snapshot.past import (
    CLOCK_MARGIN_MS,
    Erased,
    LogPlace,
    LogReading,
    PartitionEvidence,
    answerable_since,
    judge,
)

READING = LogReading(ended_ms=1_000_000, took_ms=10_000, lag_ms=60_000, retention_ms=600_000)


def at(offset: int, produced_ms: int = 0) -> LogPlace:
    return LogPlace(offset, offset * 10, offset, produced_ms)


def seen(
    bound: LogPlace | None, pair: int | None = None, orphan: int | None = None, below_ms: int = 0
) -> PartitionEvidence:
    superseded, superseding = (None, None) if pair is None else (0, at(pair))
    last = None if orphan is None else at(orphan)
    return PartitionEvidence(0, bound is None, at(9, below_ms), bound, superseded, superseding, last)


def test_nothing_behind_the_bound() -> None:
    assert judge(seen(None, orphan=5), READING) is None


def test_a_pair_below_the_bound_proves_it() -> None:
    assert judge(seen(at(10), pair=9, orphan=9), READING) is None
    assert judge(seen(at(10), pair=10), READING) == Erased(
        0, "the remaining records do not prove that no others were erased", at(10)
    )


def test_an_orphan_behind_the_bound_is_unknown() -> None:
    found = judge(seen(at(10), pair=3, orphan=10), READING)
    assert found is not None
    assert found.since == at(10)


def test_a_young_record_below_the_bound_needs_no_pair() -> None:
    border = READING.ended_ms - READING.lag_ms + CLOCK_MARGIN_MS
    assert judge(seen(at(10), below_ms=border + 1), READING) is None
    assert judge(seen(at(10), below_ms=border), READING) is not None
    # A changed key begins with an update: behind a record that no run has reached, it is no sign of erased ones.
    assert judge(seen(at(10), orphan=10, below_ms=border + 1), READING) is None
    assert judge(seen(at(10), orphan=10, below_ms=border), READING) is not None


def test_a_record_that_came_late_proves_nothing() -> None:
    """It is young, and says nothing of what the cleaner did with those before it."""
    assert judge(seen(at(10), below_ms=READING.ended_ms), READING) is None
    late = judge(seen(at(8), below_ms=READING.ended_ms), READING)
    assert late == Erased(0, "an older record was written after a newer one", None)


def test_reading_longer_than_tombstones_stay_proves_nothing() -> None:
    assert judge(seen(None), LogReading(1_000_000, 600_000, 60_000, 600_000)) is not None


def test_the_point_from_which_on_all_partitions_can_answer() -> None:
    assert answerable_since([Erased(0, "", at(3)), Erased(1, "", at(7))]) == at(7)
    assert answerable_since([Erased(0, "", at(3)), Erased(1, "", None)]) is None
