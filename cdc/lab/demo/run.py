"""Runs the demo: fills a shop, starts bridge and sink, waits for the backfill, makes traffic, kills both, compares."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from cdc.base.lsn import LSN, ZERO
from cdc.lab.demo.loading import Backfilled, Loading
from cdc.lab.demo.place import DemoPlace
from cdc.lab.demo.probes import Arrivals, Interruption, Probes
from cdc.lab.demo.processes import Daemon, wait_for
from cdc.lab.demo.screen import Screen
from cdc.lab.demo.shop import Traffic
from cdc.lab.demo.shop_tables import TABLES, open_shop
from cdc.lab.proof.comparison import TableVerdict, prove
from cdc.lab.proof.positions import fence, recorded_cut
from cdc.lab.proof.topic_side import topic_name

_DRAIN_TIMEOUT_S: Final = 120.0
_REST_S: Final = 3.0


@dataclass(slots=True)
class Outcome:
    """The result of a run.

    Attributes:
        changes: row changes made after the backfill.
        traffic_s: seconds that they took.
        load_ended_s: when they ended, in monotonic seconds.
        cut: the LSN that the replica showed at the end.
    """

    backfilled: Backfilled
    changes: int
    traffic_s: float
    load_ended_s: float
    cut: LSN
    arrivals: Arrivals
    interruptions: list[Interruption]
    verdicts: list[TableVerdict]

    @property
    def holds(self) -> bool:
        """Whether nothing differs, no record came twice or out of order, and no cut broke the invariant."""
        return all(verdict.holds for verdict in self.verdicts) and not self.arrivals.broken_cuts


class Demo:
    """One run of the demo on running servers.

    Args:
        place: where to run; both databases exist and are empty.
        screen: shows what happens.
        row_count: the approximate number of rows in the shop before bridge and sink start.
        change_count: the number of row changes to make after these rows are loaded.
        seed: the seed of the traffic.
    """

    def __init__(self, place: DemoPlace, screen: Screen, row_count: int, change_count: int, seed: int) -> None:
        self._place, self._screen = place, screen
        self._row_count, self._change_count, self._seed = row_count, change_count, seed
        self._daemons = {
            command: Daemon(command, place.config, place.directory / f"{log}.log")
            for command, log in (("run", "bridge"), ("sink", "sink"))
        }
        self._interruptions: list[Interruption] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        """Make and fill the shop, then run bridge and sink until the block ends."""
        self._place.write_config()
        with psycopg.connect(self._place.source_dsn, autocommit=True) as source:
            rows = open_shop(source, self._row_count)
        self._screen.say(f"a shop with {rows:,} rows in {len(TABLES)} tables, which nothing has captured yet")
        with ExitStack() as exits:
            for daemon in self._daemons.values():
                exits.enter_context(daemon)
            both = " and ".join(f"cdc {command} (pid {daemon.pid})" for command, daemon in self._daemons.items())
            self._screen.say(f"starting {both}; traffic continues")
            yield

    def prove(self, when_mirrored: Callable[[], None]) -> Outcome:
        """Wait for the backfill, make traffic, kill both daemons, wait until everything is mirrored, and compare.

        Args:
            when_mirrored: called before the comparison, when nothing changes any more.
        """
        place = self._place
        topic = topic_name(place.name, "public.probes")
        with (
            psycopg.connect(place.source_dsn, autocommit=True) as source,
            psycopg.connect(place.replica_dsn, autocommit=True) as replica,
        ):
            traffic = Traffic(source, self._seed)
            backfilled = Loading(place, self._screen, traffic, self._daemons.values()).wait(source, replica)
            with Probes(place.source_dsn, place.bootstrap, topic, place.replica_dsn) as probes:
                started = time.monotonic()
                changes = self._drive(traffic, probes)
                load_ended = time.monotonic()
                self._screen.say(f"traffic is over; {_REST_S:g} s of single rows, to see the latency at rest")
                time.sleep(_REST_S)
                probes.finish_sending()
                cut = self._wait_mirrored(source, replica)
                probes.check()
        when_mirrored()
        self._screen.say(f"replica at {cut}; comparing the three sides row by row")
        verdicts = prove(
            source_dsn=place.source_dsn,
            bootstrap=place.bootstrap,
            name=place.name,
            replica_dsn=place.replica_dsn,
            shapes=TABLES,
            fields=place.fields,
        )
        arrivals, interruptions = probes.arrivals, self._interruptions
        arrivals.settle(interruptions)
        return Outcome(backfilled, changes, load_ended - started, load_ended, cut, arrivals, interruptions, verdicts)

    def watch(self) -> None:
        """Watch the daemons for ever.

        Raises:
            StackError: a daemon ended by itself.
        """
        while True:
            for daemon in self._daemons.values():
                daemon.check()
            time.sleep(0.5)

    def _wait_mirrored(self, source: psycopg.Connection[Any], replica: psycopg.Connection[Any]) -> LSN:
        """Wait until the replica holds everything that is committed in the source now; returns the replica's cut."""
        end = fence(source)
        self._screen.say(f"waiting until the replica's cut has passed {end}")
        cut = ZERO

        def has_passed() -> bool:
            nonlocal cut
            cut = recorded_cut(replica, self._place.name) or ZERO
            return cut >= end

        wait_for(f"cut at {end} in the replica", has_passed, self._daemons.values(), _DRAIN_TIMEOUT_S)
        return cut

    def _drive(self, traffic: Traffic, probes: Probes) -> int:
        done, started = 0, time.monotonic()
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
            self._screen.advance_to(done, f"{rate:,.0f}/s, {under_way} probes in flight")
        self._screen.end()
        return done

    def _truncate(self, traffic: Traffic) -> int:
        self._screen.say("TRUNCATE carts")
        return traffic.truncate_carts()

    def _kill(self, command: str) -> int:
        daemon = self._daemons[command]
        self._interruptions.append(Interruption(command, time.monotonic()))
        self._screen.say(f"[red]SIGKILL[/] cdc {command} (pid {daemon.pid}); traffic continues")
        daemon.kill()
        return 0

    def _start_again(self, command: str) -> int:
        daemon = self._daemons[command]
        daemon.start()
        self._interruptions[-1].started_s = time.monotonic()
        self._screen.say(f"cdc {command} started again (pid {daemon.pid})")
        return 0
