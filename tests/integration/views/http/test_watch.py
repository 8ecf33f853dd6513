"""Watching a table: every row, then each key that changes; going on after a break; and how a watch ends."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from random import Random
from typing import Any, NamedTuple

import httpx
import orjson
import pytest
from structlog.testing import capture_logs

from cdc.base.daemon.worker import Worker
from cdc.views.http.listening import ServerThread
from cdc.views.query import broadcast, watch, watching
from cdc.views.store.port import Store
from cdc.views.table.table_view import TableView
from tests.integration.views.http.conftest import ADA, BOB, CY, Serve, planted
from tests.support.planted_view import PlantedView
from tests.support.waiting import eventually

PATH = "/v1/tables/public.users/watch"


class Event(NamedTuple):
    name: str
    data: Any
    id: str


class Events:
    """Reads events one by one; data of several lines is joined, as the standard says."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines

    def __iter__(self) -> Iterator[Event]:
        fields: dict[str, str] = {}
        for line in self._lines:
            if line:
                name, _, value = line.partition(": ")
                fields[name] = f"{fields[name]}\n{value}" if name == "data" and name in fields else value
            elif fields:
                yield Event(fields["event"], orjson.loads(fields["data"]), fields.get("id", ""))
                fields = {}

    def take(self, count: int) -> list[Event]:
        iterator = iter(self)
        return [next(iterator) for _ in range(count)]


@contextmanager
def watched(client: httpx.Client, token: str | bytes = "", path: str = PATH) -> Iterator[Events]:
    value = token if isinstance(token, bytes) else token.encode("ascii")
    headers = {b"Last-Event-ID": value} if value else {}
    with client.stream("GET", path, headers=headers) as got:
        assert got.status_code == 200
        assert got.headers["content-type"] == "text/event-stream; charset=utf-8"
        yield Events(got.iter_lines())


def rows(events: list[Event]) -> list[Any]:
    return [each.data["row"] for each in events]


def test_a_record_that_is_no_row_is_told_as_what_it_is(store: Store, serve: Serve) -> None:
    """It was a delete, while a GET of the same key says 502."""
    view = planted(store)
    client = serve(store)
    told = {"key": {"id": 1}, "partition": 1, "offset": 4711, "reason": "it is not JSON"}
    with watched(client) as events:
        assert [each.name for each in events.take(4)] == ["row", "row", "row", "snapshot"]
        view.mark_unreadable("public.users", ADA, "it is not JSON")
        [event] = events.take(1)
        assert (event.name, event.data) == ("unreadable", told)
        assert event.id
        view.mark_unreadable("public.users", BOB, "it is not JSON")
    with watched(client, token=event.id) as events:  # who comes back reads the journal for itself
        assert [(each.name, each.data["key"]) for each in events.take(1)] == [("unreadable", {"id": 2})]
    with watched(client) as events:
        begun = events.take(4)
        assert [each.name for each in begun] == ["row", "unreadable", "unreadable", "snapshot"]
        assert [each.data for each in begun[1:3]] == [told, {**told, "key": {"id": 2}}]
    assert client.get("/v1/tables/public.users/rows/2").json()["type"] == "unreadable"


def test_every_row_then_each_change(store: Store, serve: Serve) -> None:
    view = planted(store)
    with watched(serve(store)) as told:
        first = told.take(4)
        assert [each.name for each in first] == ["row", "row", "row", "snapshot"]
        assert rows(first[:3]) == [ADA, BOB, CY]
        assert first[3].data == {"rows": 3}
        assert [bool(each.id) for each in first] == [False, False, False, True]
        view.put("public.users", {**ADA, "city": "Turin"})
        view.delete("public.users", BOB)
        changed, deleted = told.take(2)
    assert (changed.name, changed.data["row"]["city"]) == ("row", "Turin")
    assert (deleted.name, deleted.data) == ("delete", {"key": {"id": 2}})
    assert deleted.id


