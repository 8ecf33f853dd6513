"""The audit itself: it must be able to fail."""

from __future__ import annotations

import pytest

from cdc.contract.ports import StoredRecord
from tests.support.topic_audit import audit


def record(key: str, lsn: str, seq: int, *, partition: int = 0) -> StoredRecord:
    header = f"v=1;op=u;lsn={lsn};seq={seq};xid=1;ts=0;schema=0".encode()
    return StoredRecord("t", partition, 0, key.encode(), b"{}", header)


GOOD = [record("a", "0/10", 1), record("b", "0/10", 1), record("a", "0/10", 2), record("a", "1/0", 1)]


def test_positions_that_only_grow_pass() -> None:
    assert audit([*GOOD, record("c", "0/1", 1, partition=1)]) == []


def tombstone(op: str) -> StoredRecord:
    return record("a", "2/0", 1)._replace(value=None, header=f"v=1;op={op};lsn=2/0;seq=1;xid=1;ts=0;schema=0".encode())


def test_a_change_has_the_position_of_the_tombstones_that_it_caused() -> None:
    """Of a table that begins anew: the first change of the new table is one of a key that the former one had."""
    assert audit([*GOOD, tombstone("t"), tombstone("d")]) == []
    assert audit([*GOOD, tombstone("t"), record("a", "2/0", 1)]) == []


@pytest.mark.parametrize("twice", ["dd", "tt", "dt", "tdd"])
def test_other_tombstones_at_one_position_came_twice(twice: str) -> None:
    assert any("came twice" in each for each in audit([*GOOD, *map(tombstone, twice)]))


@pytest.mark.parametrize(
    ("bad", "fault"),
    [
        (record("a", "1/0", 1), "came twice"),
        (record("a", "0/FFFFFFFF", 7), "went back from 100000000#1"),
        (record("b", "0/10", 9), "behind a record of 100000000#1 in the same partition"),
        (record("a", "2/0", 1, partition=1), "the key also lies in partition 0"),
    ],
)
def test_a_record_out_of_order_is_named(bad: StoredRecord, fault: str) -> None:
    faults = audit([*GOOD, bad])
    assert any(fault in each for each in faults), faults
