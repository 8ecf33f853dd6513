"""The rule for erased pasts against simulated compaction: a fold that it accepts is the state at the bound.

Cleaner, writer and reader take turns at random: the cleaner rewrites segment by segment from the beginning, in runs
that others overlap, drops old tombstones, and never covers a segment with a record younger than the lag.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from cdc.spark.snapshot.past import CLOCK_MARGIN_MS, LogPlace, LogReading, PartitionEvidence, judge

SEED = int(os.environ.get("SEED", "1"))
WORLDS = 2000


class Record(NamedTuple):
    offset: int
    key: int
    op: str
    time: int

    @property
    def place(self) -> LogPlace:
        return LogPlace(self.offset, self.offset, self.offset, self.time)


@dataclass
class Run:
    """One run of the cleaner: it covers offsets below ``end``; ``at`` is the next segment to rewrite."""

    end: int
    latest: dict[int, int]
    at: int = 0


@dataclass
class World:
    rng: random.Random
    now: int = 1_000_000
    next_offset: int = 0
    told: list[Record] = field(default_factory=list)
    segments: list[list[Record]] = field(default_factory=lambda: [[]])
    horizon: dict[int, int] = field(default_factory=dict)
    live: set[int] = field(default_factory=set)
    run: Run | None = None

    def __post_init__(self) -> None:
        rng = self.rng
        self.keys = rng.choice((3, 6, 20))
        self.lag = rng.choice((0, 0, 20_000, 60_000))
        self.retention = rng.choice((40_000, 300_000))
        self.busy = rng.choice((1, 2, 10, 40))
        self.inserts_only = rng.random() < 0.15

    def write(self) -> None:
        self.next_offset += self.rng.randrange(1, 3)  # markers leave gaps
        key = self.next_offset if self.inserts_only else self.rng.randrange(self.keys)
        if key not in self.live:
            op = self.rng.choice("cccru")
            self.live.add(key)
        elif self.rng.random() < 0.4:
            op = "d"
            self.live.remove(key)
        else:
            op = "u"
        record = Record(self.next_offset, key, op, self.now)
        self.next_offset += 1
        self.told.append(record)
        self.segments[-1].append(record)
        if self.rng.random() < 0.25:
            self.segments.append([])

    def clean(self) -> None:
        if self.run is None:
            covered: list[Record] = []
            for segment in self.segments[:-1]:
                if any(each.time > self.now - self.lag for each in segment):
                    break
                covered += segment
            if covered:
                # The map of keys may be full before the end.
                covered = covered[: self.rng.choice((len(covered), len(covered), self.rng.randint(1, len(covered))))]
                self.run = Run(covered[-1].offset + 1, {each.key: each.offset for each in covered})
            return
        run = self.run
        segment = self.segments[run.at]
        self.segments[run.at] = [each for each in segment if each.offset >= run.end or self._stays(each, run)]
        run.at += 1
        if run.at >= len(self.segments) - 1 or not any(each.offset < run.end for each in self.segments[run.at]):
            self.run = None

    def _stays(self, record: Record, run: Run) -> bool:
        if run.latest.get(record.key, record.offset) > record.offset:
            return False
        if record.op != "d":
            return True
        horizon = self.horizon.setdefault(record.offset, self.now + self.retention)
        return self.now <= horizon

    def step(self) -> None:
        self.now += self.rng.choice((1, 10, 500, 5_000, 20_000))
        self.write() if self.rng.random() < 0.5 else self.clean()

    def read(self, start: int, end: int) -> list[Record]:
        """Record by record, while others go on."""
        found: list[Record] = []
        position = start
        while True:
            for _ in range(self.rng.randrange(self.busy)):
                self.step()
            ahead = [each for segment in self.segments for each in segment if position <= each.offset < end]
            if not ahead:
                return found
            few = ahead[: self.rng.randint(1, 6)]
            found += few
            position = few[-1].offset + 1


class Judged(NamedTuple):
    accepted: bool
    quiet: bool


def look(world: World) -> Judged:
    """Read a world at a random bound, judge, and compare what is accepted with the truth."""
    rng = world.rng
    end = world.next_offset
    at = end if rng.random() < 0.3 else rng.randrange(end + 1)
    began = world.now
    log = world.read(0, end)
    tail = world.read(end, world.next_offset)
    found = replace(seen(log, tail, at), quiet=at == end == world.next_offset)
    there = {each.offset for segment in world.segments for each in segment}
    if found.superseded is not None and found.superseded not in there:
        found = replace(found, superseded=None, superseding=None)
    accepted = judge(found, LogReading(world.now, world.now - began, world.lag, world.retention)) is None
    if accepted:
        truth = {each.key: each for each in world.told if each.offset < at}
        fold = {each.key: each for each in log if each.offset < at}
        wanted = {key: each for key, each in truth.items() if each.op != "d"}
        assert {key: each for key, each in fold.items() if each.op != "d"} == wanted, f"SEED={SEED}"
    return Judged(accepted, found.bound is None)


def seen(log: list[Record], tail: list[Record], at: int) -> PartitionEvidence:
    """As ``cdc.spark.snapshot.fold`` tells it."""
    by_key: dict[int, list[Record]] = {}
    for each in log:
        by_key.setdefault(each.key, []).append(each)
    pairs = [(records[1], records[0]) for records in by_key.values() if len(records) > 1]
    y, x = min(pairs, default=(None, None))
    orphans = [records[0] for records in by_key.values() if records[0].op != "c"]
    firsts: dict[int, Record] = {}
    for each in tail:
        firsts.setdefault(each.key, each)
    orphans += [each for key, each in firsts.items() if key not in by_key and each.op != "c"]
    behind = [each for each in (*log, *tail) if each.offset >= at]
    return PartitionEvidence(
        partition=0,
        quiet=False,
        below=max((each.place for each in log if each.offset < at), key=lambda place: place.offset, default=None),
        bound=behind[0].place if behind else None,
        superseded=None if x is None else x.offset,
        superseding=None if y is None else y.place,
        orphan=max(orphans).place if orphans else None,
    )


def test_what_is_accepted_is_the_state_at_the_bound() -> None:
    judged = []
    for number in range(WORLDS):
        world = World(random.Random(SEED * 1_000_003 + number))
        world.now += CLOCK_MARGIN_MS
        for _ in range(world.rng.randrange(10, 150)):
            world.step()
        judged.append(look(world))
    accepted = [each for each in judged if each.accepted and not each.quiet]
    refused = [each for each in judged if not each.accepted]
    # The test is about both: a rule that refuses everything is sound, too.
    assert len(accepted) > WORLDS // 10, (len(accepted), len(refused))
    assert len(refused) > WORLDS // 10, (len(accepted), len(refused))