def test_going_on_behind_the_last_event(view: PlantedView, serve: Serve) -> None:
    client = serve(view.store)
    with watched(client) as told:
        token = told.take(4)[3].id
    view.put("public.users", {**ADA, "city": "Turin"})
    view.put("public.stock", {"region": "x", "item": 1, "amount": "1"})
    view.put("public.users", {**ADA, "city": "Rome"})
    with watched(client, token) as told:
        [event] = told.take(1)
        assert event.data["row"]["city"] == "Rome"
        view.delete("public.users", CY)
        assert told.take(1)[0].data == {"key": {"id": 3}}


@pytest.mark.parametrize("token", ["nonsense", "0123-1", "-", b"\xff"])
def test_a_token_of_another_store_begins_with_a_reset(view: PlantedView, serve: Serve, token: str | bytes) -> None:
    with watched(serve(view.store), token) as told:
        first = told.take(5)
    assert [each.name for each in first] == ["reset", "row", "row", "row", "snapshot"]
    assert first[0].data["reason"]


def test_a_table_that_is_read_anew_is_sent_anew(view: PlantedView, serve: Serve) -> None:
    with watched(serve(view.store)) as told:
        told.take(4)
        view.reset("public.users")
        assert [each.name for each in told.take(5)] == ["reset", "row", "row", "row", "snapshot"]


def test_rows_with_line_breaks_arrive_as_they_are(view: PlantedView, serve: Serve) -> None:
    raw = b'{\n  "n": 1\r\n}'
    view.put_raw("events", b"second", raw)
    client = serve(view.store)
    assert client.get("/v1/tables/events/rows/second").content == raw
    with watched(client, path="/v1/tables/events/watch") as told:
        assert [each.data["row"] for each in told.take(2)] == [{"n": 1}, {"n": 1}]


def test_silence_is_broken_by_heartbeats(view: PlantedView, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "HEARTBEAT_S", 0.05)
    client = serve(view.store)
    with watched(client) as told:
        beat = told.take(5)[4]
        assert (beat.name, beat.data["state"], beat.data["lsn"]) == ("heartbeat", "exact", "0/1030")
        assert beat.data["age_s"] >= 0
    view.put("public.users", {**ADA, "city": "Turin"})
    with watched(client, beat.id) as told:
        assert told.take(1)[0].data["row"]["city"] == "Turin"


