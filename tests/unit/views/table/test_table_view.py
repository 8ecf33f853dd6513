"""A view that is asked: over the store in memory, and over a folder."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from cdc.base.errors import ConfigError
from cdc.base.lsn import LSN
from cdc.views.store.memory import MemoryStore
from cdc.views.store.open import open_store
from cdc.views.store.port import Key, Store, StoreSnapshot
from cdc.views.table import facts as facts_module
from cdc.views.table import table_view
from cdc.views.table.answers import Evidence, Page, Range
from cdc.views.table.errors import NotLoaded, UnknownIndex, UnknownTable, WrongCursor, WrongKey, WrongQuestion
from cdc.views.table.facts import KeyColumn, TableFacts
from cdc.views.table.rows import StoredRow
from cdc.views.table.table_keys import TableKeys
from cdc.views.table.table_view import TableView
from tests.unit.views.table.filled import ITEMS, NAMES, NOW, VIEW, Filled, row


@pytest.fixture(params=["memory", "folder"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with closing(MemoryStore() if request.param == "memory" else open_store(str(tmp_path / "store"))) as store:
        yield store


def shown(page: Page) -> list[tuple[str, int]]:
    return [(found["region"], found["id"]) for found in (json.loads(each.row) for each in page.rows)]


def test_an_answer_says_that_the_view_fell_behind_although_nothing_was_committed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    Filled(store).put(row("eu", 7), caught_up_at=NOW)
    view = TableView(store)
    for late_s, state in ((0, "exact"), (60, "exact"), (61, "behind"), (3600, "behind"), (30, "exact")):
        monkeypatch.setattr(time, "time", lambda late_s=late_s: NOW + late_s)
        assert view.get("public.items", ["eu", 7]).evidence.state == state, late_s


def test_a_row_is_found_by_its_key_with_its_evidence(store: Store) -> None:
    version = Filled(store).put(row("eu", 7))
    view = TableView(store)
    found = view.get("public.items", b'{"region":"eu","id":7}')
    assert found.row == StoredRow(
        b'{"region":"eu","id":7}', b'{"region":"eu","id":7,"color":"red"}', 3, 17, LSN(100), 5
    )
    assert found.evidence == Evidence("first", version, "7,1,5", LSN(100), "exact", "", 1, 1, NOW)
    assert found.evidence.age_s is not None
    assert 0 <= found.evidence.age_s < 60
    assert view.get("public.items", ("eu", 7)) == found
    assert view.get("public.items", ("eu", 8))[:2] == (None, None)


def test_what_is_no_row_is_told_with_its_coordinates(store: Store) -> None:
    filled = Filled(store)
    filled.put(row("eu", 7), row("eu", 8))
    filled.cannot_read({"region": "eu", "id": 7}, "its value is not JSON")
    many = TableView(store).get_many("public.items", [("eu", 7), ("eu", 8), ("eu", 9)])
    broken, there, missing = many.found
    assert broken.row is None
    assert broken.unreadable is not None
    assert (broken.unreadable.partition, broken.unreadable.offset, broken.unreadable.reason) == (
        3, 17, "its value is not JSON",
    )  # fmt: skip
    assert (many.evidence.state, there.unreadable, missing[:2]) == ("degraded", None, (None, None))
    assert there.row is not None


def test_facts_are_decoded_once_for_each_version(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []

    def counting(snapshot: StoreSnapshot) -> facts_module.Facts:
        decoded.append(snapshot.version)
        return facts_module.read_facts(snapshot)

    monkeypatch.setattr(table_view, "read_facts", counting)
    filled, view = Filled(store), TableView(store)
    versions = []
    for number in range(3):
        versions.append(filled.put(row("eu", number)))
        for _ in range(5):
            assert view.get("public.items", ("eu", number)).row is not None
            assert view.count("public.items")[0] == number + 1
    assert decoded == versions


def test_a_store_that_was_made_anew_is_noticed_at_the_same_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_view, "CHECK_S", 0)
    first, second = MemoryStore(), MemoryStore()
    Filled(first).put(row("eu", 7))
    Filled(second, msgspec.structs.replace(ITEMS, generation=9), view=msgspec.structs.replace(VIEW, store_id="b")).put()
    view = TableView(first)
    assert view.facts().tables["public.items"].generation == 1
    vars(first)["contents"] = second.contents
    assert view.facts().tables["public.items"].generation == 9


def test_before_anything_was_written_there_are_no_tables(store: Store) -> None:
    view = TableView(store)
    assert (view.version(), dict(view.tables())) == (0, {})
    with pytest.raises(UnknownTable, match="has none yet"):
        view.get("public.items", ("eu", 7))


def test_a_table_that_has_nothing_to_show_is_not_an_empty_one(store: Store) -> None:
    Filled(store, msgspec.structs.replace(ITEMS, generation=0, state="loading")).know()
    view = TableView(store)
    for ask in (
        lambda: view.get("public.items", ("eu", 7)),
        lambda: view.scan("public.items"),
        lambda: view.count("public.items"),
    ):
        with pytest.raises(NotLoaded, match="first time"):
            ask()
    with pytest.raises(UnknownTable, match=r"no table other; it has public\.items"):
        view.get("other", ("eu", 7))


def test_ranges_and_prefixes(store: Store) -> None:
    Filled(store).put(*(row(region, number) for region in ("a", "eu", "euro", "us") for number in range(3)))
    view = TableView(store)

    def scan(**wanted: object) -> list[tuple[str, int]]:
        return shown(view.scan("public.items", Range(**wanted)))  # type: ignore[arg-type]  # keywords, checked when it runs

    assert len(scan()) == 12
    assert scan(prefix=("eu",)) == [("eu", 0), ("eu", 1), ("eu", 2)]
    assert {region for region, _ in scan(text="eu")} == {"eu", "euro"}
    assert scan(prefix=("us", 1)) == [("us", 1)]
    assert scan(start=("eu", 2), stop=("euro", 1)) == [("eu", 2), ("euro", 0)]
    assert scan(start=("us",)) == [("us", 0), ("us", 1), ("us", 2)]
    assert scan(prefix=("eu",), start=("eu", 1)) == [("eu", 1), ("eu", 2)]
    assert scan(prefix=("none",)) == scan(start=("us",), stop=("eu",)) == []
    with pytest.raises(WrongQuestion, match="a key has 2 values, but 3 were given"):
        scan(prefix=("eu", 1, 2))
    with pytest.raises(WrongQuestion, match="beyond 64 bits"):
        scan(prefix=("eu", 1 << 70))
    assert scan(prefix=("x" * 2_000,)) == []


def test_indexes(store: Store) -> None:
    Filled(store).put(row("eu", 1, "red"), row("us", 2, "blue"), row("us", 1, "red"), row("a", 9, "red"))
    view = TableView(store)
    assert shown(view.scan("public.items", Range(by={"color": "red"}))) == [("a", 9), ("eu", 1), ("us", 1)]
    assert shown(view.scan("public.items", Range(by={"color": "red", "id": 1}))) == [("eu", 1), ("us", 1)]
    first = view.scan("public.items", Range(by={"color": "red"}, limit=2))
    second = view.scan("public.items", Range(by={"color": "red"}, limit=2, after=first.after))
    assert (shown(first), shown(second), second.after) == ([("a", 9), ("eu", 1)], [("us", 1)], None)
    with pytest.raises(UnknownIndex, match=r"begins with \(id\); it has color; color, id"):
        view.scan("public.items", Range(by={"id": 1}))


def test_pages_follow_each_other_while_the_table_changes(store: Store) -> None:
    filled, view = Filled(store), TableView(store)
    filled.put(*(row("eu", number) for number in range(0, 20, 2)))
    pages = [view.scan("public.items", Range(limit=4))]
    filled.put(row("eu", 1), row("eu", 9))
    filled.delete({"region": "eu", "id": 6})
    while pages[-1].after is not None:
        pages.append(view.scan("public.items", Range(limit=4, after=pages[-1].after)))
    assert [[number for _, number in shown(page)] for page in pages] == [[0, 2, 4, 6], [8, 9, 10, 12], [14, 16, 18]]


def test_a_page_goes_on_in_the_next_generation(store: Store) -> None:
    filled, view = Filled(store), TableView(store)
    filled.put(row("eu", 1), row("eu", 2))
    page = view.scan("public.items", Range(limit=1))
    filled.reset()
    filled.put(row("eu", 0), row("eu", 3))
    following = view.scan("public.items", Range(limit=1, after=page.after))
    assert (shown(following), following.evidence.generation) == ([("eu", 3)], 2)


def test_cursors_of_something_else_are_refused(store: Store) -> None:
    filled = Filled(store, ITEMS, NAMES)
    filled.put(row("eu", 1), row("eu", 2))
    filled.put({"key": "a"}, {"key": "b"}, table=NAMES)
    view = TableView(store)
    after = view.scan("public.items", Range(limit=1)).after
    of_names = view.scan("names", Range(limit=1)).after
    of_index = view.scan("public.items", Range(by={"color": "red"}, limit=1)).after
    for cursor, words in (
        (of_names, "for table names, not public.items"),
        (of_index, "for another index or another key"),
        ("nonsense", "invalid cursor"),
        ("é", "invalid cursor"),
        ("", "invalid cursor"),
    ):
        with pytest.raises(WrongCursor, match=words):
            view.scan("public.items", Range(after=cursor))
    filled.know(store_id="second")
    with pytest.raises(WrongCursor, match="another store"):
        view.scan("public.items", Range(after=after))
    filled.know(msgspec.structs.replace(ITEMS, key=(KeyColumn("id", "int4"),)), store_id="first")
    with pytest.raises(WrongCursor, match="another key"):
        view.scan("public.items", Range(after=after))


def test_keys_of_other_programs(store: Store) -> None:
    filled = Filled(store, ITEMS, NAMES)
    filled.put({"key": "Ada"}, {"key": "Adam"}, {"key": "é"}, table=NAMES)
    view = TableView(store)
    found = view.get("names", b"Ada").row
    assert found is not None
    assert found.key == b'"Ada"'
    assert view.get("names", ("é",)).row is not None
    page = view.scan("names", Range(text="Ada"))
    assert [each.key for each in page.rows] == [b'"Ada"', b'"Adam"']
    assert view.key("names", "Ada") == b"Ada"


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ('{"region":"eu","id":7}', b'{"region":"eu","id":7}'),
        ("id=7,region=eu", b'{"region":"eu","id":7}'),
        ('{ "id":7, "region":"a=b,c" }', b'{"region":"a=b,c","id":7}'),
    ],
)
def test_keys_as_people_write_them(written: str, key: bytes) -> None:
    store = MemoryStore()
    Filled(store).know()
    assert TableView(store).key("public.items", written) == key


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("7", "neither a JSON object nor column=value"),
        ("id=7", r"names \(id\), the key is \(region, id\)"),
        ("id=x,region=eu", "id is int4, not 'x'"),
        ('{"id":null,"region":"eu"}', "cannot be NULL"),
    ],
)
def test_what_is_no_key_is_refused(written: str, words: str) -> None:
    store = MemoryStore()
    Filled(store).know()
    with pytest.raises(WrongKey, match=words):
        TableView(store).key("public.items", written)


def test_the_text_of_a_key_counts_only_where_the_bridge_writes_it_like_that() -> None:
    keys = TableKeys("columns", ITEMS.key)
    usual = keys.of_record(b'{"region":"eu","id":1}')
    assert usual.text == b'{"region":"eu","id":1}'
    for other in (b'{"region": "eu", "id": 1}', b'{"id":1,"region":"eu"}'):
        assert keys.of_record(other) == Key(usual.order, b"")


def test_the_only_value_of_a_key_needs_no_name() -> None:
    store = MemoryStore()
    Filled(store, TableFacts(number=1, name="t", topic="t", key=(KeyColumn("id", "int8"),), generation=1)).know()
    view = TableView(store)
    assert view.key("t", "42") == view.key("t", "id=42") == view.key("t", '{"id":42}') == b'{"id":42}'
    with pytest.raises(WrongKey, match="id is int8, not 'x'"):
        view.key("t", "x")
    for wrong in (b"x", b'{"other":1}', ("a", "b"), (1 << 70,)):
        with pytest.raises(WrongKey):
            view.get("t", wrong)


def test_waiting_for_an_lsn_and_for_an_offset(store: Store) -> None:
    filled, view = Filled(store), TableView(store)
    assert not view.wait_for_lsn(LSN(1), 0.05)
    filled.know(lsn=100)
    assert view.wait_for_lsn(LSN(100), 0)
    assert not view.wait_for_lsn(LSN(101), 0.05)
    assert view.wait_for_offset(ITEMS.topic, 1, 6, 0)
    assert not view.wait_for_offset(ITEMS.topic, 1, 7, 0.05)
    assert not view.wait_for_offset(ITEMS.topic, 2, 0, 0)
    assert not view.wait_for_offset("other", 0, 0, 0)
    filled.know(feed="topics")
    with pytest.raises(WrongQuestion, match="no LSNs"):
        view.wait_for_lsn(LSN(1), 0)


def test_a_missing_extra_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "lmdb" else object())
    with pytest.raises(ConfigError, match="needs the extra view; not installed: lmdb") as caught:
        open_store("somewhere")
    assert "[view]" in str(caught.value)
