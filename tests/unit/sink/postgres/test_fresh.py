"""Which keys a table had before: believed too often at times, never too seldom."""

from __future__ import annotations

import random

import pytest

from cdc.base.compiled import twin
from cdc.contract.ports import StoredRecord
from cdc.sink.postgres.fresh import FreshTables, split


def upserts(*ids: int) -> list[StoredRecord]:
    return [StoredRecord("t", 0, each, b'{"id":%d}' % each, b"{}", b"") for each in ids]


def test_a_key_is_new_once() -> None:
    fresh = FreshTables()
    fresh.add("t")
    first, second = upserts(*range(5_000)), upserts(*range(4_000, 9_000))
    new, others = fresh.split("t", first)
    assert len(new) >= 4_990, "two keys of some thousands share a bit at times"
    assert sorted([*new, *others]) == sorted(first)
    new, others = fresh.split("t", second)
    assert {each.offset for each in others} >= set(range(4_000, 5_000))
    assert len(new) >= 3_980


def test_tables_do_not_know_each_others_keys() -> None:
    fresh = FreshTables()
    fresh.add("t")
    fresh.add("u")
    fresh.split("t", upserts(*range(1_000)))
    assert len(fresh.split("u", upserts(*range(1_000)))[0]) >= 990


def test_nothing_is_new_to_other_tables() -> None:
    fresh = FreshTables()
    fresh.add("t")
    fresh.split("t", upserts(1))
    fresh.discard("t")
    rows = upserts(*range(2, 1_000))
    assert "t" not in fresh
    assert fresh.split("t", rows) == ((), rows)
    assert fresh.split("never there", rows) == ((), rows)


@pytest.mark.skipif(twin("cdc.sink.postgres._fresh") is None, reason="nothing was compiled")
def test_the_twin_splits_alike() -> None:
    rng = random.Random(5)
    fields = bytearray(1 << 9), bytearray(1 << 9)
    for salt in 0, -7, hash("t"), (1 << 63) - 1, -(1 << 63):
        rows = upserts(*rng.sample(range(10_000), 700))
        assert twin("cdc.sink.postgres._fresh").split(fields[0], salt, rows) == split(fields[1], salt, rows)
        assert fields[0] == fields[1]
