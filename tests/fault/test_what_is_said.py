"""Disturbance × what is said: within ten seconds everything that tells of a deployment says so, and takes it back.

Each disturbance leaves sessions and sockets open, which is why nobody noticed them: servers and processes that stand
still, a table that somebody locked. ``cdc status`` (text and exit code), ``/ready``, ``/metrics``, the log and the page
are compared with what they have to say, then with "all is well" when it is over.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil
import pytest
from playwright.sync_api import Page

from cdc.stack import KafkaBroker, PostgresServer
from cdc.stack.embedded import free_port
from tests.support.bridge_process import CdcProcess
from tests.support.browser import open_browser
from tests.support.deployment import Deployment, deployed
from tests.support.forked import run_command
from tests.support.process_tree import family, send
from tests.support.serve_process import ServeProcess
from tests.support.servers import OwnStack, fresh_database
from tests.support.waiting import eventually

SAID_WITHIN_S: Final = 10.0
"""On a machine that has nothing else to do; a busy one has four times as long."""
PICTURES: Final = os.environ.get("CDC_TEST_PICTURES", "")
"""A folder for pictures of the page in each of these states, for people to look at."""


class World:
    """A deployment on servers of its own, with a bridge, a sink, and a view that is served."""

    def __init__(
        self, kafka: KafkaBroker, source: PostgresServer, replica: PostgresServer, live: Deployment, serve: ServeProcess
    ) -> None:
        self.kafka, self.source_server, self.replica_server = kafka, source, replica
        self.live, self.serve = live, serve
        self.ports = {
            "bridge": live.settings["http"]["bridge_port"],
            "sink": live.settings["http"]["sink_port"],
            "serve": live.settings["serve"]["port"],
        }

    def process(self, name: str) -> CdcProcess:
        return {"bridge": self.live.bridge, "sink": self.live.sink, "serve": self.serve}[name]

    def walsender(self) -> int:
        return int(self.live.source.execute("select active_pid from pg_replication_slots")[0][0])

    def change(self) -> None:
        """Something to move."""
        self.live.source.execute("update items set note = clock_timestamp()::text where id = 1")

    def get(self, name: str, path: str) -> tuple[int, str]:
        """Status and body; 0 of a process that does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[name]}{path}", timeout=2) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def shown(self, name: str) -> dict[str, Any]:
        """What the page of this process shows."""
        code, body = self.get(name, "/dashboard/state")
        return ((json.loads(body)["deployments"] or [None])[0] or {}) if code == 200 else {}


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


@contextmanager
def stopped(*pids: int) -> Iterator[None]:
    """As a machine whose disk is gone: connections stay, and nobody answers."""
    trees = [each for pid in pids for each in family(pid)]
    send(trees, signal.SIGSTOP)
    try:
        yield
    finally:
        send(trees, signal.SIGCONT)


@contextmanager
def locked(world: World) -> Iterator[None]:
    """Somebody holds the replica table."""
    with world.live.replica.connect() as holder, holder.transaction():
        holder.execute("lock table items in access exclusive mode")
        yield


@contextmanager
def one_stopped(pid: int) -> Iterator[None]:
    """This process alone."""
    psutil.Process(pid).send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        psutil.Process(pid).send_signal(signal.SIGCONT)


