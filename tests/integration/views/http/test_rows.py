"""Rows by key, by page and by batch, as a client sees them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import orjson
import pytest

from cdc.base.web.problem import Problem
from cdc.views.query.past import Past
from cdc.views.store.port import Store
from tests.integration.views.http.conftest import ADA, BOB, CY, Serve, planted
from tests.support.planted_view import SOURCE, PlantedView
from tests.support.waiting import eventually


def test_a_row_is_the_bytes_that_are_stored_with_its_evidence(store: Store, serve: Serve) -> None:
    view = planted(store)
    got = serve(store).get("/v1/tables/public.users/rows/1")
    assert got.status_code == 200
    assert got.content == orjson.dumps(ADA)
    assert got.headers["content-type"] == "application/json"
    told = {
        name: got.headers[f"cdc-{name}"] for name in ("state", "lsn", "partition", "offset", "generation", "source")
    }
    assert told == {
        "state": "exact",
        "lsn": "0/1030",
        "partition": "0",
        "offset": "1",
        "generation": "1",
        "source": SOURCE,
    }
    assert got.headers["cdc-row-lsn"] == "0/1010"
    assert 0 <= float(got.headers["cdc-age"]) < 60
    assert got.headers["etag"] == f'"{view.facts.store_id[:8]}-1-1-0-1"'


@pytest.mark.parametrize(
    ("path", "row"),
    [
        ("public.stock/rows/eu/2", {"region": "eu", "item": 2, "amount": "1.50"}),
        ("public.stock/rows/a%2Fb/7", {"region": "a/b", "item": 7, "amount": "1.50"}),
        ('public.stock/rows?key={"item":2,"region":"eu"}', {"region": "eu", "item": 2, "amount": "1.50"}),
        ("events/rows/first", {"n": 1}),
        ("events/rows?key=first", {"n": 1}),
    ],
)
def test_keys_of_several_columns_and_of_none(view: PlantedView, serve: Serve, path: str, row: object) -> None:
    assert serve(view.store).get(f"/v1/tables/{path}").json() == row


def test_a_row_that_the_caller_has_is_not_sent_again(view: PlantedView, serve: Serve) -> None:
    client = serve(view.store)
    etag = client.get("/v1/tables/public.users/rows/1").headers["etag"]
    same = client.get("/v1/tables/public.users/rows/1", headers={"If-None-Match": f'"x", W/{etag}'})
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", etag)
    assert same.headers["cdc-state"] == "exact"
    view.put("public.users", {**ADA, "city": "Turin"})
    changed = client.get("/v1/tables/public.users/rows/1", headers={"If-None-Match": etag})
    assert (changed.status_code, changed.json()["city"]) == (200, "Turin")


def test_head_has_the_headers_of_get(view: PlantedView, serve: Serve) -> None:
    client = serve(view.store)
    got, head = (client.request(method, "/v1/tables/public.users/rows/1") for method in ("GET", "HEAD"))
    assert head.content == b""
    assert {name: head.headers[name] for name in ("etag", "content-length", "cdc-lsn")} == {
        name: got.headers[name] for name in ("etag", "content-length", "cdc-lsn")
    }


def test_no_row_is_told_with_evidence_and_is_another_thing_than_no_table(view: PlantedView, serve: Serve) -> None:
    client = serve(view.store)
    view.delete("public.users", ADA)
    row, table = client.get("/v1/tables/public.users/rows/1"), client.get("/v1/tables/public.user/rows/1")
    assert (row.status_code, table.status_code) == (404, 404)
    assert row.headers["content-type"] == table.headers["content-type"] == "application/problem+json"
    assert row.json()["type"] == "no-row"
    assert row.json()["detail"] == "public.users has no row [1]."
    assert row.headers["cdc-lsn"] == "0/1040"
    assert table.json()["type"] == "unknown-table"
    assert table.json()["tables"] == ["events", "public.stock", "public.users"]


def test_pages_follow_one_another_to_the_end(view: PlantedView, serve: Serve) -> None:
    client = serve(view.store)
    view.put("public.users", *({"id": number, "name": "x", "city": "y"} for number in range(4, 250)))
    seen: list[int] = []
    after: str | None = ""
    while after is not None:
        page = client.get("/v1/tables/public.users/rows", params={"limit": 50, **({"after": after} if after else {})})
        assert page.status_code == 200
        assert page.headers["cdc-state"] == "exact"
        seen += [each["row"]["id"] for each in page.json()["rows"]]
        after = page.json()["after"]
    assert seen == list(range(1, 250))


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        ("", [("a/b", 7), ("eu", 1), ("eu", 2), ("eu", 10), ("us", 1)]),
        ("prefix=eu/", [("eu", 1), ("eu", 2), ("eu", 10)]),
        ("prefix=eu/2", [("eu", 2)]),
        ("prefix=u", [("us", 1)]),
        ("prefix=a%252Fb/", [("a/b", 7)]),
        ("start=eu/2", [("eu", 2), ("eu", 10), ("us", 1)]),
        ("stop=eu/2", [("a/b", 7), ("eu", 1)]),
        ("start=eu&stop=us", [("eu", 1), ("eu", 2), ("eu", 10)]),
        ("start=us&stop=eu", []),
    ],
)
def test_ranges_of_keys(view: PlantedView, serve: Serve, query: str, keys: list[tuple[str, int]]) -> None:
    found = serve(view.store).get(f"/v1/tables/public.stock/rows?{query}").json()["rows"]
    assert [(each["key"]["region"], each["key"]["item"]) for each in found] == keys


def test_rows_by_an_index(view: PlantedView, serve: Serve) -> None:
    client = serve(view.store)
    found = client.get("/v1/tables/public.users/rows?index.city=Paris")
    assert [each["row"] for each in found.json()["rows"]] == [BOB, CY]
    first = client.get("/v1/tables/public.users/rows?index.city=Paris&limit=1").json()
    assert [each["row"] for each in first["rows"]] == [BOB]
    rest = client.get(
        "/v1/tables/public.users/rows?index.city=Paris", params={"after": first["after"], "index.city": "Paris"}
    )
    assert [each["row"] for each in rest.json()["rows"]] == [CY]


def test_a_batch_is_in_the_order_of_its_keys(view: PlantedView, serve: Serve) -> None:
    client = serve(view.store)
    got = client.post("/v1/tables/public.users/rows:batchGet", json={"keys": [{"id": 3}, {"id": 9}, {"id": 1}]})
    rows = got.json()["rows"]
    assert [each and each["row"] for each in rows] == [CY, None, ADA]
    assert rows[2] == {"key": {"id": 1}, "partition": 0, "offset": 1, "lsn": "0/1010", "row": ADA}


def test_counting_shadows_no_key(view: PlantedView, serve: Serve) -> None:
    client = serve(view.store)
    view.put_raw("events", b"count", b"2")
    assert client.get("/v1/tables/events/count").json() == {"count": 2}
    assert client.get("/v1/tables/events/rows/count").content == b"2"


def test_what_is_unreadable_is_told_with_its_place(view: PlantedView, serve: Serve) -> None:
    client = serve(view.store)
    view.mark_unreadable("public.users", ADA, "the value is not JSON")
    got = client.get("/v1/tables/public.users/rows/1")
    assert got.status_code == 502
    said = got.json()
    assert (said["topic"], said["partition"], said["offset"]) == ("shop.public.users", 1, 4711)
    assert "the value is not JSON. Its place is partition 1, offset 4711" in said["detail"]
    batch = client.post("/v1/tables/public.users/rows:batchGet", json={"keys": [{"id": 1}, {"id": 2}]}).json()
    assert batch["rows"][0]["error"]["offset"] == 4711
    assert batch["rows"][1]["row"] == BOB


def test_the_tables_and_what_they_are_worth(view: PlantedView, serve: Serve) -> None:
    from tests.support.planted_view import users

    client = serve(view.store)
    view.say(users(state="suspect", reason="the topic is another one", unreadable=2))
    said = client.get("/v1/tables").json()
    assert [each["name"] for each in said["tables"]] == ["events", "public.stock", "public.users"]
    table = client.get("/v1/tables/public.users").json()
    assert table == said["tables"][2]
    assert table == {
        "name": "public.users",
        "topic": "shop.public.users",
        "state": "suspect",
        "reason": "the topic is another one",
        "generation": 1,
        "lsn": None,
        "rows": 3,
        "unreadable": 2,
        "key": [{"name": "id", "type": "int8"}],
        "indexes": [["city"]],
    }
    row = client.get("/v1/tables/public.users/rows/1")
    assert (row.headers["cdc-state"], row.headers["cdc-reason"]) == ("suspect", "the topic is another one")


def test_short_paths_and_the_one_that_has_two_meanings(view: PlantedView, serve: Serve) -> None:
    client = serve(view.store, aliases={"/users": "public.users", "/users/paris": "public.stock"})
    assert [each["row"]["id"] for each in client.get("/users").json()["rows"]] == [1, 2, 3]
    assert client.get("/users/2").json() == BOB
    assert client.get("/users/paris/eu/2").json()["item"] == 2
    both = client.get("/users/count", follow_redirects=False)
    assert (both.status_code, both.json()["type"]) == (300, "ambiguous")
    assert both.json()["meanings"] == {
        "number of rows": "/v1/tables/public.users/count",
        "row with the key count": "/v1/tables/public.users/rows/count",
    }
    assert quote("/v1/tables/public.users/count", safe="/") in both.headers["link"]


def test_histories_that_take_long_hold_up_no_page(
    view: PlantedView, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, reading = threading.Event(), threading.Semaphore(0)

    def row(*_: object) -> Any:
        reading.release()
        goes_on.wait(30)
        raise Problem("no-history", "not here")

    monkeypatch.setattr(Past, "row", row)
    client = serve(view.store, request_timeout_s=1)
    try:
        with ThreadPoolExecutor(20) as callers:
            asked = [callers.submit(client.get, "/v1/tables/public.users/rows/1?as_of=0/1") for _ in range(20)]
            eventually(lambda: reading.acquire(blocking=False))
            assert {each.result().status_code for each in asked} == {504}
        assert client.get("/v1/tables/public.users/rows").status_code == 200
    finally:
        goes_on.set()
