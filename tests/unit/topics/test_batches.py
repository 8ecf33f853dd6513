"""Batch headers are read as Kafka writes them, and whatever else comes is no batch."""

from __future__ import annotations

import struct

import pytest

from cdc.topics.batches import RecordBatch, parse_batches


def batch(base: int, last_delta: int, records: int, *, attributes: int = 0, payload: bytes = b"..") -> bytes:
    """Bytes of a batch in the field order of Kafka's protocol page."""
    fields = (0, 2, 0, attributes, last_delta, 1_000, 2_000, 7, 3, 0, records)
    body = struct.pack(">ibIhiqqqhii", *fields) + payload
    return struct.pack(">qi", base, len(body)) + body


def test_a_batch_is_read_with_all_that_matters() -> None:
    (found,) = parse_batches(batch(40, 4, 5))

    assert found == RecordBatch(40, 44, 63, 5, 2_000, None, None, is_control=False)
    assert not found.was_cleaned


@pytest.mark.parametrize(
    ("data", "horizon", "producer", "is_control"),
    [
        (batch(1, 0, 1, attributes=0x10), None, (7, 3), False),
        (batch(1, 0, 1, attributes=0x30), None, (7, 3), True),
        (batch(1, 0, 1, attributes=0x40), 1_000, None, False),
        (batch(1, 0, 1, attributes=0x04), None, None, False),  # compressed
    ],
)
def test_attributes(data: bytes, horizon: int | None, producer: tuple[int, int] | None, is_control: bool) -> None:
    (found,) = parse_batches(data)

    assert (found.horizon_ms, found.producer, found.is_control) == (horizon, producer, is_control)


@pytest.mark.parametrize("data", [batch(0, 9, 7), batch(0, 9, 0), batch(0, 0, 1, attributes=0x40)])
def test_the_cleaners_marks(data: bytes) -> None:
    (found,) = parse_batches(data)

    assert found.was_cleaned


def test_a_batch_that_the_broker_cut_off_is_left_for_the_next_fetch() -> None:
    whole = batch(0, 0, 1) + batch(1, 0, 1)

    for length in range(len(whole)):
        assert len(list(parse_batches(whole[:length]))) == (1 if length >= 63 else 0)


def test_messages_of_old_brokers_are_one_record_each() -> None:
    old = struct.pack(">qiIbb", 12, 30, 0, 1, 0) + bytes(24)

    (found,) = parse_batches(old)

    assert (found.base, found.last, found.size, found.max_ms) == (12, 12, 42, -1)
