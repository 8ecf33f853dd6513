"""The processes that watch a view, and the load that gives them something to see; as in ``meters.py``."""

from __future__ import annotations

import selectors
import socket
import time
from contextlib import closing
from multiprocessing.connection import Connection
from urllib.parse import urlsplit

import orjson

from cdc.views.store.open import open_store
from cdc.views.store.port import StoreSnapshot
from cdc.views.table.facts import read_facts
from cdc.views.table.rows import unpack
from tests.benchmarks import workload
from tests.benchmarks.meters import GIVE_UP_S, READY, Stamps

_POLL_S = 0.001
_LOOKED_AT = 5
_AT_ONCE = 1 << 18


def watch_view(pipe: Connection, place: str, before: int, last: int) -> Stamps:
    """Ask a store for the greatest key of its table about every millisecond until it is ``last``.

    Returns:
        key → time at which the answer that first covered it was there. A commit of the view shows a prefix.
    """
    seen: Stamps = {}
    with closing(open_store(place, read_only=True)) as store:
        [table] = store.read(read_facts).tables.values()
        space = table.rows()

        def greatest_of(snapshot: StoreSnapshot) -> int:
            [item] = snapshot.scan(space, limit=1, backwards=True)
            return int(orjson.loads(unpack(item.value).key)["id"])

        greatest, changed, version = before, time.monotonic(), 0
        pipe.send(READY)
        while greatest < last and time.monotonic() - changed < GIVE_UP_S:
            now = store.version()
            if now != version:
                version, found = now, store.read(greatest_of)
                stamp = time.monotonic_ns()
                seen.update(dict.fromkeys(range(greatest + 1, found + 1), stamp))
                if found > greatest:
                    greatest, changed = found, time.monotonic()
            time.sleep(_POLL_S)
    return seen


def write_blocks(pipe: Connection, dsn: str, first: int, last: int, per_second: int, size: int) -> Stamps:
    """Insert rows ``first`` to ``last``, ``size`` a transaction, at a fixed pace from when something is received."""
    committed: Stamps = {}
    with workload.connect(dsn) as conn, conn.cursor() as cursor:
        cursor.execute("SET synchronous_commit = on")
        pipe.send(READY)
        pipe.recv()
        start = time.monotonic_ns()
        for key in range(first, last + 1, size):
            ahead_ns = start + (key - first) * 1_000_000_000 // per_second - time.monotonic_ns()
            if ahead_ns > 0:
                time.sleep(ahead_ns / 1e9)
            behind = min(key + size - 1, last)
            cursor.execute(
                "INSERT INTO orders SELECT made.* FROM generate_series(%s::bigint, %s::bigint) n, bench_row(n) made",
                [key, behind],
                prepare=True,
            )
            committed.update(dict.fromkeys(range(key, behind + 1), time.monotonic_ns()))
    return committed


def watch_events(pipe: Connection, url: str, before: int, last: int, clients: int) -> Stamps:
    """Keep that many watches open, from now on, until some of them have seen row ``last``.

    Returns:
        key → the latest time at which one of those that are looked at had its event.
    """
    address = urlsplit(url)
    token = _token(address.hostname or "", address.port or 0, address.path)
    looked_at = dict.fromkeys(range(_LOOKED_AT), before)
    rest = dict.fromkeys(looked_at, b"")
    seen: Stamps = {}
    with selectors.DefaultSelector() as ready:
        for number in range(clients):
            watch = _watch(address.hostname or "", address.port or 0, address.path, token)
            watch.setblocking(False)
            ready.register(watch, selectors.EVENT_READ, number)
        pipe.send(READY)
        changed = time.monotonic()
        while min(looked_at.values()) < last and time.monotonic() - changed < GIVE_UP_S:
            for key, _ in ready.select(1.0):
                assert isinstance(key.fileobj, socket.socket)
                data = key.fileobj.recv(_AT_ONCE)
                if key.data not in looked_at:
                    continue
                stamp, changed = time.monotonic_ns(), time.monotonic()
                whole, mark, rest[key.data] = (rest[key.data] + data).rpartition(b"\n\n")
                if not mark:
                    rest[key.data] = whole + rest[key.data]
                    continue
                for found in _keys(whole):
                    if found > before:
                        seen[found] = stamp
                        looked_at[key.data] = max(looked_at[key.data], found)
        for each in list(ready.get_map().values()):
            assert isinstance(each.fileobj, socket.socket)
            each.fileobj.close()
    return seen


def _keys(events: bytes) -> list[int]:
    """Ids of the rows that events bring; the first number behind ``"id":`` in their data."""
    return [
        int(line.split(b'"id":', 1)[1].split(b",", 1)[0].split(b"}", 1)[0])
        for line in events.split(b"\n")
        if line.startswith(b"data:") and b'"id":' in line
    ]


def _watch(host: str, port: int, path: str, token: str) -> socket.socket:
    """A connection that has asked for the events of a table, and was answered."""
    connection = socket.create_connection((host, port), timeout=GIVE_UP_S)
    last = f"Last-Event-ID: {token}\r\n" if token else ""
    connection.sendall(f"GET {path}/watch HTTP/1.1\r\nHost: {host}\r\n{last}\r\n".encode())
    head = b""
    while b"\r\n\r\n" not in head:
        head += connection.recv(1)
    assert b" 200 " in head.split(b"\r\n", 1)[0], head
    return connection


def _token(host: str, port: int, path: str) -> str:
    """Where it is safe to go on, behind a snapshot of everything."""
    with _watch(host, port, path, "") as watch:
        said = b""
        while True:
            said = (said + watch.recv(_AT_ONCE))[-_AT_ONCE:]
            at = said.find(b"event: snapshot")
            if at >= 0 and b"\n\n" in said[at:]:
                ids = [line for line in said[max(at - 200, 0) :].split(b"\n") if line.startswith(b"id:")]
                return ids[0][3:].strip().decode()
