"""A compacted topic as a state: latest value by key, tombstones, and what compaction may leave of it."""

from __future__ import annotations

import random
import sys

from cdc.contract.ports import StoredRecord
from cdc.state.entries import ABSENT, Change, Entries, Entry


def record(offset: int, key: bytes | None, value: bytes | None) -> StoredRecord:
    return StoredRecord("t", 0, offset, key, value, b"")


def test_the_latest_value_of_a_key_counts() -> None:
    entries = Entries()
    letters = [
        (b"A", b"1"),
        (b"B", b"2"),
        (b"A", b"3"),
        (b"C", b"1"),
        (b"B", b"4"),
        (b"A", b"5"),
        (b"C", b"2"),
        (b"B", b"6"),
    ]
    entries.take(record(offset, *each) for offset, each in enumerate(letters))
    assert entries.now == {b"A": Entry(b"5", 5), b"C": Entry(b"2", 6), b"B": Entry(b"6", 7)}
    assert [entries.version(key) for key in (b"A", b"B", b"Z")] == [5, 7, ABSENT]


def test_changes_say_what_was_and_what_is() -> None:
    entries = Entries()
    changes = entries.take([record(0, b"a", b"1"), record(1, b"a", b"2"), record(2, b"a", None)])
    one, two = Entry(b"1", 0), Entry(b"2", 1)
    assert changes == [Change(b"a", None, one), Change(b"a", one, two), Change(b"a", two, None)]
    assert entries.now == {}


def test_deleting_what_is_not_there_changes_nothing() -> None:
    entries = Entries()
    assert entries.take([record(0, b"gone", None), record(1, None, b"keyless"), record(2, None, None)]) == []
    assert entries.now == {}


def test_only_a_missing_value_deletes() -> None:
    entries = Entries()
    entries.take([record(0, b"a", b""), record(1, b"b", b"null")])
    assert entries.now == {b"a": Entry(b"", 0), b"b": Entry(b"null", 1)}


def test_whatever_compaction_takes_away_the_state_is_the_same() -> None:
    seed = random.randrange(10**6)
    sys.stdout.write(f"seed {seed}\n")
    rng = random.Random(seed)
    for _ in range(200):
        keys = [b"%d" % rng.randrange(6) for _ in range(rng.randrange(1, 40))]
        log = [record(offset, key, None if rng.random() < 0.3 else b"%d" % offset) for offset, key in enumerate(keys)]
        whole = Entries()
        whole.take(log)
        latest = {each.key: each.offset for each in log}
        kept: list[StoredRecord] = []
        for each in log:
            is_latest = latest[each.key] == each.offset
            # A superseded record may go; of the latest ones only a tombstone, and only when nothing older is left.
            older = any(other.key == each.key for other in kept)
            must_stay = is_latest and (each.value is not None or older)
            if must_stay or rng.random() < 0.5:
                kept.append(each)
        compacted = Entries()
        compacted.take(kept)
        assert compacted.now == whole.now
