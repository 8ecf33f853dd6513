"""The demo from start to proof: servers, shop, bridge and sink, traffic with two kills, drain, three-way comparison."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from cdc.app.demo import shop
from cdc.app.demo.daemon import Daemon, wait_for
from cdc.app.demo.place import Place
from cdc.app.demo.positions import fence, is_captured, recorded_cut
from cdc.app.demo.probes import Arrivals, Interruption, Probes
from cdc.app.demo.proof import Verdict, prove
from cdc.app.demo.screen import Screen
from cdc.app.demo.topic_side import topic_name
from cdc.lsn import LSN, ZERO

_START_TIMEOUT_S: Final = 60.0
_DRAIN_TIMEOUT_S: Final = 120.0
_REST_S: Final = 3.0


@dataclass(slots=True)
class Outcome:
    """What a run found out; durations in seconds, ``load_ended_s`` on the monotonic clock."""

    changes: int
    traffic_s: float
    load_ended_s: float
    cut: LSN
    arrivals: Arrivals
    interruptions: list[Interruption]
    verdicts: list[Verdict]

    @property
    def holds(self) -> bool:
        """Nothing differs, nothing came twice or went back, no cut broke the invariant."""
        return all(verdict.holds for verdict in self.verdicts) and not self.arrivals.broken_cuts


class Demo:
    """One run on servers that are up.

    Args:
        place: where to run; both databases are there and empty.
        screen: told what happens.
        change_count: how many row changes to make.
        seed: of the traffic.
    """

    def __init__(self, place: Place, screen: Screen, change_count: int, seed: int) -> None:
        self._place, self._screen = place, screen
        self._change_count, self._seed = change_count, seed
        self._daemons = {
            command: Daemon(command, place.config, place.directory / f"{log}.log")
            for command, log in (("run", "bridge"), ("sink", "sink"))
        }
        self._interruptions: list[Interruption] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        """Make the shop's tables, then have bridge and sink run as long as the block does."""
        self._place.write_config()
        with ExitStack() as exits:
            source = exits.enter_context(psycopg.connect(self._place.source_dsn, autocommit=True))
            source.execute(shop.SCHEMA)
            for daemon in self._daemons.values():
                exits.enter_context(daemon)
            self._wait_for("replication slot that is read", lambda: is_captured(source, self._place.name))
            self._screen.say(
                f"bridge (pid {self._daemons['run'].pid}) and sink (pid {self._daemons['sink'].pid}) are running"
            )
            yield

    def prove(self) -> Outcome:
        """Drive the traffic, kill, wait until all is mirrored, compare."""
        place = self._place
        topic = topic_name(place.name, "public.probes")
        with (
            psycopg.connect(place.source_dsn, autocommit=True) as source,
            psycopg.connect(place.replica_dsn, autocommit=True) as replica,
            Probes(place.source_dsn, place.bootstrap, topic, place.replica_dsn) as probes,
        ):
            started = time.monotonic()
            changes = self._drive(source, probes)
            load_ended = time.monotonic()
            self._screen.say(f"traffic is over; {_REST_S:g} s of single rows, to see the latency at rest")
            time.sleep(_REST_S)
            probes.finish_sending()
            end = fence(source)
            self._screen.say(f"waiting until the replica's cut has passed {end}")
            self._wait_for(
                f"cut at {end} in the replica",
                lambda: (recorded_cut(replica, place.name) or ZERO) >= end,
                _DRAIN_TIMEOUT_S,
            )
            cut = recorded_cut(replica, place.name)
            probes.check()
        assert cut is not None
        self._screen.say(f"replica stands at {cut}; comparing source, topic and replica row by row")
        verdicts = prove(
            source_dsn=place.source_dsn,
            bootstrap=place.bootstrap,
            name=place.name,
            replica_dsn=place.replica_dsn,
            shapes=shop.TABLES,
        )
        probes.arrivals.settle(self._interruptions)
        return Outcome(changes, load_ended - started, load_ended, cut, probes.arrivals, self._interruptions, verdicts)

    def watch(self) -> None:
        """Return only when a daemon ends by itself.

        Raises:
            StackError: it did.
        """
        while True:
            for daemon in self._daemons.values():
                daemon.check()
            time.sleep(0.5)

    def _drive(self, source: psycopg.Connection[Any], probes: Probes) -> int:
        traffic = shop.Traffic(source, self._seed)
        done, started = traffic.opening_changes, time.monotonic()
        plan: list[tuple[float, Callable[[], int]]] = [
            (0.20, lambda: self._truncate(traffic)),
            (0.35, lambda: self._kill("run")),
            (0.40, lambda: self._start_again("run")),
            (0.70, lambda: self._kill("sink")),
            (0.75, lambda: self._start_again("sink")),
            (0.85, lambda: self._truncate(traffic)),
        ]
        self._screen.begin("changes", self._change_count)
        while done < self._change_count or plan:
            done += traffic.step()
            while plan and done >= plan[0][0] * self._change_count:
                done += plan.pop(0)[1]()
            for daemon in self._daemons.values():
                daemon.check()
            probes.check()
            under_way = len(probes.arrivals.committed) - len(probes.arrivals.on_replica)
            rate = done / (time.monotonic() - started)
            self._screen.advance_to(done, f"{rate:,.0f}/s, {under_way} probes under way")
        self._screen.end()
        return done

    def _truncate(self, traffic: shop.Traffic) -> int:
        self._screen.say("TRUNCATE carts")
        return traffic.truncate_carts()

    def _kill(self, command: str) -> int:
        daemon = self._daemons[command]
        self._interruptions.append(Interruption(command, time.monotonic()))
        self._screen.say(f"[red]SIGKILL[/] cdc {command} (pid {daemon.pid}); traffic goes on")
        daemon.kill()
        return 0

    def _start_again(self, command: str) -> int:
        daemon = self._daemons[command]
        daemon.start()
        self._interruptions[-1].started_s = time.monotonic()
        self._screen.say(f"cdc {command} started again (pid {daemon.pid})")
        return 0

    def _wait_for(self, what: str, condition: Callable[[], bool], timeout_s: float = _START_TIMEOUT_S) -> None:
        wait_for(what, condition, self._daemons.values(), timeout_s)
