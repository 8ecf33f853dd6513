"""What commits changed, told to those who follow."""

from __future__ import annotations

import random

import pytest

from cdc.views.store.memory import MemoryStore
from cdc.views.store.port import Store
from cdc.views.table import journal
from cdc.views.table.facts import JOURNAL
from cdc.views.table.journal import Changed, JournalCommits, JournalEntry


@pytest.fixture
def store() -> Store:
    store = MemoryStore()
    assert store.lock()
    return store


def change(store: Store, **keys: int) -> int:
    """A commit that changes so many keys of tables."""
    transaction = store.begin()
    entry = JournalEntry(7, 8, {table: some(count, transaction.version) for table, count in keys.items()})
    journal.write(transaction, entry)
    return transaction.commit()


def some(count: int, salt: int = 0) -> list[Changed]:
    return [Changed(b"%d/%d" % (salt, number), b"%d" % number) for number in range(count)]


def told(store: Store, after: int, limit: int = 100) -> JournalCommits:
    return store.read(lambda s: journal.read(s, after, limit))


def test_nothing_is_told_of_nothing(store: Store) -> None:
    assert told(store, 0) == JournalCommits([], 0, is_gap=False)
    change(store)
    assert told(store, 0) == JournalCommits([], 1, is_gap=False)
    assert store.read(lambda s: s.count(JOURNAL)) == 0


def test_each_commit_is_told_with_its_keys(store: Store) -> None:
    change(store, orders=2, items=1)
    change(store)
    change(store, orders=1)
    first, second = (
        JournalEntry(7, 8, {"orders": some(2, 1), "items": some(1, 1)}),
        JournalEntry(7, 8, {"orders": some(1, 3)}),
    )
    assert told(store, 0) == JournalCommits([(1, first), (3, second)], 3, is_gap=False)
    assert told(store, 1) == told(store, 2) == JournalCommits([(3, second)], 3, is_gap=False)
    assert told(store, 3) == JournalCommits([], 3, is_gap=False)


def test_it_is_told_in_portions(store: Store) -> None:
    for _ in range(5):
        change(store, orders=1)
    change(store)
    seen, after = [], 0
    for _ in range(3):
        portion = told(store, after, limit=2)
        seen += [version for version, _ in portion.entries]
        after = portion.version
    assert (seen, after) == ([1, 2, 3, 4, 5], 6)


def test_a_version_that_the_store_never_had_is_a_gap(store: Store) -> None:
    change(store, orders=1)
    assert told(store, 2) == JournalCommits((), 1, is_gap=True)


def test_commits_before_the_first_that_was_told_are_a_gap(store: Store) -> None:
    store.begin().commit()
    store.begin().commit()
    change(store, orders=1)
    assert told(store, 1).is_gap
    assert not told(store, 2).is_gap


def test_more_keys_than_are_kept_are_a_reset(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MAX_KEYS", 10)
    change(store, orders=2)
    change(store, orders=6, items=6)
    (_, first), (_, second) = told(store, 0).entries
    assert (len(first.keys["orders"]), second) == (2, JournalEntry(7, 8, {}, ("items", "orders")))


@pytest.mark.parametrize("seed", range(20))
def test_it_holds_the_newest_that_fit(store: Store, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(journal, "MAX_KEYS", 50)
    monkeypatch.setattr(journal, "MAX_ENTRIES", 12)
    monkeypatch.setattr(journal, "LINKS_AT_ONCE", 4)
    chance = random.Random(seed)
    changed: list[tuple[int, int]] = []
    for _ in range(200):
        if chance.random() < 0.3:
            for _ in range(chance.randrange(8)):
                store.begin().commit()
        count = chance.choice((0, 1, 1, 2, 5, 20, 50))
        version = change(store, orders=count)
        if count:
            changed.append((version, count))
        kept: list[int] = []
        held = 0
        for version, keys in reversed(changed[-12:]):
            held += keys
            if held > 50:
                break
            kept.insert(0, version)
        if not kept:
            continue
        if len(kept) < len(changed):
            before = changed[-len(kept) - 1][0]
            assert told(store, before - 1).is_gap
            assert [version for version, _ in told(store, before).entries] == kept
            assert not told(store, before).is_gap
        assert store.read(lambda s: s.count(JOURNAL)) == 2 * len(kept)  # a head, and a link but for the last
