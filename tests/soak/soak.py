"""The soak itself: turns of the load, hits of faults, checks; and what is measured meanwhile."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import psutil
import psycopg

from cdc.base.lsn import LSN, ZERO
from cdc.lab.proof.positions import fence, recorded_cut
from tests.soak.comparison import Comparison
from tests.soak.faults import KINDS, Hit, chosen
from tests.soak.figures import Check, Figures, Sample
from tests.soak.last_checks import MOST_RECONCILED, can_reconcile, not_said, reconciled
from tests.soak.load import Crew
from tests.soak.place import Place
from tests.support import bank
from tests.support.waiting import within

_LOOK_EVERY_S: Final = 0.1
_FARTHEST: Final = 48 << 20
"""Bytes of WAL that the replica may be away; then the load waits, as it would offer any machine more than it can do."""
_CATCHES_UP_IN_S: Final = 300.0


class Plan(NamedTuple):
    """What to do, and for how long."""

    profiles: list[str]
    kinds: Collection[str]
    seconds: float
    check_every_s: float
    seed: int


class SoakFailed(Exception):
    """Why it is not worth while to go on."""


@dataclass
class Recovery:
    """A fault that is over, and what the replica has to hold before it counts as recovered."""

    kind: str
    began: float
    wanted: LSN | None = None


class Soak:
    """One run.

    Args:
        figures: get all measurements, even of a run that is broken off.
        say: shows a line at once.
    """

    def __init__(self, place: Place, plan: Plan, figures: Figures, say: Callable[[str], None]) -> None:
        self._place, self._plan, self._figures, self._say = place, plan, figures, say
        self._rng = rng = random.Random(plan.seed)
        self._crew = Crew(place.live.source, plan.profiles, rng)
        self._hits: Iterator[Hit] = chosen(rng, plan.kinds)
        self._next = next(self._hits, None)
        self._watcher = bank.Watcher(place.live.replica)
        self._comparison = Comparison(place)
        self._recoveries: list[Recovery] = []
        self._here, self._cut = ZERO, ZERO
        self._turns = dict.fromkeys(plan.profiles, 0.0)
        self._began = self._looked = time.monotonic()

    def run(self) -> None:
        """Start all, and go on until the time is over.

        Raises:
            SoakFailed: something ended by itself, did not catch up, or is not the same.
        """
        self._place.live.start()
        self._crew.start()
        self._watcher.start()
        self._began = self._looked = time.monotonic()
        try:
            while self._seconds() < self._plan.seconds:
                self._load_and_faults()
                self._check()
            self._say("once more, for a reader that begins with the first record that is left")
            self._comparison.begin_anew()
            self._check()
        finally:
            self._count()
        self._crew.finish()
        self._watcher.finish()
        self._check_once()
        self._place.live.stop()

    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def _count(self) -> None:
        """Take over what threads have counted."""
        self._figures.loads = self._crew.loads()
        for name, load in self._figures.loads.items():
            load.seconds = sum(self._turns.values()) if name == "bank" else self._turns[name]
        self._figures.cuts, self._figures.looks = self._watcher.seen.cuts, self._watcher.seen.looks

    def _load_and_faults(self) -> None:
        """Until the next check is due."""
        end = min(time.monotonic() + self._plan.check_every_s, self._began + self._plan.seconds)
        self._looked = time.monotonic()
        while (now := time.monotonic()) < end:
            due = now + self._next.pause_s if self._next else end
            while time.monotonic() < min(due, end):
                self._pass_turn()
                self._look()
                threading.Event().wait(_LOOK_EVERY_S)
            if self._next is not None and due <= end:
                self._hit(self._next)
                self._next = next(self._hits)

    def _pass_turn(self) -> None:
        """Each profile has as much time between two checks as the others."""
        names, now = self._plan.profiles, time.monotonic()
        name = names[int(sum(self._turns.values()) * len(names) / self._plan.check_every_s) % len(names)]
        self._turns[name] += now - self._looked
        goes_on = self._here - self._cut < _FARTHEST
        self._figures.waited_s += 0 if goes_on else now - self._looked
        self._looked = now
        self._crew.take_turn(name, goes_on=goes_on)

    def _hit(self, hit: Hit) -> None:
        self._look()  # what has ended by itself must not look as if this had ended it
        self._figures.faults[hit.kind] += 1
        began = time.monotonic()
        KINDS[hit.kind](self._place, hit.lasts_s)
        self._recoveries.append(Recovery(hit.kind, began))

    def _look(self) -> None:
        """See who is alive and how far the replica is, and note what has recovered."""
        if ended := self._place.ended():
            raise SoakFailed("\n".join(ended))
        self._crew.look()
        if not self._watcher.is_alive():
            self._watcher.finish()
        if self._watcher.seen.faults:
            raise SoakFailed("; ".join(self._watcher.seen.faults))
        self._ask()
        for each in [each for each in self._recoveries if each.wanted is not None and each.wanted <= self._cut]:
            self._recoveries.remove(each)
            self._figures.recoveries[each.kind].append(time.monotonic() - each.began)

    def _ask(self) -> None:
        """Ask source and replica for their positions; what does not answer now is asked again."""
        try:
            with self._place.live.source.connect(connect_timeout=5) as source:
                self._here = LSN(source.execute("select pg_current_wal_flush_lsn() - '0/0'").fetchall()[0][0])
                for each in self._recoveries:
                    each.wanted = each.wanted or fence(source)
            with self._place.live.replica.connect(connect_timeout=5) as replica:
                self._cut = max(self._cut, recorded_cut(replica, self._place.live.name) or ZERO)
        except psycopg.OperationalError:
            return

    def _check(self) -> None:
        """Stop the load, let everything catch up, and compare."""
        with self._crew.standing_still():
            began = time.monotonic()
            self._catch_up()
            caught_up = time.monotonic()
            found = self._comparison.compare()
            took = time.monotonic()
            times = caught_up - self._began, caught_up - began, took - caught_up
            self._figures.checks.append(Check(*times, found.tables, found.rows, len(found.differences)))
            self._measure()
        said = f"{found.tables} tables, {found.rows:,} rows, {len(found.differences)} differences"
        self._say(
            f"{times[0]:6.0f} s: caught up in {times[1]:.1f} s, {said}, {self._figures.faults.total()} faults so far"
        )
        if found.differences:
            raise SoakFailed("\n".join([*found.differences, *self._place.ended()]))

    def _check_once(self) -> None:
        """Check what takes long, and does not change."""
        wrong = not_said(self._place)
        if can_reconcile():
            self._say("once more, with Spark")
            tables = self._comparison.tables()
            chosen_ones = self._rng.sample(tables, min(MOST_RECONCILED, len(tables)))
            said, different = reconciled(self._place, chosen_ones, self._place.live.directory / "report")
            self._figures.remarks.append(said)
            wrong += different
        if wrong:
            raise SoakFailed("\n".join(wrong))

    def _catch_up(self) -> None:
        """Wait until the replica holds all that is committed now, and no fault is left to recover from."""
        with self._place.live.source.connect() as source:
            wanted = fence(source)

        def is_there() -> bool:
            self._look()
            return not self._recoveries and self._cut >= wanted

        if not within(is_there, _CATCHES_UP_IN_S):
            tails = [each.tail() for each in self._place.processes.values()]
            raise SoakFailed("\n".join([f"the replica did not catch up in {_CATCHES_UP_IN_S:g} s", *tails]))

    def _measure(self) -> None:
        for name, process in self._place.processes.items():
            seen = psutil.Process(process.pid)
            age = time.time() - seen.create_time()
            self._figures.samples[name].append(Sample(seen.memory_info().rss, seen.num_fds(), age))
