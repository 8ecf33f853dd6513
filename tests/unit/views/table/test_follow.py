"""What changes in a view: behind a token, and watched as it happens."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from cdc.views.store.memory import MemoryStore
from cdc.views.store.open import open_store
from cdc.views.store.port import Store
from cdc.views.table import journal, table_view
from cdc.views.table.answers import Changes, Range, Watched
from cdc.views.table.errors import UnknownTable, WrongCursor, WrongQuestion
from cdc.views.table.facts import KeyColumn
from cdc.views.table.table_view import TableView
from tests.unit.views.table.filled import ITEMS, NAMES, Filled, row

TABLES = ("public.items",)


@pytest.fixture(params=["memory", "folder"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with closing(MemoryStore() if request.param == "memory" else open_store(str(tmp_path / "store"))) as store:
        yield store


def told(found: Changes) -> list[tuple[int, str | None]]:
    """Id and color of each change; no color when the row is gone."""
    return [(json.loads(each.key)["id"], _color(each.row)) for each in found.changed]


def _color(row: object) -> str | None:
    return None if row is None else json.loads(row.row)["color"]  # type: ignore[attr-defined]  # a row of a view, or None


def test_what_changed_is_told_once_as_it_is_now(store: Store) -> None:
    filled, view = Filled(store), TableView(store)
    filled.put(row("eu", 1), row("eu", 2))
    start = view.changes("", TABLES)
    assert (start.changed, start.reset) == ((), {})
    assert view.changes(start.token, TABLES) == start._replace(changed=[])
    filled.put(row("eu", 1, "blue"), row("eu", 3))
    filled.put(row("eu", 1, "green"))
    filled.delete({"region": "eu", "id": 2})
    found = view.changes(start.token, TABLES)
    assert told(found) == [(1, "green"), (3, "red"), (2, None)]
    assert told(view.changes(found.token, TABLES)) == []


def test_it_is_told_in_portions_also_of_one_commit(store: Store) -> None:
    filled, view = Filled(store), TableView(store)
    filled.put()
    token = view.changes("", TABLES).token
    filled.put(*(row("eu", number) for number in range(5)))
    filled.put(*(row("us", number) for number in range(5, 8)))
    seen: list[int] = []
    portions = 0
    while found := view.changes(token, TABLES, limit=3):
        if not found.changed:
            break
        assert len(found.changed) <= 3
        seen += [number for number, _ in told(found)]
        token, portions = found.token, portions + 1
    assert (sorted(seen), portions) == (list(range(8)), 3)


def test_other_tables_are_not_told(store: Store) -> None:
    filled, view = Filled(store, ITEMS, NAMES), TableView(store)
    filled.put(row("eu", 0))
    token = view.changes("", TABLES).token
    for _ in range(3):
        filled.put({"key": "a"}, table=NAMES)
    assert view.changes(token, TABLES).changed == []
    both = view.changes(token, ["names", *TABLES])
    assert [(each.table, each.key) for each in both.changed] == [("names", b'"a"')]
    filled.delete({"key": "a"}, table=NAMES)
    assert [(each.key, each.row) for each in view.changes(both.token, ["names"]).changed] == [(b'"a"', None)]


def test_a_table_that_was_read_anew_is_reset(store: Store) -> None:
    filled, view = Filled(store, ITEMS, NAMES), TableView(store)
    filled.put(row("eu", 0))
    token = view.changes("", TABLES).token
    filled.put(row("eu", 1))
    filled.put({"key": "a"}, table=NAMES)
    filled.reset()
    found = view.changes(token, [*TABLES, "names"])
    assert found.reset == {"public.items": "it was read anew"}
    assert [each.table for each in found.changed] == ["names"]
    assert view.changes(found.token, TABLES).reset == {}


def test_a_token_that_the_journal_does_not_know_is_reset(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MAX_ENTRIES", 2)
    filled, view = Filled(store), TableView(store)
    filled.put(row("eu", 0))
    token = view.changes("", TABLES).token
    for number in range(3):
        filled.put(row("eu", number))
    assert view.changes(token, TABLES).reset == {"public.items": "the journal does not reach back so far"}
    for other in ("second-1-0", "-0-0"):
        assert view.changes(other, TABLES).reset == {"public.items": "the store was recreated"}
    for nonsense in ("x", "first-1", "first-1-é", "first-1--1"):
        with pytest.raises(WrongCursor, match="invalid token"):
            view.changes(nonsense, TABLES)
    with pytest.raises(UnknownTable):
        view.changes(token, ["other"])


class Watcher:
    """Watches in a thread of its own."""

    def __init__(self, view: TableView, wanted: Range, token: str = "") -> None:
        self.stop = threading.Event()
        self.told: list[Watched] = []
        self._arrived = threading.Condition()
        self._thread = threading.Thread(target=self._run, args=[view, wanted, token])
        self._thread.start()

    def until(self, count: int) -> list[tuple[str, int | None, str | None]]:
        """The first events, and no more of them."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.told) >= count, timeout=20), self.told
        return [
            (each.kind, json.loads(each.key)["id"] if each.key else None, _color(each.row))
            for each in self.told[:count]
        ]

    def end(self) -> None:
        self.stop.set()
        self._thread.join()

    def _run(self, view: TableView, wanted: Range, token: str) -> None:
        for each in view.watch("public.items", self.stop, wanted, token):
            with self._arrived:
                self.told.append(each)
                self._arrived.notify_all()


