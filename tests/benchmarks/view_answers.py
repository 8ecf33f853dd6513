"""How a view answers: point reads over HTTP, watches, and how soon a commit can be read."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final
from urllib.request import urlopen

import psutil
import psycopg

from cdc.lab.stack.embedded import free_port
from cdc.lab.stack.redis_server import RedisServer
from cdc.views.feed.stores import TABLES, place_of
from tests.benchmarks.deployment import Deployment, daemon
from tests.benchmarks.measure import percentile
from tests.benchmarks.meters import GIVE_UP_S, Stamps, meter, receive, write_load
from tests.benchmarks.processes import BenchmarkFailed, Program, program, wait_until
from tests.benchmarks.report import Column, Figures, Section
from tests.benchmarks.servers import Servers
from tests.benchmarks.view_config import folder, write_config
from tests.benchmarks.view_meters import watch_events, watch_view, write_blocks

CONNECTIONS: Final = 16
WATCHERS: Final = 100
WATCHED_PER_S: Final = 2000
FOLLOWED_PER_S: Final = 500
_ROWS_AT_ONCE: Final = 8
_KEY: Final = 1711

READ_COLUMNS = (Column("p50_ms", "p50 ms", 2), Column("p99_ms", "p99 ms", 2), Column("rate", "requests/s", 0))
READ_NOTES = (
    f"{CONNECTIONS} connections, each of which asks one thing at a time: wrk, and redis-benchmark for 300 bytes",
    "the process that answers has core 0, whoever asks the others; hello: the same server and protocol, and 12 bytes",
)
DELAY_COLUMNS = (
    Column("p50_ms", "p50 ms"),
    Column("p99_ms", "p99 ms"),
    Column("max_ms", "max ms"),
    Column("samples", "samples", 0),
)
FOLLOW_NOTES = (
    "from the return of COMMIT in the source until a reader that asks the store for its greatest key every millisecond "
    "sees the row",
)
WATCH_NOTES = (
    f"from the return of COMMIT in the source ({_ROWS_AT_ONCE} rows each) until the client has the event; five of the "
    "clients look at what they read, the others only read it",
)


def measure(
    servers: Servers, deployment: Deployment, source: psycopg.Connection, redis: RedisServer, rows: int, seconds: int
) -> Iterator[Section]:
    """A section each for reads, for following and for watches. The stores are as the rebuild left them."""
    live_s = max(seconds // 2, 1)
    yield _reads(servers, deployment, redis, rows, seconds)
    for store, where in (("LMDB", folder(servers, "lmdb", 0)), ("Redis", redis.url)):
        yield from _live(servers, deployment, source, store, where, live_s)


@contextmanager
def service(servers: Servers, deployment: Deployment, where: str, name: str) -> Iterator[tuple[Program, str]]:
    """``cdc serve`` until the end of the block; yields it and its address, once the table can be asked."""
    port = free_port()
    config = write_config(servers.directory, deployment, where, name, port)
    command = [sys.executable, "-m", "cdc", "serve", "-c", str(config)]
    with program(f"cdc serve {name}", command, servers.directory) as started:
        url = f"http://127.0.0.1:{port}/v1/tables/public.orders"

        def ready() -> bool:
            started.must_run()
            try:
                with urlopen(f"{url}/rows/{_KEY}", timeout=10) as answer:
                    return bool(answer.headers["Cdc-State"] == "exact")
            except OSError:
                return False

        wait_until(ready, "the service to answer", interval_s=0.05)
        yield started, url


def _reads(servers: Servers, deployment: Deployment, redis: RedisServer, rows: int, seconds: int) -> Section:
    section = Section(f"View reads: one row of {rows:,} over HTTP", READ_COLUMNS, ("rate", "redis-benchmark GET"))
    section.notes += READ_NOTES
    if shutil.which("wrk") is None or shutil.which("redis-benchmark") is None:
        section.notes.append("left out: install wrk and redis-tools")
        return section
    seconds = max(seconds // 4, 1)
    with on_core(0, [redis.pid]):
        section.add("redis-benchmark GET", _redis_benchmark(redis, seconds))
    with hello(servers) as (started, url), on_core(0, [started.pid]):
        section.add("hello", _wrk(url, seconds))
    for store, where in (("LMDB", folder(servers, "lmdb", 0)), ("Redis", redis.url)):
        with service(servers, deployment, where, f"reads-{store.lower()}") as (started, url):
            children = [each.pid for each in psutil.Process(started.pid).children(recursive=True)]
            with on_core(0, children):
                section.add(f"view in {store}", _wrk(f"{url}/rows/{_KEY}", seconds))
            started.drain()
    return section


def _live(
    servers: Servers,
    deployment: Deployment,
    source: psycopg.Connection,
    store: str,
    where: str,
    seconds: int,
) -> Iterator[Section]:
    """Bridge and service under two loads, one after the other."""
    first = _greatest(source) + 1
    with ExitStack() as stack:
        bridge = stack.enter_context(daemon("run", deployment, servers.directory))
        started, url = stack.enter_context(service(servers, deployment, where, f"live-{store.lower()}"))
        place = _place(servers, deployment, where)
        last = first + 2 * seconds * FOLLOWED_PER_S
        with (
            meter(watch_view, place, first - 1, last) as view,
            meter(write_load, deployment.source_dsn, last, FOLLOWED_PER_S, first) as load,
        ):
            load.send("go")
            committed = receive(load, "commit times", timeout_s=8 * seconds + GIVE_UP_S)
            seen = receive(view, "row times", timeout_s=2 * GIVE_UP_S)
        title = (
            f"View latency: commit → visible in {store} at {FOLLOWED_PER_S} transactions/s, {seconds} s after as long"
        )
        section = Section(title, DELAY_COLUMNS, notes=list(FOLLOW_NOTES))
        section.add("commit → view", _delays(committed, seen, first + seconds * FOLLOWED_PER_S))
        yield section
        if store == "LMDB":
            yield _watches(deployment, url, last + 1, seconds)
        bridge.drain()
        started.drain()


def _watches(deployment: Deployment, url: str, first: int, seconds: int) -> Section:
    last = first + 2 * seconds * WATCHED_PER_S
    with (
        meter(watch_events, url, first - 1, last, WATCHERS) as events,
        meter(write_blocks, deployment.source_dsn, first, last, WATCHED_PER_S, _ROWS_AT_ONCE) as load,
    ):
        load.send("go")
        committed = receive(load, "commit times", timeout_s=16 * seconds + GIVE_UP_S)
        seen = receive(events, "event times", timeout_s=4 * GIVE_UP_S)
    reached = (len(committed) - 1) * 1e9 / (max(committed.values()) - min(committed.values()))
    title = f"View watches: {WATCHERS} clients, {WATCHED_PER_S} changes/s asked and {reached:.0f}/s reached"
    section = Section(title, DELAY_COLUMNS, notes=list(WATCH_NOTES))
    section.add("commit → client", _delays(committed, seen, first + seconds * WATCHED_PER_S))
    return section


def _place(servers: Servers, deployment: Deployment, where: str) -> str:
    from cdc.base.config.view import ViewConfig

    return place_of(ViewConfig(store=where), deployment.name, TABLES)


def _greatest(source: psycopg.Connection) -> int:
    row = source.execute("SELECT max(id) FROM orders").fetchone()
    assert row is not None
    return int(row[0])


def _delays(committed: Stamps, seen: Stamps, warm: int) -> Figures:
    missing = committed.keys() - seen.keys()
    if missing:
        raise BenchmarkFailed(f"{len(missing)} of {len(committed)} rows were never seen, e.g. id {min(missing)}")
    ordered = sorted((seen[key] - stamp) / 1e6 for key, stamp in committed.items() if key > warm)
    return {
        "p50_ms": percentile(ordered, 50),
        "p99_ms": percentile(ordered, 99),
        "max_ms": ordered[-1],
        "samples": len(ordered),
    }


@contextmanager
def on_core(core: int, pids: list[int]) -> Iterator[None]:
    """These processes have one core, and everything that is started from here on the others, where there are some."""
    everywhere = psutil.Process().cpu_affinity() or []
    others = [each for each in everywhere if each != core] or everywhere
    for pid in pids:
        _pin(pid, [core])
    psutil.Process().cpu_affinity(others)
    try:
        yield
    finally:
        psutil.Process().cpu_affinity(everywhere)
        for pid in pids:
            if psutil.pid_exists(pid):
                _pin(pid, everywhere)


def _pin(pid: int, cores: list[int]) -> None:
    for thread in psutil.Process(pid).threads():
        psutil.Process(thread.id).cpu_affinity(cores)


@contextmanager
def hello(servers: Servers) -> Iterator[tuple[Program, str]]:
    """The least that the same server can answer."""
    port = free_port()
    arguments = ["--host", "127.0.0.1", "--port", str(port), "--no-access-log", "--log-level", "warning"]
    how = ["--loop", "uvloop", "--http", "httptools", "--lifespan", "off"]
    command = [sys.executable, "-m", "uvicorn", "tests.benchmarks.hello:app", *arguments, *how]
    with program("hello", command, servers.directory) as started:

        def listens() -> bool:
            started.must_run()
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        wait_until(listens, "the hello to listen", interval_s=0.05)
        yield started, f"http://127.0.0.1:{port}/"


def _wrk(url: str, seconds: int) -> Figures:
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--latency", url]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in said:
        raise BenchmarkFailed(f"not every answer of {url} was one:\n{said}")
    return {
        "p50_ms": _wrk_ms(said, "50%"),
        "p99_ms": _wrk_ms(said, "99%"),
        "rate": float(_find(r"Requests/sec:\s+(\S+)", said)),
    }


def _wrk_ms(said: str, percent: str) -> float:
    number, unit = re.search(rf"{percent}\s+([\d.]+)(us|ms|s)", said).groups()  # type: ignore[union-attr]  # None would fail the test
    return float(number) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[unit]


def _find(pattern: str, said: str) -> str:
    found = re.search(pattern, said)
    if found is None:
        raise BenchmarkFailed(f"no {pattern} in:\n{said}")
    return found[1]


def _redis_benchmark(redis: RedisServer, seconds: int) -> Figures:
    command = ["redis-benchmark", "-p", str(redis.port), "-c", str(CONNECTIONS), "-d", "300", "-t", "set,get", "--csv"]
    said = subprocess.run([*command, "-n", str(seconds * 50_000)], capture_output=True, text=True, check=True).stdout
    lines = [line.replace('"', "").split(",") for line in said.splitlines()]
    head, found = lines[0], next(line for line in lines if line[0] == "GET")
    figures = dict(zip(head, found, strict=True))
    return {
        "p50_ms": float(figures["p50_latency_ms"]),
        "p99_ms": float(figures["p99_latency_ms"]),
        "rate": float(figures["rps"]),
    }
