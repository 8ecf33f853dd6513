"""What the sink believes its clock."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from typing import cast

import pytest

from cdc.base.lsn import LSN, ZERO
from cdc.contract.ports import Partition, RecordReader, Restored
from cdc.contract.record import Progress, SourceIdentity
from cdc.kafka.replay.cut import Cut, CutBuffer
from cdc.sink.apply.cut_judge import CutJudge
from cdc.sink.apply.topics import BeginAnew

PROGRESS = "cdc.progress", 0
PLACE = Cut(Progress(LSN(100), None, 0, SourceIdentity("1", 1, 1)), 7)


class Reader:
    """Is not at the end of a topic, so that no fence proves anything."""

    def positions(self) -> Mapping[Partition, int]:
        return {PROGRESS: 8, ("t", 0): 0}

    def fence(self, marked: Collection[str] | None = None) -> Mapping[Partition, int]:
        return {PROGRESS: 8, ("t", 0): 1}


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """How many seconds the clock is ahead of what it was."""
    seconds = [0.0]
    with monkeypatch.context() as clock:
        clock.setattr("time.time", lambda: 1_700_000_000.0 + time.monotonic() + seconds[0])
        yield seconds


def judge(caught_up_at: float) -> CutJudge:
    buffer = CutBuffer(100, 1_000, ZERO)
    buffer.watch([("t", 0)], state=True, outside=False)
    restored = Restored(PLACE.progress, {}, {}, caught_up_at, {})
    judged = CutJudge(cast("RecordReader", Reader()), buffer, PROGRESS, restored)
    judged.bound(60.0)
    return judged


def test_a_mark_proves_a_cut_until_the_clock_is_set_back(ahead: list[float]) -> None:
    judged = judge(time.time())
    assert judged.is_true(PLACE, ())
    judged.refuse_set_back()
    ahead[0] = 70.0
    assert not judged.is_true(PLACE, ())
    ahead[0] = 0.0
    with pytest.raises(BeginAnew):
        judged.refuse_set_back()


def test_a_moment_still_to_come_was_stored_before_the_clock_was_set_back(ahead: list[float]) -> None:
    """It would have proven cuts for an hour, and the replica would have been caught up for as long."""
    judged = judge(time.time() + 3_600.0)
    assert not judged.is_true(PLACE, ())
    assert judged.caught_up_at <= time.time()