def test_watching_brings_the_rows_and_then_what_changes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_view, "PAGE", 2)
    filled, view = Filled(store), TableView(store)
    filled.put(*(row("eu", number) for number in range(3)), row("us", 9))
    watcher = Watcher(view, Range(prefix=("eu",)))
    try:
        rows = [("row", 0, "red"), ("row", 1, "red"), ("row", 2, "red"), ("snapshot", None, None)]
        assert watcher.until(4) == rows
        filled.put(row("us", 1))
        filled.put(row("eu", 1, "blue"))
        assert watcher.until(5)[4:] == [("row", 1, "blue")]
        filled.delete({"region": "eu", "id": 0})
        assert watcher.until(6)[5:] == [("delete", 0, None)]
        filled.reset()
        filled.put(row("eu", 5))
        assert watcher.until(7)[6:] == [("reset", None, None)]
        assert ("row", 5, "red") in watcher.until(9)[7:]
    finally:
        watcher.end()
    token = watcher.told[5].token
    filled.put(row("eu", 6))
    again = Watcher(view, Range(), token)
    try:
        assert again.until(1) == [("reset", None, None)]  # the table was read anew behind that token
    finally:
        again.end()
    last = next(each.token for each in reversed(watcher.told) if each.token)
    again = Watcher(view, Range(), last)
    try:
        assert ("row", 6, "red") in again.until(1) + again.until(len(again.told))
    finally:
        again.end()


@pytest.mark.parametrize("when", ["before", "within the rows", "while nothing happens"])
def test_a_watch_ends_when_it_is_told_to(when: str) -> None:
    store = MemoryStore()
    filled, view = Filled(store), TableView(store)
    filled.put(*(row("eu", number) for number in range(3)))
    stop = threading.Event()
    if when == "before":
        stop.set()
    watching = view.watch("public.items", stop)
    if when == "within the rows":
        next(watching)
        stop.set()
    if when == "while nothing happens":
        assert [next(watching).kind for _ in range(4)][-1] == "snapshot"
        threading.Timer(0.05, stop.set).start()
    assert "snapshot" not in [each.kind for each in watching]


def test_a_watcher_that_is_slow_ends_with_the_rows_that_are_there(store: Store) -> None:
    filled, view = Filled(store), TableView(store)
    filled.put(row("eu", 0))
    stop, seen = threading.Event(), {}
    watching = view.watch("public.items", stop)
    for number in range(50):
        filled.put(row("eu", number % 7, f"color {number}"))
        if number % 5 == 0:
            event = next(watching)
            if event.row is not None:
                seen[event.key] = event.row
    expected = {each.key: each for each in view.scan("public.items").rows}
    while seen != expected:
        event = next(watching)
        if event.row is not None:
            seen[event.key] = event.row
    stop.set()
    assert list(watching) == []


def test_a_watch_of_a_range_goes_on_when_its_values_sort_otherwise(store: Store) -> None:
    filled, view, stop = Filled(store), TableView(store), threading.Event()
    filled.put()
    watched = view.watch("public.items", stop, Range(prefix=(5,)))
    assert next(watched).kind == "snapshot"
    turned = replace(ITEMS, key=(KeyColumn("id", "float8"), KeyColumn("region", "text")))
    filled.tables["public.items"] = turned
    filled.reset(turned)
    assert [next(watched).kind for _ in range(2)] == ["reset", "snapshot"]
    filled.put(row("us", 1), row("eu", 5), table=turned)
    told = next(watched)
    stop.set()
    assert (told.kind, told.key) == ("row", b'{"id":5,"region":"eu"}')


def test_a_watch_of_what_is_no_range_is_refused(store: Store) -> None:
    Filled(store).put()
    with pytest.raises(WrongQuestion, match="a key has 2 values"):
        next(TableView(store).watch("public.items", threading.Event(), Range(prefix=(1, 2, 3))))


def test_a_folder_made_anew_goes_on_with_greater_versions(tmp_path: Path) -> None:
    versions = []
    for _ in range(2):
        with closing(open_store(str(tmp_path / "store"))) as store:
            versions.append(Filled(store).put(row("eu", 1)))
        shutil.rmtree(tmp_path / "store")
    assert versions == sorted(set(versions))
