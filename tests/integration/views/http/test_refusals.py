"""What is wrong with a request, each with its status and a sentence that says what to do."""

from __future__ import annotations

import socket
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from cdc.base.errors import StoreUnavailable
from cdc.views.http import protocol
from cdc.views.store.port import Store
from tests.integration.views.http.conftest import Serve, planted
from tests.support.planted_view import PlantedView, events, stock, users
from tests.support.waiting import eventually

U, S = "/v1/tables/public.users", "/v1/tables/public.stock"

REFUSED = [
    (f"{U}/rows/x", 400, "malformed-key", "id is int8, not 'x': write a whole number; a valid value is 7."),
    (f"{U}/rows/9223372036854775808", 400, "malformed-key", "write a whole number"),
    (f"{U}/rows/%ff", 400, "malformed-key", "not UTF-8 when percent-decoded"),
    (f"{U}/rows/1/2", 400, "wrong-key-columns", "has the key (id), but the path has 2 values"),
    (f"{S}/rows/eu", 400, "wrong-key-columns", "Write /v1/tables/public.stock/rows/{region}/{item}, and %2F for a /"),
    (f"{U}/rows?key=x", 400, "malformed-key", "The parameter key is not JSON"),
    (f"{U}/rows?key=[1]", 400, "malformed-key", 'A key of public.users is a JSON object, such as {"id":7}.'),
    (f'{U}/rows?key={{"name":"Ada"}}', 400, "wrong-key-columns", "has the key (id), but this key has (name)"),
    (f'{U}/rows?key={{"id":"1"}}', 400, "malformed-key", "public.users.id is int8, not '1': write it as in"),
    (f'{U}/rows?key={{"id":true}}', 400, "malformed-key", "not True"),
    (f'{U}/rows?key={{"id":1}}&limit=3', 400, "bad-parameter", "key asks for one row; leave out limit"),
    (f"{U}/rows?prefx=1", 400, "bad-parameter", "does not take 'prefx'; it takes after, as_of, index.COLUMN, key"),
    (f"{U}/rows?limit=0", 400, "bad-parameter", "invalid limit '0': use a number from 1 to 1000"),
    (f"{U}/rows?limit=1001", 400, "bad-parameter", "invalid limit '1001'"),
    (f"{U}/rows?limit=x", 400, "bad-parameter", "invalid limit 'x': use a number from 1 to 1000"),
    (f"{U}/rows?limit=1&limit=2", 400, "bad-parameter", "limit is given twice"),
    (f"{U}/rows?after=x", 400, "foreign-cursor", "Invalid cursor. Send it unchanged, or begin"),
    (f"{U}/rows?prefix=1&start=1", 400, "bad-parameter", "prefix does not go together with start"),
    (f"{S}/rows?prefix=eu/1/2", 400, "wrong-key-columns", "3 values were given"),
    (f"{S}/rows?prefix=eu/x", 400, "malformed-key", "public.stock.item is int4, not 'x'"),
    (f"{U}/rows?index.name=Ada", 400, "bad-parameter", "no index that begins with (name). Its indexes: city."),
    (f"{U}/rows?index.city=Paris&start=1", 400, "bad-parameter", "start and an index do not go together"),
    (f"{U}/rows?as_of=0/1", 400, "bad-parameter", "as_of needs the key of one row"),
    (f"{U}/rows/1?as_of=soon", 400, "bad-parameter", "'soon' is neither a time nor an LSN"),
    (f"{U}/rows/1?as_of=9999-01-01", 400, "bad-parameter", "is in the future"),
    (f"{U}/rows/1?as_of=F/0", 400, "bad-parameter", "The view shows 0/1030, not as_of F/0 yet"),
    (
        f"{U}/rows/1?as_of=0/1010",
        422,
        "no-history",
        "No history is kept of public.users. Add the table to topics.history",
    ),
    (f"{U}/rows/1?min_lsn=soon", 400, "bad-parameter", "min_lsn is not an LSN: 'soon'"),
    (f"{U}/rows/1?min_lsn=0:0/1", 400, "bad-parameter", "min_lsn is not an LSN: '0:0/1'"),
    (f"{U}/rows/1?min_lsn=x:0/1", 400, "bad-parameter", "or put the timeline before it, 1:0/1925728"),
    (f"{U}/rows/1?timeout=1", 400, "bad-parameter", "timeout only works together with min_lsn"),
    (f"{U}/rows/1?min_lsn=0/1&timeout=99", 400, "bad-parameter", "use 0 to 10 seconds"),
    (f"{U}/rows/1?min_lsn=0/1&timeout=1_0", 400, "bad-parameter", "use 0 to 10 seconds"),
    (f"{U}/rows/1?min_lsn=0/1&timeout=%D9%A1", 400, "bad-parameter", "use 0 to 10 seconds"),
    (f"{U}/rows?null.city=x", 400, "bad-parameter", "null.city takes no value"),
    (f"{U}/rows/1?min_lsn=0/1&timeout=nan", 400, "bad-parameter", "use 0 to 10 seconds"),
    ("/v1/tables/public.user", 404, "unknown-table", "It has events, public.stock, public.users."),
    ("/v1/tables/public.user/count", 404, "unknown-table", "The view has no table 'public.user'"),
    ("/v1/tables/%ff", 404, "no-page", "not UTF-8"),
    ("/v2", 404, "no-page", "There is no such page. Begin with /v1/tables; "),
    ("/v1/tables/", 404, "no-page", "There is no such page"),
    ("/", 404, "no-page", "There is no such page"),
    (f"{U}/rows:batchGet", 405, "wrong-method", "This page takes POST."),
    (f"{U}/rows?prefix={'1' * 9000}", 414, "url-too-long", "The URL is longer than 8192 bytes"),
]