def test_a_quiet_table_beside_a_busy_one(view: PlantedView, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    client = serve(view.store)
    with watched(client) as told:
        token = told.take(4)[3].id
    for number in range(150):  # more commits than one look at the journal reads
        view.put("public.stock", {"region": "x", "item": number, "amount": "1"})
    view.put("public.users", {**ADA, "city": "Turin"})
    monkeypatch.setattr(watch, "HEARTBEAT_S", 3600.0)
    with watched(client, token) as told:
        assert told.take(1)[0].data["row"]["city"] == "Turin"


def test_heartbeats_come_while_other_tables_change(
    view: PlantedView, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "HEARTBEAT_S", 0.3)
    with watched(serve(view.store)) as told:
        told.take(4)
        beats: list[Event] = []
        reader = Worker(lambda: beats.extend(told.take(2)), name="reader")
        reader.start()
        eventually(lambda: view.put("public.stock", {"region": "x", "item": 1, "amount": "1"}) and len(beats) == 2)
        reader.end(None)
    assert [each.name for each in beats] == ["heartbeat", "heartbeat"]


def test_more_rows_than_a_page(view: PlantedView, serve: Serve) -> None:
    view.put("public.users", *({"id": number, "name": "x", "city": "y"} for number in range(4, 2501)))
    with watched(serve(view.store)) as told:
        got = told.take(2501)
    assert [each["id"] for each in rows(got[:2500])] == list(range(1, 2501))
    assert got[2500].data == {"rows": 2500}


def test_too_many_watches(view: PlantedView, serve: Serve) -> None:
    client = serve(view.store, max_watches=1)
    with watched(client) as told:
        told.take(4)
        got = client.get(PATH)
        assert (got.status_code, got.json()["type"], got.headers["retry-after"]) == (429, "too-many-watches", "5")
        assert "serve_watches 1.0" in client.get("/metrics").text
    eventually(lambda: "serve_watches 0.0" in client.get("/metrics").text, message="the client left")
    with watched(client) as told:
        told.take(4)


def test_a_client_that_does_not_read_is_cut_off(
    view: PlantedView, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "SLOWEST_S", 0.3)
    view.put("public.users", *({"id": number, "name": "x" * 10_000, "city": "y"} for number in range(4, 3000)))
    client = serve(view.store)
    address = (client.base_url.host, client.base_url.port or 0)
    with capture_logs() as logs, socket.create_connection(address) as raw:
        raw.sendall(f"GET {PATH} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode())
        eventually(lambda: "serve_watches_cut_total 1.0" in client.get("/metrics").text)
        assert "serve_watches 0.0" in client.get("/metrics").text
    assert [each["event"] for each in logs] == ["a watch was cut off: its client does not read"]


def test_a_service_that_stops_says_so(view: PlantedView, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[ServerThread] = []
    run = ServerThread.run

    def noted(thread: ServerThread) -> None:
        threads.append(thread)
        run(thread)

    monkeypatch.setattr(ServerThread, "run", noted)
    with watched(serve(view.store)) as told:
        told.take(4)
        stopper = Worker(threads[0].stop, name="stop")
        stopper.start()
        rest = list(told)
        stopper.end(None)
    assert [(each.name, each.data) for each in rest] == [("end", {"reason": "the service stops"})]


def test_many_watch_and_the_journal_is_read_once(
    view: PlantedView, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    changes = TableView.changes

    def counted(self: TableView, token: str, tables: Any, limit: int = 1000) -> Any:
        looks.append(token)
        return changes(self, token, tables, limit)

    client = serve(view.store)
    with ExitStack() as stack:
        clients = [stack.enter_context(watched(client)) for _ in range(20)]
        for each in clients:
            each.take(4)
        view.put("public.users", {**ADA, "city": "first"})
        for each in clients:  # up to date, and so listening
            each.take(1)
        monkeypatch.setattr(TableView, "changes", counted)
        for number in range(30):
            view.put("public.users", {**ADA, "city": f"{number:03}"})
            for each in clients:
                assert each.take(1)[0].data["row"]["city"] == f"{number:03}"
    assert len(looks) < 150  # of 600 by clients that look for themselves


def test_watchers_of_every_pace_end_with_the_same_table(
    view: PlantedView, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broadcast, "KEPT_BYTES", 2_000)
    client, last, random = serve(view.store), 400, Random(7)
    found: dict[int, dict[int, int]] = {}
    written = [0]

    def follow(number: int) -> None:
        rows: dict[int, int] = {}
        with watched(client) as told:
            token = ""
            for event in told:
                token = event.id or token
                if event.name == "row" and "n" in event.data["row"]:
                    key, n = event.data["row"]["id"], event.data["row"]["n"]
                    assert n >= rows.get(key, 0)  # never back to an older row
                    rows[key] = n
                elif event.name == "delete":
                    rows.pop(event.data["key"]["id"], None)
                if number % 3 == 0 and len(rows) % 7 == 6:
                    ahead = written[-1] + number  # a slow reader: it lets the writer go on first
                    eventually(lambda ahead=ahead: written[-1] >= min(ahead, last))  # type: ignore[misc]  # mypy does not type a lambda's default
                if rows.get(1000) == last:
                    break
        assert token
        found[number] = rows

    followers = [Worker(partial(follow, number), name=f"follower-{number}") for number in range(9)]
    for each in followers:
        each.start()
    expected: dict[int, int] = {}
    for n in range(1, last):
        written.append(n)
        keys = random.sample(range(100, 140), random.randint(1, 5))
        if n % 10 == 0:
            view.delete("public.users", *({"id": key} for key in keys))
            expected = {key: value for key, value in expected.items() if key not in keys}
        else:
            view.put("public.users", *({"id": key, "n": n, "name": "x" * 100} for key in keys))
            expected |= dict.fromkeys(keys, n)
    view.put("public.users", {"id": 1000, "n": last})
    written.append(last)
    for each in followers:
        each.end(None)
    assert [found[number] for number in range(9)] == [{**expected, 1000: last}] * 9