DISTURBANCES: Final[dict[str, Disturbance]] = {
    "a broker that stands still": Disturbance(
        lambda world: stopped(world.kafka.pid),
        4,
        r"topics: .*no answer.*bridge: .*the bridge has waited \d+ s for Kafka",
        ("bridge", "bridge", "waiting"),
        {"bridge": 503, "sink": 503},
        (("bridge", "kafka"), ("sink", "kafka"), ("feed", "kafka")),
        (("bridge", "Kafka does not answer"), ("sink", "Kafka does not answer"), ("serve", "Kafka does not answer")),
    ),
    "a replica table that somebody locked": Disturbance(
        locked,
        3,
        r"sink: .*items.*process \d+ of the replica keeps it.*lock table items.*pg_terminate_backend\(\d+\)",
        ("sink", "sink", "blocked"),
    ),
    "a bridge that stands still": Disturbance(
        lambda world: one_stopped(world.live.bridge.pid),
        4,
        r"bridge: the bridge's process takes connections .* and answers none.*kill -CONT",
        ("sink", "bridge", "still"),
        {"bridge": 0, "sink": 200},
    ),
    "a sink that stands still": Disturbance(
        lambda world: one_stopped(world.live.sink.pid),
        4,
        r"sink: the sink's process takes connections .* and answers none.*kill -CONT",
        ("bridge", "sink", "still"),
        {"bridge": 200, "sink": 0},
    ),
    "a service that stands still": Disturbance(
        lambda world: stopped(world.serve.pid),
        4,
        r"view: the service's process takes connections .* and answers none.*kill -CONT",
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
}
SAMPLE: Final = ("a broker that stands still", "a replica table that somebody locked")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    servers = OwnStack()
    folder = tmp_path_factory.mktemp("said")
    ports = [free_port() for _ in range(3)]
    with ExitStack() as ends:
        ends.callback(servers.close)
        kafka, source_server, replica_server = servers.kafka(), servers.postgres(), servers.postgres()
        source, replica = (
            ends.enter_context(fresh_database(source_server)),
            ends.enter_context(fresh_database(replica_server)),
        )
        source.execute("create table items (id integer primary key, note text)")
        source.execute("insert into items values (1, 'one'), (2, 'two')")
        sections = {
            "http": {"bridge_port": ports[0], "sink_port": ports[1]},
            "view": {"store": str(folder / "view")},
            "serve": {"port": ports[2]},
            "topics": {"partitions": 1},
        }
        live = ends.enter_context(deployed(source, kafka.bootstrap, replica, folder, sections))
        serve = ServeProcess(live.config, folder / "serve.log")
        live.start()
        ends.callback(serve.kill)
        serve.start()
        live.wait_mirrored()
        made = World(kafka, source_server, replica_server, live, serve)
        eventually(lambda: made.get("serve", "/ready")[0] == 200)
        yield made


def status_said(world: World) -> tuple[int, str, dict[str, Any]]:
    """Exit code, problems with their remedies, and the document."""
    done = run_command("status", "--json", "-c", world.live.config)
    document = json.loads(done.stdout)
    problems = document["problems"]
    said = " ".join(f"{each['part']}: {each['text']} {each['remedy']}" for each in problems)
    assert all(each["remedy"] for each in problems), said
    return done.returncode, said, document


def unsaid(world: World, expected: Disturbance, since: Mapping[str, int]) -> list[str]:
    """What is not said yet."""
    missing = []
    if expected.moves:
        world.change()
    code, said, _ = status_said(world)
    if code != expected.code or not re.search(expected.told, said, re.DOTALL):
        missing.append(f"status: {code} {said}")
    for name, wanted in expected.ready.items():
        code, body = world.get(name, "/ready")
        if code != wanted:
            missing.append(f"/ready of {name}: {code} {body}")
    asked, part, state = expected.page
    shown = (world.shown(asked).get("status") or {}).get(part) or {}
    if shown.get("state") != state:
        missing.append(f"page of {asked}: {shown}")
    for name, server in expected.waits:
        _, metrics = world.get("serve" if name == "feed" else name, "/metrics")
        if not re.search(rf'cdc_{name}_waiting_seconds{{server="{server}"}} [1-9]', metrics):
            missing.append(f"metrics of {name}")
    for name, words in expected.logs:
        if words not in world.process(name).log.read_bytes()[since[name] :].decode(errors="replace"):
            missing.append(f"log of {name}")
    return missing


def unwell(world: World) -> list[str]:
    """What is not well again."""
    world.change()
    code, said, document = status_said(world)
    missing = [f"status: {code} {said}"] if code else []
    missing += [f"replica lag {lag}" for lag in [document["sink"].get("lag_seconds")] if lag is None or lag > 5]
    for name in world.ports:
        answer, body = world.get(name, "/ready")
        if answer != 200:
            missing.append(f"/ready of {name}: {answer} {body}")
        if found := re.findall(r"cdc_\w+_waiting_seconds{.*} [1-9].*", world.get(name, "/metrics")[1]):
            missing.append(f"metrics of {name}: {found}")
    shown = world.shown("bridge").get("status") or {}
    states = {part: (shown.get(part) or {}).get("state") for part in ("bridge", "sink", "view")}
    return [*missing, *(f"page: {states}" for _ in [0] if set(states.values()) != {"running"})]


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[] if each in SAMPLE else pytest.mark.long) for each in DISTURBANCES]
)
def test_it_is_said_and_taken_back(world: World, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    expected = DISTURBANCES[name]
    eventually(lambda: not unwell(world), 30, lambda: f"all is well before: {unwell(world)}")
    since = {each: world.process(each).log.stat().st_size for each in world.ports}
    with ExitStack() as looking:
        page = looking.enter_context(opened(world, expected.page[0])) if PICTURES else None
        with expected.begin(world):
            began = time.monotonic()
            eventually(
                lambda: not unsaid(world, expected, since),
                SAID_WITHIN_S,
                lambda: "\n".join(unsaid(world, expected, since)),
            )
            said_s = time.monotonic() - began
            if page is not None:
                picture(page, name)
        over = time.monotonic()
        eventually(lambda: not unwell(world), SAID_WITHIN_S, lambda: "\n".join(unwell(world)))
        with capsys.disabled():
            back_s = time.monotonic() - over
            sys.stdout.write(f"\n{name}: said after {said_s:.1f} s, taken back after {back_s:.1f} s\n")
        if page is not None:
            picture(page, f"{name}, over")


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
