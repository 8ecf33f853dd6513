"""How long what is in a Kafka transaction may wait, by what the last one's commit took."""

from __future__ import annotations

import struct

import pytest

from cdc.bridge.batch import Batch

EPOCH_US = 946_684_800_000_000
DATA = b"w" + struct.pack(">QQq", 0, 0, 2_000_000)


@pytest.mark.parametrize(("took_s", "rest_s"), [(0.004, 0.002), (0.01, 0.005), (2.0, 0.005)])
def test_the_next_one_begins_when_the_markers_of_the_last_are_written(took_s: float, rest_s: float) -> None:
    """Half of what the commit took, and not for long: a commit of many rows takes its time for other reasons."""
    batch = Batch()
    batch.committed(took_s)
    assert batch.rest_s == rest_s


def test_a_quick_commit_lets_streamed_rows_beside_a_backfill_wait_for_a_moment_only() -> None:
    batch = Batch()
    batch.committed(0.0)
    assert not batch.is_late, "nothing was streamed yet"
    batch.streamed(1)
    assert batch.is_late


def test_it_is_full_by_bytes_of_the_stream_and_of_a_backfill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdc.bridge.batch._MIN_AGE_S", 60.0)
    batch = Batch()
    batch.read([bytes(20_000_000)])
    assert not batch.is_due
    batch.backfilled(20_000_000)
    assert batch.is_due
    batch.committed(0.0)
    assert batch.is_empty


def test_the_stream_is_live_for_a_second_after_a_source_commit_unless_it_is_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr("cdc.bridge.batch.time.monotonic", lambda: now)
    batch = Batch()
    assert not batch.is_live
    batch.streamed(EPOCH_US)
    assert batch.is_live
    batch.read([DATA])
    assert not batch.is_live, "sent two seconds after the commit"
    batch.streamed(EPOCH_US + 1_500_000)
    assert batch.is_live
    now += 1.5
    assert not batch.is_live
