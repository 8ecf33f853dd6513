"""How long what is in a Kafka transaction may wait, by what the last one's commit took."""

from __future__ import annotations

import struct

import pytest

from cdc.bridge.batch import Batch

MIB = 2**20
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
    monkeypatch.setattr("cdc.bridge.batch.MIN_AGE_S", 60.0)
    batch = Batch()
    batch.read([bytes(600_000)])
    assert not is_due(batch)
    batch.backfilled(600_000)
    assert is_due(batch)
    batch.committed(0.0)
    assert batch.is_empty


def is_due(batch: Batch) -> bool:
    return batch.is_due


def is_live(batch: Batch) -> bool:
    return batch.is_live


def is_full_at(batch: Batch, size: int) -> bool:
    """Whether it is due with so many bytes, and not with one less."""
    batch.read([bytes(size - 1)])
    was_due = batch.is_due
    batch.read([b"x"])
    return batch.is_due and not was_due


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> Batch:
    """One that its age makes never due."""
    monkeypatch.setattr("cdc.bridge.batch.MIN_AGE_S", 60.0)
    monkeypatch.setattr("cdc.bridge.batch.MAX_AGE_S", 60.0)
    return Batch()


@pytest.mark.parametrize(("took_s", "full_at"), [(0.1, 32 * MIB), (7.0, MIB), (40.0, MIB // 16)])
def test_it_is_as_large_as_kafka_can_take_in_time(unhurried: Batch, took_s: float, full_at: int) -> None:
    """Over a slow network, 32 MB took longer than Kafka lets a transaction be open, in every session again."""
    for _ in range(10):
        unhurried.backfilled(20 * MIB)
        unhurried.committed(took_s)
    assert is_full_at(unhurried, full_at)


def test_commits_of_little_do_not_make_it_larger(unhurried: Batch) -> None:
    """A bridge at rest came to the largest with its progress, and was as far as before when much came at once."""
    for _ in range(10):
        unhurried.read([bytes(MIB // 3)])
        unhurried.committed(0.02)
    assert is_full_at(unhurried, MIB)


def test_nor_does_what_went_out_of_the_kafka_transaction(unhurried: Batch) -> None:
    for _ in range(10):
        unhurried.read([bytes(2 * MIB)])
        unhurried.went_out()
        unhurried.read([bytes(1_000)])
        unhurried.committed(0.02)
    assert is_full_at(unhurried, MIB)
    unhurried.committed(0.02)
    assert is_full_at(unhurried, 2 * MIB), "the next one has nothing outside"


def test_the_stream_is_live_for_a_second_after_a_source_commit_unless_it_is_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr("cdc.bridge.batch.time.monotonic", lambda: now)
    batch = Batch()
    assert not is_live(batch)
    batch.streamed(EPOCH_US)
    assert is_live(batch)
    batch.read([DATA])
    assert not is_live(batch), "sent two seconds after the commit"
    batch.streamed(EPOCH_US + 1_500_000)
    assert is_live(batch)
    now += 1.5
    assert not is_live(batch)
