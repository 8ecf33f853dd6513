"""What a commit tells its followers."""

from __future__ import annotations

import pytest

from cdc.views.store.memory import MemoryStore
from cdc.views.store.port import Item, Key
from cdc.views.table import filling, journal
from cdc.views.table.filling import News
from cdc.views.table.records import NewRow, NoRow, TableChanges


def changes(*names: bytes, gone: bytes = b"gone", no_key: bytes = b"\xfe\x40x") -> TableChanges:
    rows = [NewRow(Item(Key(name, name), b"row"), ()) for name in names]
    no_rows = [NoRow(Key(b"poison", b"poison"), True, b"{}"), NoRow(Key(no_key, no_key), False, b"{}")]
    return TableChanges("topic", rows, [Key(gone, gone)], no_rows)


def told(gathered: News) -> journal.JournalEntry:
    store = MemoryStore()
    assert store.lock()
    transaction = store.begin()
    gathered.write(transaction, 7, 8)
    transaction.commit()
    found = store.read(lambda snapshot: journal.read(snapshot, 0)).entries
    assert len(found) == 1
    return found[0][1]


def test_each_key_once_and_no_keys_that_are_none() -> None:
    gathered = News()
    gathered.add("t", changes(b"a", b"b"))
    gathered.add("t", changes(b"b"))
    entry = told(gathered)
    assert (entry.lsn, entry.commit_ts, entry.reset) == (7, 8, ())
    assert sorted(each.text for each in entry.keys["t"]) == [b"a", b"b", b"gone", b"poison"]


def test_a_table_to_be_read_anew_tells_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    gathered = News()
    gathered.add("t", changes(b"a"))
    gathered.reset(["t"])
    gathered.add("t", changes(b"b"))
    monkeypatch.setattr(filling, "MAX_KEYS", 3)
    gathered.add("large", changes(b"a", b"b", b"c"))
    entry = told(gathered)
    assert (entry.keys, entry.reset) == ({}, ("large", "t"))


def test_many_tables_together_keep_no_more_than_the_journal_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filling, "MAX_KEYS", 7)
    gathered = News()
    for table in ("a", "b", "c"):
        gathered.add(table, changes(b"a"))
    assert told(gathered).reset == ("a", "b", "c")


def test_what_was_forgotten_is_not_told_later() -> None:
    gathered = News()
    gathered.add("t", changes(b"a"))
    gathered.forget()
    gathered.add("t", changes(b"b"))
    assert sorted(each.text for each in told(gathered).keys["t"]) == [b"b", b"gone", b"poison"]
