"""Keys below an offset, in passes: the answer of one that remembers everything, and never more held than allowed."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from cdc.contract.ports import StoredRecord
from cdc.kafka.replay.live_keys import MAX_KEY_BYTES, keys_below


class Partition:
    """Random records with gaps, as compaction leaves them, and the pass that is being read."""

    def __init__(self, seed: int, keys: int, records: int) -> None:
        choose = random.Random(seed)
        self.records: list[StoredRecord] = []
        self.passes = 0
        offset = 0
        for _ in range(records):
            offset += choose.choice((1, 1, 2, 50))
            key = None if choose.random() < 0.01 else b"key %d" % choose.randrange(keys)
            value = None if choose.random() < 0.3 else choose.choice((b"", b"null", b"{}"))
            self.records.append(StoredRecord("t", 0, offset, key, value, b""))
        self.end = offset + 1

    def read(self) -> Iterator[StoredRecord]:
        self.passes += 1
        yield from self.records

    def expected(self, below: int) -> set[bytes]:
        latest = {each.key: each for each in self.records if each.key is not None}
        return {key for key, each in latest.items() if each.value is not None and each.offset < below}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("max_key_bytes", [2_000, 10_000, 10_000_000])
def test_every_key_comes_once_whatever_the_memory(seed: int, max_key_bytes: int) -> None:
    partition = Partition(seed, keys=400, records=900)
    for below in (0, 1, partition.end // 3, partition.end):
        found = list(keys_below(partition.read, below, max_key_bytes))
        assert len(found) == len(set(found))
        assert set(found) == partition.expected(below)
    assert (partition.passes == 4) == (max_key_bytes > 1_000_000)


def test_a_pass_holds_what_it_may_and_a_small_topic_is_read_once() -> None:
    rows = [StoredRecord("t", 0, i, b"key %05d" % i, b"{}", b"") for i in range(20_000)]
    reads = 0

    def read() -> Iterator[StoredRecord]:
        nonlocal reads
        reads += 1
        return iter(rows)

    held: dict[int, int] = {}
    for _ in keys_below(read, 20_000, 250_000):
        held[reads] = held.get(reads, 0) + 1
    assert sum(held.values()) == 20_000
    assert max(held.values()) * (9 + 110) <= 250_000
    assert len(held) == reads == 16
    reads = 0
    assert len(list(keys_below(read, 20_000, MAX_KEY_BYTES))) == 20_000
    assert reads == 1


def test_deleted_keys_need_no_passes() -> None:
    """A topic with a long history and few live keys is read once: what counts is what is alive at a time."""
    history = [
        StoredRecord("t", 0, 2 * i + half, b"key %d" % i, (b"{}", None)[half], b"")
        for i in range(5_000)
        for half in (0, 1)
    ]
    reads = 0

    def read() -> Iterator[StoredRecord]:
        nonlocal reads
        reads += 1
        return iter(history)

    assert list(keys_below(read, 10_000, 1_000)) == []
    assert reads == 1
