"""Disturbance × what is said: within ten seconds everything that tells of a deployment says so, and takes it back.

Each disturbance leaves sessions and sockets open, which is why nobody noticed them: servers and processes that stand
still, a table that somebody locked. ``cdc status`` (text and exit code), ``/ready``, ``/metrics``, the log and the page
are compared with what they have to say, then with "all is well" when it is over.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
from playwright.sync_api import Page

from cdc.lab.stack.embedded import free_port
from tests.support.browser import open_browser
from tests.support.disturbances import (
    World,
    cut,
    full,
    killed,
    killed_server,
    locked,
    one_stopped,
    revoked,
    slow,
    stopped,
    whole_world,
)
from tests.support.forked import run_command
from tests.support.sampling import sampled
from tests.support.serve_process import ServeProcess
from tests.support.waiting import eventually

SAID_WITHIN_S: Final = 10.0
"""On a machine that has nothing else to do; a busy one has four times as long."""
ASKED_EACH_S: Final = 0.2
PICTURES: Final = os.environ.get("CDC_TEST_PICTURES", "")
"""A folder for pictures of the page in each of these states, for people to look at."""


@dataclass(frozen=True)
class Disturbance:
    """What happens, and what has to be said of it.

    Attributes:
        begin: lasts as long as the block.
        moves: whether rows are changed meanwhile.
        code: of ``cdc status``.
        told: words of its problems.
        ready: HTTP status of ``/ready`` by process; 0 for no answer.
        page: process whose page is asked, part of the document and its state there.
        waits: process and server of the metric.
        logs: process and words of its log.
    """

    begin: Callable[[World], AbstractContextManager[object]]
    code: int
    told: str
    page: tuple[str, str, str]
    ready: Mapping[str, int] = field(default_factory=dict)
    waits: tuple[tuple[str, str], ...] = ()
    logs: tuple[tuple[str, str], ...] = ()
    moves: bool = True


DISTURBANCES: Final[dict[str, Disturbance]] = {
    "a broker that stands still": Disturbance(
        lambda world: stopped(world.kafka.pid),
        4,
        r"topics: .*no answer.*bridge: the bridge has waited \d+ s for Kafka.*"
        r"sink: the sink has waited \d+ s for Kafka.*view: the service has waited \d+ s for Kafka",
        ("bridge", "bridge", "waiting"),
        {"bridge": 503, "sink": 503, "serve": 200},
        (("bridge", "kafka"), ("sink", "kafka"), ("feed", "kafka")),
        (("bridge", "Kafka does not answer"), ("sink", "Kafka does not answer"), ("serve", "Kafka does not answer")),
    ),
    "a replica table that somebody locked": Disturbance(
        locked,
        3,
        r"sink: replica table public.items has been left out.*pid \d+ \(.*a query hidden from this role\) keeps it.*"
        r"pg_terminate_backend\(\d+\)",
        ("sink", "sink", "blocked"),
    ),
    "a bridge that stands still": Disturbance(
        lambda world: one_stopped(world.live.bridge.pid),
        4,
        r"bridge: the bridge's process does not answer at .*: it hangs.*kill -CONT",
        ("sink", "bridge", "still"),
        {"bridge": 0, "sink": 200},
    ),
    "a sink that stands still": Disturbance(
        lambda world: one_stopped(world.live.sink.pid),
        4,
        r"sink: the sink's process does not answer at .*: it hangs.*kill -CONT",
        ("bridge", "sink", "still"),
        {"bridge": 200, "sink": 0},
    ),
    "a service that stands still": Disturbance(
        lambda world: stopped(world.serve.pid),
        4,
        r"view: the service's process does not answer at .*: it hangs.*kill -CONT",
        ("bridge", "view", "still"),
        {"bridge": 200, "sink": 200, "serve": 0},
    ),
    "a walsender that stands still": Disturbance(
        lambda world: one_stopped(world.walsender()),
        4,
        r"bridge: the bridge has waited \d+ s for PostgreSQL to answer on the replication stream",
        ("bridge", "bridge", "waiting"),
        {"bridge": 503, "sink": 200},
        (("bridge", "source"),),
        (("bridge", "PostgreSQL to answer on the replication stream"),),
    ),
    "a source that stands still": Disturbance(
        lambda world: stopped(world.source_server.pid),
        4,
        r"source: .*no answer.*bridge: the bridge has waited \d+ s for PostgreSQL",
        ("sink", "bridge", "waiting"),
        {"bridge": 503, "sink": 200},
        (("bridge", "source"),),
        (("bridge", "PostgreSQL to answer on the replication stream"),),
        moves=False,
    ),
    "a replica that stands still": Disturbance(
        lambda world: stopped(world.replica_server.pid),
        4,
        r"sink: .*no answer.*the sink has waited \d+ s for the replica",
        ("bridge", "sink", "waiting"),
        {"bridge": 200, "sink": 503},
        (("sink", "replica"),),
        (("sink", "the replica to take rows"),),
    ),
    "a network that loses all between bridge and source": Disturbance(
        lambda world: cut(world.wires["source"]),
        4,
        r"source: .*no answer.*bridge: the bridge has waited \d+ s for PostgreSQL",
        ("sink", "bridge", "waiting"),
        {"bridge": 503, "sink": 200},
        (("bridge", "source"),),
        (("bridge", "PostgreSQL to answer on the replication stream"),),
        moves=False,
    ),
    "a network that loses all between sink and replica": Disturbance(
        lambda world: cut(world.wires["replica"]),
        4,
        r"sink: .*no answer.*the sink has waited \d+ s for the replica",
        ("bridge", "sink", "waiting"),
        {"bridge": 200, "sink": 503},
        (("sink", "replica"),),
        (("sink", "the replica to take rows"),),
    ),
    "a right of the sink that was taken away": Disturbance(
        revoked,
        3,
        r"sink: table public.items is stopped: .*permission denied for table items.*GRANT",
        ("bridge", "sink", "running"),
        {"bridge": 200, "sink": 200},
        logs=(("sink", "permission denied for table items"),),
    ),
    "a disk of the replica that is full": Disturbance(
        full,
        4,
        r"sink: the sink keeps failing and retrying: .*No space left on device.*make room on the replica's disk",
        ("bridge", "sink", "retrying"),
        {"bridge": 200, "sink": 503},
        logs=(("sink", "No space left on device"),),
    ),
    "a disk of the replica that is slow": Disturbance(
        slow,
        4,
        r"sink: the sink has waited \d+ s for the replica",
        ("bridge", "sink", "waiting"),
        {"bridge": 200, "sink": 503},
        (("sink", "replica"),),
        (("sink", "the replica to take rows"),),
    ),
    "a broker that was killed": Disturbance(
        lambda world: killed_server(world.kafka),
        4,
        r"topics: .*bridge: .*sink: ",
        ("bridge", "bridge", "waiting"),
        {"bridge": 503, "sink": 503, "serve": 200},
        (("bridge", "kafka"),),
        (("bridge", "Kafka does not answer"), ("sink", "Kafka does not answer"), ("serve", "Kafka does not answer")),
    ),
    "a source that was killed": Disturbance(
        lambda world: killed_server(world.source_server),
        4,
        r"source: .*bridge: the bridge keeps failing and retrying: .*is the server up",
        ("sink", "bridge", "retrying"),
        {"bridge": 503, "sink": 200},
        logs=(("bridge", "trying again"),),
        moves=False,
    ),
    "a replica that was killed": Disturbance(
        lambda world: killed_server(world.replica_server),
        4,
        r"sink: .*the sink keeps failing and retrying: .*is the server up",
        ("bridge", "sink", "retrying"),
        {"bridge": 200, "sink": 503},
        logs=(("sink", "trying again"),),
    ),
    "a bridge that was killed": Disturbance(
        lambda world: killed(world.live.bridge),
        4,
        r"source: no bridge reads slot .* cdc run -c",
        ("sink", "bridge", "down"),
        {"bridge": 0, "sink": 200},
    ),
    "a sink that was killed": Disturbance(
        lambda world: killed(world.live.sink),
        4,
        r"sink: no sink runs .* cdc sink -c",
        ("bridge", "sink", "down"),
        {"bridge": 200, "sink": 0},
    ),
    "a service that was killed": Disturbance(
        lambda world: killed(world.serve),
        0,  # nobody can tell from outside whether one is meant to run
        r"",
        ("bridge", "view", "down"),
        {"bridge": 200, "sink": 200, "serve": 0},
    ),
}
SAMPLE: Final = ("a broker that stands still",)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with whole_world(tmp_path_factory.mktemp("said")) as made:
        yield made


def status_said(world: World) -> tuple[int, str, dict[str, Any]]:
    """Exit code, problems with their remedies, and the document."""
    done = run_command("status", "--json", "-c", world.live.config)
    document = json.loads(done.stdout)
    problems = document["problems"]
    said = " ".join(f"{each['part']}: {each['text']} {each['remedy']}" for each in problems)
    assert all(each["remedy"] for each in problems), said
    return done.returncode, said, document


Check: TypeAlias = Callable[[], str]
"""What is not as it has to be; empty when it is."""


def saying(world: World, expected: Disturbance) -> dict[str, Check]:
    """What has to be said, by who says it."""
    since = {each: world.process(each).log.stat().st_size for each in world.ports}

    def status() -> str:
        code, said, _ = status_said(world)
        return "" if code == expected.code and re.search(expected.told, said, re.DOTALL) else f"{code} {said}"

    def ready(name: str, wanted: int) -> str:
        code, body = world.get(name, "/ready")
        return "" if code == wanted else f"{code} {body}"

    def page() -> str:
        asked, part, state = expected.page
        found = (world.shown(asked).get("status") or {}).get(part) or {}
        return "" if found.get("state") == state else f"{found}"

    def metric(name: str, server: str) -> str:
        _, metrics = world.get("serve" if name == "feed" else name, "/metrics")
        wanted = rf'cdc_{name}_waiting_seconds{{server="{server}"}} [1-9]'
        return "" if re.search(wanted, metrics) else f"no {wanted}"

    def log(name: str, words: str) -> str:
        said = world.process(name).log.read_bytes()[since[name] :].decode(errors="replace")
        return "" if words in said else f"no {words!r} in {said[-2000:]}"

    return {
        "page": page,
        **{f"/ready of {name}": partial(ready, name, code) for name, code in expected.ready.items()},
        **{f"metrics of {name}": partial(metric, name, server) for name, server in expected.waits},
        **{f"log of {name}": partial(log, name, words) for name, words in expected.logs},
        "status": status,
    }


def wellness(world: World) -> dict[str, Check]:
    """What has to be said when all is well."""

    def status() -> str:
        code, said, document = status_said(world)
        lag = document["sink"].get("lag_seconds")
        return "" if code == 0 and lag is not None and lag < 5 else f"{code} {said}, behind {lag}"

    def ready(name: str) -> str:
        code, body = world.get(name, "/ready")
        return "" if code == 200 else f"{code} {body}"

    def metrics(name: str) -> str:
        return " ".join(re.findall(r"cdc_\w+_waiting_seconds{.*} [1-9].*", world.get(name, "/metrics")[1]))

    def page(name: str) -> str:
        shown = world.shown(name).get("status") or {}
        states = {part: (shown.get(part) or {}).get("state") for part in ("bridge", "sink", "view")}
        return "" if set(states.values()) == {"running"} else f"{states}"

    return {
        "status": status,
        **{f"page of {name}": partial(page, name) for name in ("bridge", "sink")},
        **{f"/ready of {name}": partial(ready, name) for name in world.ports},
        **{f"metrics of {name}": partial(metrics, name) for name in world.ports},
    }


def seconds_until(world: World, checks: Mapping[str, Check], *, moves: bool = True) -> dict[str, float]:
    """When each of them is as it has to be, while something is there to move.

    Each is asked by a thread of its own: one that takes seconds, because a server hangs, makes no other look late.
    """
    began, over = time.monotonic(), threading.Event()
    said, last = dict[str, float](), dict[str, str]()

    def ask(name: str) -> None:
        while not over.is_set():
            last[name] = checks[name]()
            if not last[name]:
                said[name] = round(time.monotonic() - began, 1)
                return
            over.wait(ASKED_EACH_S)

    def all_said() -> bool:
        if moves:
            world.change()
        for each in asked:
            if each.done():
                each.result()  # or an error in it would look like silence
        return len(said) == len(checks)

    with ThreadPoolExecutor(len(checks)) as threads:
        asked = [threads.submit(ask, name) for name in checks]
        try:
            eventually(all_said, SAID_WITHIN_S, lambda: f"{ {each: last.get(each) for each in checks.keys() - said} }")
        finally:
            over.set()
    return said


@pytest.mark.parametrize("name", sampled(DISTURBANCES, SAMPLE))
def test_it_is_said_and_taken_back(world: World, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    expected = DISTURBANCES[name]
    seconds_until(world, wellness(world))
    with ExitStack() as looking:
        page = looking.enter_context(opened(world, expected.page[0])) if PICTURES else None
        checks = saying(world, expected)
        with expected.begin(world):
            said = seconds_until(world, checks, moves=expected.moves)
            if page is not None:
                picture(page, name)
        over = seconds_until(world, wellness(world))
        with capsys.disabled():
            sys.stdout.write(f"\n{name}: said after {said}, taken back after {over} seconds\n")
        if page is not None:
            picture(page, f"{name}, over")


def test_the_others_tell_of_the_slot_while_the_bridge_is_dead(world: World, tmp_path: Path) -> None:
    """The slot's metrics died with the bridge, exactly when WAL fills the disk."""
    live, port = world.live, free_port()
    overview = ServeProcess(live.config, tmp_path / "overview.log", "--port", str(port), command="dashboard")
    world.ports["overview"] = port
    try:
        overview.start()
        live.bridge.kill()
        for name, label in (("sink", ""), ("serve", ""), ("overview", f'{{bridge="{live.name}"}}')):
            wanted = [
                f"cdc_slot_active{label} 0.0",
                f"cdc_slot_retained_bytes{label} ",
                f"cdc_slot_seconds_to_full{label} ",
            ]

            def told(name: str = name, wanted: list[str] = wanted) -> bool:
                said = world.get(name, "/metrics")[1]
                return all(each in said and f"{each}NaN" not in said for each in wanted)

            eventually(told, 20, lambda name=name: f"{name}: {world.get(name, '/metrics')[1]}")  # type: ignore[misc]  # mypy does not type a lambda's default
        code, said, _ = status_said(world)
        assert code == 4
        assert f"no bridge reads slot {live.slot()} start the bridge: cdc run -c {live.config}" in said
    finally:
        del world.ports["overview"]
        overview.kill()
        live.start_bridge()


@contextmanager
def opened(world: World, name: str) -> Iterator[Page]:
    with open_browser() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(f"http://127.0.0.1:{world.ports[name]}/")
        yield page


def picture(page: Page, name: str) -> None:
    page.wait_for_timeout(3000)
    path = Path(PICTURES) / re.sub(r"\W+", "-", name)
    page.screenshot(path=f"{path}.png", full_page=False)
    page.set_viewport_size({"width": 390, "height": 844})
    page.screenshot(path=f"{path}-phone.png", full_page=True)
    page.set_viewport_size({"width": 1280, "height": 900})
