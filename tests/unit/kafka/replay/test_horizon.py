"""Which cuts are true by the clock, and which offsets are good for a topic."""

from __future__ import annotations

import pytest

from cdc.base.lsn import LSN
from cdc.contract.ports import TopicFacts
from cdc.kafka.replay.horizon import MARGIN_S, ClockWatch, Horizon, Mark, longest_absence_s, why_anew


def test_reader_that_joins_late_proves_nothing_before_the_end_of_then() -> None:
    horizon = Horizon([Mark(1_000.0, LSN(500))], lag_s=60.0)
    assert not horizon.proves(LSN(499), 1_000.5)
    assert horizon.proves(LSN(500), 1_000.5)
    assert horizon.proves(LSN(900), 1_049.0)
    assert not horizon.proves(LSN(900), 1_000.0 + 60.0 - MARGIN_S), "what came since may have erased something by now"


def test_a_mark_counts_once_the_progress_topic_is_read_up_to_it() -> None:
    horizon = Horizon([Mark(0.0, LSN(10))], lag_s=60.0)
    horizon.asked(100.0, 7)
    horizon.asked(120.0, 9)  # the earlier question is still open
    horizon.read(6, LSN(50))
    assert not horizon.proves(LSN(60), 121.0)
    horizon.read(7, LSN(55))
    assert not horizon.proves(LSN(54), 121.0)
    assert horizon.proves(LSN(55), 121.0)
    assert horizon.newest(LSN(60)) == Mark(100.0, LSN(55))


def test_without_a_lag_no_clock_proves_anything() -> None:
    assert not Horizon([Mark(100.0, LSN(10))], lag_s=0.0).proves(LSN(10), 100.0)


def test_a_clock_that_is_set_back_is_noticed_and_a_machine_that_slept_is_none() -> None:
    clock = ClockWatch()

    def is_noticed(wall: float, monotonic: float) -> bool:
        assert clock.note(wall, monotonic) == wall
        return clock.was_set_back

    assert not is_noticed(1_000.0, 50.0)
    assert not is_noticed(1_019.5, 70.0), "the margin allows for that"
    assert not is_noticed(5_000.0, 71.0), "it slept, or was set ahead"
    assert is_noticed(1_021.0, 72.0), "what was noted in between lies in the future"
    assert is_noticed(5_001.0, 72.0), "and is not forgotten"


def test_absence_is_bounded_by_retention_and_lag() -> None:
    assert longest_absence_s(TopicFacts("id", (0,), (0,), 60.0, 86_400.0)) == 86_460.0 - MARGIN_S
    assert longest_absence_s(TopicFacts("id", (0,), (0,), 0.0, 0.0)) == 60.0


@pytest.mark.parametrize(
    ("stored", "topic_id", "reason"),
    [
        ({}, "", None),
        ({0: 5, 1: 20}, "id", None),
        ({0: 5}, "id", None),
        ({0: 5, 1: 20}, "another", "recreated"),
        ({0: 4, 1: 20}, "id", "partition 0 now begins at offset 5"),
        ({0: 5, 1: 21}, "id", "partition 1 no longer reaches offset 21"),
        ({2: 0}, "id", "partition 2 no longer reaches"),
    ],
)
def test_offsets_are_good_for_their_topic_only(stored: dict[int, int], topic_id: str, reason: str | None) -> None:
    why = why_anew(stored, topic_id, TopicFacts("id", (5, 0), (10, 20), 60.0, 60.0))
    assert why is None if reason is None else reason in (why or "")
