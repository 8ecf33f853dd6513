"""Section recovery: how long after a SIGKILL rows arrive as before, and what an idle deployment costs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from cdc.base.config.view import ViewConfig
from cdc.lab.stack.embedded import EmbeddedServer, free_port
from cdc.lab.stack.kafka import KafkaBroker
from cdc.lab.stack.postgres import PostgresServer
from cdc.views.feed.stores import place_of
from tests.benchmarks import workload
from tests.benchmarks.deployment import Deployment
from tests.benchmarks.measure import Meter
from tests.benchmarks.meters import GIVE_UP_S, Stamps, meter, receive, watch_replica, watch_topic, write_load
from tests.benchmarks.processes import BenchmarkFailed, Program, wait_until
from tests.benchmarks.replica import greatest_key
from tests.benchmarks.report import Column, Figures, Section
from tests.benchmarks.servers import BROKER_HEAP_MB, BROKER_SETTINGS, POSTGRES_SETTINGS
from tests.benchmarks.view_config import write_config
from tests.benchmarks.view_meters import watch_view

RATE_PER_S: Final = 200
LEVEL_MS: Final = 250
"""Rows that take no longer than this from their commit on are no longer late: well above the p99 without kills."""
_WARM_S: Final = 15
_APART_S: Final = 15
"""From one kill to the next. Whoever is not level by then makes the section fail."""
_IDLE_S: Final = 15.0
_NAME: Final = "bench_recovery"

COLUMNS: Final = (
    Column("first_s", "first row s", 2),
    Column("level_s", "level s", 2),
)
IDLE_COLUMNS: Final = (Column("core_percent", "CPU % of a core", 2), Column("rss_mb", "peak RSS MB", 0))
NOTES: Final = (
    "each is killed by SIGKILL and started again at once, by turns, while single-row transactions go on in the source; "
    "the writer waits for its server, and then writes what it owes",
    "first row: until a row of after the kill is where it belongs, which is named behind the arrow",
    f"level: until rows need no more than {LEVEL_MS} ms from their commit again",
)
IDLE_NOTES: Final = (f"{_IDLE_S:.0f} s without a change in the source, with one table and a topic of four partitions",)


class Victim(NamedTuple):
    """What is killed: ends it and starts it again, and where its rows belong."""

    again: Callable[[], None]
    where: str


class Restarted:
    """A program that is killed and started again; ``pid`` is that of the present process."""

    def __init__(self, name: str, argv: list[str | Path], directory: Path) -> None:
        self._name, self._argv, self._directory = name, argv, directory
        self._starts = 0
        self.start()

    def start(self) -> None:
        self._starts += 1
        log = self._directory / f"{self._name.replace(' ', '-')}-{self._starts}.log"
        self.program = Program(self._name, self._argv, log)

    def again(self) -> None:
        self.program.kill()
        self.start()

    def close(self) -> None:
        self.program.kill()


def measure(directory: Path, kills: int, say: Callable[[str], None]) -> Iterator[Section]:
    """Kill each part ``kills`` times under a load; then look at what it costs while nothing happens."""
    with ExitStack() as stack:
        source, replica = (
            stack.enter_context(PostgresServer.open(major=16, settings=POSTGRES_SETTINGS, say=say)) for _ in range(2)
        )
        broker = stack.enter_context(KafkaBroker.open(settings=BROKER_SETTINGS, heap_mb=BROKER_HEAP_MB, say=say))
        with workload.connect(source.dsn()) as conn:
            workload.prepare(conn, workload.ORDERS, "TABLE orders")
            workload.insert_rows(conn, 0, 0)
        deployment = Deployment(_NAME, source.dsn(), broker.bootstrap, replica.dsn())
        parts = {name: Restarted(f"cdc {name}", argv, directory) for name, argv in _commands(deployment, directory)}
        for part in parts.values():
            stack.callback(part.close)
        view = place_of(ViewConfig(store=str(directory / "view")), _NAME, "tables")
        _wait_until_all_have_it(deployment, Path(view), parts)
        victims = {
            "bridge": Victim(parts["run"].again, "topic"),
            "sink": Victim(parts["sink"].again, "replica"),
            "view": Victim(parts["serve"].again, "view"),
            "Kafka": Victim(_again(broker), "replica"),
            "the source": Victim(_again(source), "replica"),
            "the replica": Victim(_again(replica), "replica"),
        }
        yield _killed(deployment, view, victims, kills)
        yield _idle({name: part.program.pid for name, part in parts.items()})
        for part in parts.values():
            part.program.drain()


def _commands(deployment: Deployment, directory: Path) -> Iterator[tuple[str, list[str | Path]]]:
    config = deployment.write(directory)
    view = write_config(directory, deployment, str(directory / "view"), "view", free_port())
    for verb, file in (("run", config), ("sink", config), ("serve", view)):
        yield verb, [sys.executable, "-m", "cdc", verb, "-c", file]


def _again(server: EmbeddedServer) -> Callable[[], None]:
    def again() -> None:
        server.kill()
        server.restart()

    return again


def _wait_until_all_have_it(deployment: Deployment, view: Path, parts: Mapping[str, Restarted]) -> None:
    """Wait until row 0 has made the topic, the replica's table and the view's store."""
    assert deployment.replica_dsn is not None
    with workload.connect(deployment.replica_dsn) as replica:

        def there() -> bool:
            for part in parts.values():
                part.program.must_run()
            return greatest_key(replica) is not None and view.exists()

        wait_until(there, "the first row to reach replica and view")


def _killed(deployment: Deployment, view: str, victims: Mapping[str, Victim], kills: int) -> Section:
    seconds = _WARM_S + _APART_S * (kills * len(victims) + 1)
    last = seconds * RATE_PER_S
    at: list[tuple[str, int]] = []
    with ExitStack() as stack:
        watched = {
            "topic": stack.enter_context(meter(watch_topic, deployment.bootstrap, deployment.topic, last)),
            "replica": stack.enter_context(meter(watch_replica, deployment.replica_dsn, last)),
            "view": stack.enter_context(meter(watch_view, view, 0, last)),
        }
        load = stack.enter_context(meter(write_load, deployment.source_dsn, last, RATE_PER_S))
        load.send("go")
        load.poll(_WARM_S)
        for _ in range(kills):
            for name, victim in victims.items():
                due = time.monotonic() + _APART_S
                at.append((name, time.monotonic_ns()))
                victim.again()
                load.poll(max(due - time.monotonic(), 0))
        committed = receive(load, "commit times", timeout_s=2 * _APART_S + GIVE_UP_S)
        seen = {where: receive(pipe, f"{where} times", timeout_s=4 * GIVE_UP_S) for where, pipe in watched.items()}
    section = Section(f"Recovery: {kills} kills of each part, {RATE_PER_S} rows/s", COLUMNS, notes=list(NOTES))
    for number, (name, killed_ns) in enumerate(at):
        until_ns = at[number + 1][1] if number + 1 < len(at) else killed_ns + _APART_S * 1_000_000_000
        until_ns -= 1_000_000_000  # rows right before the next kill are late because of that one
        where = victims[name].where
        figures = _figures(name, committed, seen[where], killed_ns, until_ns)
        section.add(f"{name} → {where}", figures)
    return section


def _figures(name: str, committed: Stamps, seen: Stamps, killed_ns: int, until_ns: int) -> Figures:
    """From a kill until the first row of after it is there, and until rows are level again.

    Raises:
        BenchmarkFailed: rows were not level before the next kill, or one never came.
    """
    missing = committed.keys() - seen.keys()
    if missing:
        raise BenchmarkFailed(
            f"{name}: {len(missing)} of {len(committed)} rows were never seen, from id {min(missing)}"
        )
    later = [(stamp, seen[key]) for key, stamp in sorted(committed.items()) if killed_ns < stamp < until_ns]
    late = [place for place, (stamp, came) in enumerate(later) if came - stamp > LEVEL_MS * 1_000_000]
    level = late[-1] + 1 if late else 0
    if not later or level == len(later):
        raise BenchmarkFailed(f"{_APART_S} s after {name} was killed, rows still need more than {LEVEL_MS} ms")
    return {"first_s": (later[0][1] - killed_ns) / 1e9, "level_s": (later[level][1] - killed_ns) / 1e9}


def _idle(pids: Mapping[str, int]) -> Section:
    section = Section("Idle: one deployment", IDLE_COLUMNS, notes=list(IDLE_NOTES))
    with Meter() as spent:
        for pid in pids.values():
            spent.watch(pid)
        end = time.monotonic() + _IDLE_S
        wait_until(lambda: time.monotonic() > end, "the idle time to pass", interval_s=0.5)
        for name, pid in pids.items():
            cpu_s, rss_mb, _ = spent.spent(pid)
            section.add(f"cdc {name}", {"core_percent": 100 * cpu_s / _IDLE_S, "rss_mb": rss_mb})
    return section
