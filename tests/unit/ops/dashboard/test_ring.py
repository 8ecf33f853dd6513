"""The charts' memory: as much as was agreed on, and no more."""

from __future__ import annotations

import math
import tracemalloc

import pytest

from cdc.ops.dashboard import recorder
from cdc.ops.dashboard.recorder import CAPACITY, SERIES, Ring


def test_the_newest_samples_are_kept_in_order() -> None:
    ring = Ring(["a", "b"], capacity=3)
    assert ring.document() == {"at": [], "series": {"a": [], "b": []}}
    for moment in range(5):
        ring.add(moment, {"a": moment * 10.0})
    found = ring.document()
    assert found["at"] == [2.0, 3.0, 4.0]
    assert found["series"]["a"] == [20.0, 30.0, 40.0]
    assert all(math.isnan(each) for each in found["series"]["b"])
    assert len(ring) == 3


def test_what_nobody_knows_is_a_gap_and_no_zero() -> None:
    ring = Ring(["a"], capacity=2)
    ring.add(1, {"a": None})
    assert math.isnan(ring.document()["series"]["a"][0])


def test_memory_does_not_grow_however_long_it_runs() -> None:
    tracemalloc.start()
    try:
        ring = Ring(SERIES)
        taken = _held_by_rings()
        for moment in range(3 * CAPACITY):
            ring.add(moment, dict.fromkeys(SERIES, 1.0))
        grown = _held_by_rings() - taken
    finally:
        tracemalloc.stop()
    assert len(ring) == CAPACITY
    assert taken == pytest.approx(8 * CAPACITY * (len(SERIES) + 1), rel=0.2)
    assert grown < taken / 10  # 2,880 samples, 230 KB of them


def _held_by_rings() -> int:
    """Bytes: what threads of other tests allocate meanwhile is not a ring's."""
    allocated = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, recorder.__file__)])
    return sum(each.size for each in allocated.statistics("filename"))