@pytest.fixture
def client(view: PlantedView, serve: Serve) -> httpx.Client:
    return serve(view.store)


def test_bad_requests(client: httpx.Client) -> None:
    found = []
    for path, status, kind, words in REFUSED:
        got = client.get(path)
        said = got.json()
        if (got.status_code, said["type"]) != (status, kind) or words not in said["detail"]:
            found.append((path, got.status_code, said))
        assert got.headers["content-type"] == "application/problem+json"
        assert said["status"] == got.status_code
    assert found == []


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("", "The body is not JSON"),
        ("[]", 'The body must be an object with a list of keys: {"keys":'),
        ('{"keys":{}}', "The body must be an object with a list of keys"),
        ('{"keys":[],"limit":1}', "The body must be an object with a list of keys"),
        ('{"keys":[' + ",".join(['{"id":1}'] * 1001) + "]}", "A batch has at most 1000 keys, but this one has 1001."),
    ],
)
def test_bad_batches(client: httpx.Client, body: str, words: str) -> None:
    got = client.post(f"{U}/rows:batchGet", content=body)
    assert (got.status_code, got.json()["type"]) == (400, "bad-body")
    assert words in got.json()["detail"]


def test_a_batch_with_one_key_that_is_none(client: httpx.Client) -> None:
    got = client.post(f"{U}/rows:batchGet", json={"keys": [{"id": 1}, 2]})
    assert (got.status_code, got.json()["type"]) == (400, "malformed-key")


def test_a_watch_takes_no_head(client: httpx.Client) -> None:
    got = client.head(f"{U}/watch")
    assert (got.status_code, got.headers["allow"]) == (405, "GET")


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example:8090", "192.168.1.1", "127.0.0.1:1@evil.example"]
)
def test_a_name_that_is_not_ours(client: httpx.Client, host: str) -> None:
    for path in (f"{U}/rows/1", "/v1/tables", "/metrics", "/openapi.json", f"{U}/watch", "/v2"):
        got = client.get(path, headers={"Host": host})
        assert (got.status_code, got.json()["type"]) == (421, "foreign-host")
        assert "Ask by one of them, or set serve.tokens_file." in got.json()["detail"]
    assert client.get("/live", headers={"Host": host}).status_code == 200


def test_other_methods(client: httpx.Client) -> None:
    got = client.delete(f"{U}/rows/1")
    assert (got.status_code, got.headers["allow"]) == (405, "GET, HEAD")


def test_a_cursor_of_another_table(client: httpx.Client) -> None:
    after = client.get(f"{S}/rows?limit=2").json()["after"]
    got = client.get(f"{U}/rows", params={"after": after})
    assert (got.status_code, got.json()["type"]) == (400, "foreign-cursor")


def test_a_body_of_a_hundred_megabytes_is_not_read(client: httpx.Client) -> None:
    with socket.create_connection((client.base_url.host, client.base_url.port or 0)) as raw:
        raw.sendall(f"POST {U}/rows:batchGet HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 104857600\r\n\r\n".encode())
        answer = b"".join(iter(lambda: raw.recv(4096), b""))  # to the end: the server closes the connection
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b'"type":"body-too-large"' in answer


def test_a_body_without_length_is_read_as_far_as_the_limit(client: httpx.Client) -> None:
    sent = 0

    def body() -> Any:
        nonlocal sent
        for _ in range(1600):
            sent += 65536
            yield b" " * 65536

    try:
        got = client.post(f"{U}/rows:batchGet", content=body())
    except httpx.WriteError:
        assert sent < 100 * 1024 * 1024  # the connection was closed under us
    else:
        assert got.status_code == 413


def test_a_head_without_end_is_refused(client: httpx.Client) -> None:
    with socket.create_connection((client.base_url.host, client.base_url.port or 0)) as raw:
        raw.sendall(b"GET /live HTTP/1.1\r\nhost: x\r\n")
        answer = b""
        try:
            for number in range(4000):
                raw.sendall(b"x-%d: %s\r\n" % (number, b"y" * 100))
            answer = raw.recv(100)
        except ConnectionError:
            pass
        assert answer == b"" or b" 431 " in answer


