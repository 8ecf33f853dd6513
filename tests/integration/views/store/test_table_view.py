"""A view's tables over the stores that processes share."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from cdc.views.store.open import open_store
from cdc.views.store.port import Store
from cdc.views.table.answers import Range
from cdc.views.table.facts import KeyColumn, TableFacts
from cdc.views.table.table_view import TableView
from tests.integration.views.store.redis_place import Prefix
from tests.unit.views.table.filled import Filled, row

POINTS = TableFacts(number=1, name="points", topic="points", key=(KeyColumn("x", "float8"),), generation=1)
TEXTS = TableFacts(
    number=1,
    name="texts",
    topic="texts",
    key=(KeyColumn("text", "text"),),
    columns=(KeyColumn("text", "text"), KeyColumn("note", "text")),
    indexes=(("note",),),
    generation=1,
)
DAYS = TableFacts(number=1, name="days", topic="days", key=(KeyColumn("days", "int4[]"),), generation=1)


@pytest.fixture(params=["folder", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "redis":
        place = Prefix(request.getfixturevalue("redis").url)
        with closing(place.open()) as store:
            yield store
    else:
        with closing(open_store(str(tmp_path / "store"))) as store:
            yield store


def test_rows_are_found_by_their_key_and_by_its_values(store: Store) -> None:
    Filled(store).put(*(row(region, number) for region in ("a", 'é\n"') for number in (-1, 0, 2**31)))
    view = TableView(store)
    for values in (("a", -1), ('é\n"', 0), ("a", 2**31)):
        found = view.get("public.items", values).row
        assert found is not None
        assert view.get("public.items", found.key).row == found
    assert view.get("public.items", ("a", 1)).row is None
    assert len(view.scan("public.items", Range(by={"color": "red"})).rows) == 6
    assert view.count("public.items")[0] == 6


@pytest.mark.parametrize(
    ("table", "value", "spelled"), [(POINTS, 1e15, b"1e+15"), (POINTS, 3.0, b"3"), (DAYS, [1, 2], b"[1, 2]")]
)
def test_values_that_have_several_spellings(store: Store, table: TableFacts, value: object, spelled: bytes) -> None:
    filled = Filled(store, table)
    filled.put_as(b'{"%b":%b}' % (table.key[0].name.encode(), spelled), table)
    view = TableView(store)
    found = view.get(table.name, (value,))
    assert found.row is not None
    assert spelled in found.row.key
    assert view.get(table.name, ([9] if table is DAYS else 9.5,)).row is None


def test_ranges_and_pages_over_long_keys_have_the_rows_that_belong_there(store: Store, seed: int) -> None:
    chance = random.Random(seed)
    some = {"x" * chance.choice((1, 470, 480, 600, 1_500, 2_600)) + f"{chance.randrange(60):02}" for _ in range(120)}
    texts = [*sorted(some), "y"]
    notes = {text: "n" * 3_000 + text[-1:] for text in texts}
    Filled(store, TEXTS).put(
        *({"text": text, "note": notes[text]} for text in chance.sample(texts, len(texts))), table=TEXTS
    )
    view = TableView(store)

    def scan(limit: int = 1000, **wanted: Any) -> list[str]:
        found: list[str] = []
        after: str | None = None
        while True:
            page = view.scan("texts", Range(limit=limit, after=after, **wanted))
            found += [orjson.loads(each.row)["text"] for each in page.rows]
            if (after := page.after) is None:
                return found
            assert len(after) < 500, "it would not fit into a URL"

    assert scan() == scan(2) == texts
    for _ in range(30):
        low, high = sorted(chance.sample(texts, 2))
        assert scan(start=(low,), stop=(high,)) == [each for each in texts if low <= each < high]
        assert scan(2, start=(low,)) == [each for each in texts if low <= each]
        assert scan(stop=(high,)) == [each for each in texts if each < high]
        begins = low[: chance.randrange(1, len(low) + 1)]
        assert scan(2, text=begins) == [each for each in texts if each.startswith(begins)]
        assert scan(2, by={"note": notes[low]}) == [each for each in texts if notes[each] == notes[low]]


def test_changes_are_followed(store: Store) -> None:
    filled, view = Filled(store), TableView(store)
    filled.put(row("eu", 1))
    token = view.changes("", ["public.items"]).token
    filled.put(row("eu", 2), row("eu", 1, "blue"))
    filled.delete({"region": "eu", "id": 2})
    found = view.changes(token, ["public.items"])
    assert [(each.key, each.row and each.row.row) for each in found.changed] == [
        (b'{"region":"eu","id":2}', None),
        (b'{"region":"eu","id":1}', b'{"region":"eu","id":1,"color":"blue"}'),
    ]
