"""Which records lie in the partition where their key belongs; the same in C."""

from __future__ import annotations

import random

import pytest

from cdc.base.compiled import twin
from cdc.contract.partition import partition_of
from cdc.contract.ports import StoredRecord
from cdc.kafka.replay.home import sift


def record(topic: str, partition: int, offset: int, key: bytes | None) -> StoredRecord:
    return StoredRecord(topic, partition, offset, key, b"{}", b"")


def test_what_lies_elsewhere_is_sorted_out_in_order() -> None:
    keys = [b'{"id":%d}' % number for number in range(100)]
    right = [record("t", partition_of(key, 3), at, key) for at, key in enumerate(keys)]
    wrong = [each._replace(partition=(each.partition + 1) % 3) for each in right]
    mixed = [each for both in zip(wrong, right, strict=True) for each in both]
    assert sift(mixed, {"t": 3}) == (right, wrong)


def test_records_that_are_where_they_are_in_any_case() -> None:
    strange = [record("t", 2, 0, None), record("single", 0, 0, b"a"), record("of nobody", 7, 0, b"a")]
    assert sift(strange, {"t": 3, "single": 1}) == (strange, [])


@pytest.mark.skipif(twin("cdc.kafka.replay._home") is None, reason="nothing was compiled")
def test_the_twin_sorts_alike() -> None:
    rng = random.Random(3)
    counts = {"a": 1, "b": 2, "c": 7, "d": 1_000}
    records = [
        record(rng.choice("abcde"), rng.randrange(8), at, rng.choice((None, rng.randbytes(rng.randrange(40)))))
        for at in range(5_000)
    ]
    assert twin("cdc.kafka.replay._home").sift(records, counts) == sift(records, counts)
    for length in range(60):
        key = rng.randbytes(length)
        home = partition_of(key, 1_000_003)
        there = [record("t", home, 0, key)]
        assert twin("cdc.kafka.replay._home").sift(there, {"t": 1_000_003}) == (there, [])