def test_a_connection_that_never_asks_is_closed(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "SLOWEST_HEAD_S", 0.2)
    with socket.create_connection((client.base_url.host, client.base_url.port or 0)) as raw:
        raw.settimeout(10)
        raw.sendall(b"GET /live HT")
        with pytest.raises(ConnectionError):
            _read_to_the_end(raw)


@pytest.mark.parametrize("more", [b"\r\n", b"x"], ids=["a line end", "a body that nobody reads"])
def test_a_connection_that_asks_no_more_is_closed(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, more: bytes
) -> None:
    monkeypatch.setattr(protocol, "SLOWEST_HEAD_S", 0.2)
    length = 0 if more == b"\r\n" else 100
    with socket.create_connection((client.base_url.host, client.base_url.port or 0)) as raw:
        raw.settimeout(4)  # uvicorn's own time for a next request, which any byte ends, is five seconds
        raw.sendall(b"GET /live HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % length)
        assert b'"live":true' in raw.recv(1000)
        raw.sendall(more)
        assert raw.recv(100) == b""


def test_trailers_without_end_are_cut_off(client: httpx.Client) -> None:
    with socket.create_connection((client.base_url.host, client.base_url.port or 0)) as raw:
        raw.settimeout(10)
        head = f"GET {U}/watch HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n"
        raw.sendall(head.encode())
        with pytest.raises(ConnectionError):
            raw.sendall(b"".join(b"x-%d: %s\r\n" % (number, b"y" * 100) for number in range(100_000)))


def _read_to_the_end(raw: socket.socket) -> None:
    if raw.recv(100) == b"":
        raise ConnectionError


@pytest.mark.parametrize("begun", [{"generation": 0}, {"was_whole": False}], ids=["not begun", "begun"])
def test_a_table_that_is_loaded_for_the_first_time(store: Store, serve: Serve, begun: dict[str, Any]) -> None:
    view = PlantedView(store, [users(state="loading", **begun), stock()])
    view.say(began_at=view.facts.caught_up_at - 10, rows=500, targets={"shop.public.users": (1000, 1000)})
    client = serve(store)
    for path in (f"{U}/rows/1", f"{U}/rows", f"{U}/count", f"{U}/watch"):
        got = client.get(path)
        said = got.json()
        assert (got.status_code, said["type"], got.headers["retry-after"]) == (503, "not-ready", "5")
        assert said["rows"] == 500
        assert 40 < said["rows_per_second"] <= 50
    assert client.get(f"{U}").json()["loading"]["rows"] == 500
    ready = client.get("/ready")
    assert (ready.status_code, ready.json()["ready"], ready.json()["state"]) == (503, False, "loading")
    view.say(users())
    assert client.get("/ready").json() == {"ready": True, "state": "exact", "tables": 2}
    assert client.get(f"{U}/rows/1").status_code == 404


def test_a_store_that_nothing_was_ever_written_to(store: Store, serve: Serve) -> None:
    client = serve(store)
    got = client.get(f"{U}/rows/1")
    assert (got.status_code, got.json()["detail"]) == (503, "The view holds nothing yet. Try again later.")
    assert client.get("/v1/tables").json() == {"view": None, "tables": []}
    assert client.get("/live").json() == {"live": True}
    planted(store)
    assert client.get(f"{U}/rows/1").status_code == 200


def test_a_store_that_went_away(view: PlantedView, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    client = serve(view.store)

    def refuse(_: object) -> Any:
        raise StoreUnavailable("Redis at 127.0.0.1:6379 does not answer", remedy="start it")

    with monkeypatch.context() as patch:
        patch.setattr(view.store, "read", refuse)
        for path in (f"{U}/rows/1", f"{U}/rows", "/v1/tables", "/ready"):
            got = client.get(path)
            assert (got.status_code, got.json()["type"]) == (503, "store-away"), path
            assert got.json()["detail"] == "Redis at 127.0.0.1:6379 does not answer. Try again later."
    assert client.get(f"{U}/rows/1").status_code == 200


def test_a_bug_of_ours_is_answered_and_logged(view: PlantedView, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    client = serve(view.store)

    def stumble(_: object) -> Any:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(view.store, "read", stumble)
    with capture_logs() as logs:
        got = client.get(f"{U}/rows/1")
    assert (got.status_code, got.json()["type"]) == (500, "our-bug")
    assert "secret" not in got.text
    assert [each["event"] for each in logs] == ["internal error while answering a request"]


def test_an_empty_table_and_a_view_of_other_topics(store: Store, serve: Serve) -> None:
    PlantedView(store, [events()], feed="topics", lsn=0, source="")
    client = serve(store)
    assert client.get("/v1/tables/events/rows").json() == {"rows": [], "after": None}
    got = client.get("/v1/tables/events/rows/x?min_lsn=0/1")
    assert (got.status_code, got.json()["detail"]) == (
        400,
        "min_lsn means nothing here: the topics of this view have no LSNs.",
    )
    assert eventually(lambda: client.get("/ready").status_code == 200)
