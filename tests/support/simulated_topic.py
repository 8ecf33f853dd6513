"""A table, a bridge, a compacted topic and a scan of it, in memory and in random order of steps: no server, no clock.

It does what PostgreSQL and Kafka do where the reconciler's rule leans on it: a commit is in the WAL (and may be
published) before it is visible, row locks last until then, snapshots are sets of transactions, chunks of a backfill
come late, rows re-read for their TOAST may be newer or gone, the cleaner works on a prefix of a partition, and a scan
is not one moment. It also remembers every record that ever was in the topic, so that ``truth`` needs no rule.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from cdc.spark.reconcile.verdict import KeyClass, RecordFacts
from cdc.spark.source.visibility import VisibleTransactions

KEYS = 5
PARTITIONS = 2
GHOST = KEYS
"""A key that no transaction ever touches."""

Row: TypeAlias = tuple[object, ...]
Fault: TypeAlias = Literal["drop", "alter", "stale", "ghost"]


@dataclass(frozen=True)
class Settings:
    """What differs between runs."""

    lag_ms: int
    delete_retention_ms: int
    toast: bool
    reads_on: bool
    fault: Fault | None


@dataclass(frozen=True)
class Stored:
    """A record, and what only an oracle may know of it: the transactions that its content includes."""

    key: int
    facts: RecordFacts
    includes: frozenset[int]


@dataclass
class Transaction:
    """``writes`` holds per change the key, the new row or None, and whether its TOAST was left out of the stream."""

    xid: int
    writes: list[tuple[int, Row | None, bool]] = field(default_factory=list)
    committed: bool = False


@dataclass
class Chunk:
    """All keys, read in ``snapshot``; published once the stream is at ``end``."""

    snapshot: VisibleTransactions
    sees: frozenset[int]
    rows: dict[int, Row]
    end: int
    touched: dict[int, int]
    guard: frozenset[int]


class World:
    """Everything, advanced by ``step``."""

    def __init__(self, rng: random.Random, settings: Settings) -> None:
        self.rng, self.settings, self.now = rng, settings, 1_000
        self.next_xid, self.latest_over = 2, 1
        self.history: dict[int, list[tuple[int, Row | None]]] = {
            key: [(1, (key, "initial", "toast"))] if rng.random() < 0.6 else [] for key in range(KEYS)
        }
        self.visible = frozenset({1})
        self.open: list[Transaction] = []
        self.wal: list[Transaction] = []
        self.published = 0
        self.chunk: Chunk | None = None
        self.whole = False
        self.unseen: tuple[int, ...] = ()
        self.logs: list[list[Stored]] = [[] for _ in range(PARTITIONS)]
        self.all: list[list[Stored]] = [[] for _ in range(PARTITIONS)]
        self.horizons: dict[tuple[int, int], int] = {}
        # A bridge that lags and a lazy or busy cleaner make different histories.
        self.bridge_pace, self.cleaner_pace = rng.choice((3, 6)), rng.choice((1, 4))
        self.fault_at = rng.randrange(15)
        self.faulted = False

    def step(self) -> None:
        """One thing happens."""
        self.now += self.rng.randint(1, 5)
        steps: tuple[tuple[Callable[[], None], int], ...] = (
            (self._begin, 2),
            (self._write, 6),
            (self._commit, 3),
            (self._show, 3),
            (self._abort, 1),
            (self.publish, self.bridge_pace),
            (self._backfill, 2),
            (self._clean, self.cleaner_pace),
        )
        self.rng.choices([each for each, _ in steps], [weight for _, weight in steps])[0]()

    # The source

    def snapshot(self) -> VisibleTransactions:
        xmax = self.latest_over + 1
        running = {each.xid for each in self.open if each.xid < xmax}
        return VisibleTransactions.parse(f"{min(running | {xmax})}:{xmax}:{','.join(map(str, sorted(running)))}")

    def rows(self, sees: frozenset[int]) -> dict[int, Row]:
        """The table as whoever sees these transactions finds it."""
        found = {}
        for key, versions in self.history.items():
            row = next((row for xid, row in reversed(versions) if xid in sees), None)
            if row is not None:
                found[key] = row
        return found

    def _begin(self) -> None:
        if len(self.open) < 4:
            self.open.append(Transaction(self.next_xid))
            self.next_xid += 1

    def _write(self) -> None:
        writers = [each for each in self.open if not each.committed]
        if not writers:
            return
        writer, key = self.rng.choice(writers), self.rng.randrange(KEYS)
        if any(key == locked for each in self.open if each is not writer for locked, _, _ in each.writes):
            return
        own = [row for written, row, _ in writer.writes if written == key]
        before = own[-1] if own else self.rows(self.visible).get(key)
        if before is not None and self.rng.random() < 0.3:
            writer.writes.append((key, None, False))
            return
        row: Row = (key, f"{writer.xid}.{len(writer.writes)}", f"toast {self.rng.randrange(10**6)}")
        left_out = self.settings.toast and before is not None and self.rng.random() < 0.5
        writer.writes.append((key, (*row[:2], before[2]) if left_out and before else row, left_out))

    def _commit(self) -> None:
        writers = [each for each in self.open if not each.committed and each.writes]
        if writers:
            writer = self.rng.choice(writers)
            writer.committed = True
            self.wal.append(writer)

    def _show(self) -> None:
        committed = [each for each in self.open if each.committed]
        if committed:
            shown = self.rng.choice(committed)
            self._end(shown)
            for key, row, _ in shown.writes:
                self.history[key].append((shown.xid, row))

    def _abort(self) -> None:
        running = [each for each in self.open if not each.committed]
        if running:
            self._end(self.rng.choice(running))

    def _end(self, transaction: Transaction) -> None:
        self.open.remove(transaction)
        self.visible |= {transaction.xid}
        self.latest_over = max(self.latest_over, transaction.xid)

    # The bridge

    def publish(self) -> None:
        """The next transaction of the WAL, unless it has to wait until it is visible to be re-read."""
        if self.published == len(self.wal):
            return
        transaction = self.wal[self.published]
        if transaction.xid not in self.visible and any(left_out for _, _, left_out in transaction.writes):
            return
        self.published += 1
        now = self.rows(self.visible)
        for key, row, left_out in transaction.writes:
            if self.chunk is not None:
                self.chunk.touched[key] = transaction.xid
            newer = False
            if row is not None and left_out:
                if key not in now:
                    continue
                newer = self._writer(key) != transaction.xid
                row = (*row[:2], now[key][2])
            self._produce(key, row, transaction.xid, frozenset({transaction.xid}), newer)

    def _writer(self, key: int) -> int:
        return self.history[key][-1][0]

    def _backfill(self) -> None:
        chunk = self.chunk
        unseen = self._unseen()
        if chunk is None:
            if not self.whole or self.rng.random() < 0.3:
                self.chunk = self._read({}, unseen)
        elif not chunk.guard <= chunk.sees:
            self.chunk = self._read(chunk.touched, chunk.guard)
        elif self.published >= chunk.end:
            for key, row in chunk.rows.items():
                if chunk.touched.get(key, 1) in chunk.sees:
                    self._produce(key, row, chunk.snapshot, chunk.sees, False)
            if not self.whole:
                self.unseen = tuple(self._unseen())
            self.chunk, self.whole = None, True
        elif self.rng.random() < 0.5:
            # Recording began earlier than the snapshot that counts.
            self.chunk = self._read(chunk.touched, chunk.guard)

    def _unseen(self) -> frozenset[int]:
        return frozenset(each.xid for each in self.wal[: self.published]) - self.visible

    def _read(self, touched: dict[int, int], guard: frozenset[int]) -> Chunk:
        return Chunk(self.snapshot(), self.visible, self.rows(self.visible), len(self.wal), touched, guard)

    # The topic

    def _produce(
        self, key: int, row: Row | None, author: int | VisibleTransactions, includes: frozenset[int], newer: bool
    ) -> None:
        self.fault_at -= 1
        fault = self.settings.fault if self.whole and self.fault_at < 0 and not self.faulted else None
        if fault == "drop":
            self.faulted = True
            return
        if fault == "alter" and row is not None:
            self.faulted, row = True, (*row, "altered")
        self._append(key, row, author, includes, newer)
        if fault == "ghost":
            self.faulted = True
            self._append(GHOST, (GHOST, "ghost", "toast"), author, includes, newer)
        if fault == "stale":
            older = [each for each in self.all[key % PARTITIONS][:-1] if each.key == key]
            if older:
                self.faulted, copy = True, self.rng.choice(older)
                self._append(key, copy.facts.digest, copy.facts.author, copy.includes, copy.facts.toast_newer)  # type: ignore[arg-type]  # a digest is free, here it is an integer

    def _append(
        self, key: int, row: Row | None, author: int | VisibleTransactions, includes: frozenset[int], newer: bool
    ) -> None:
        partition = key % PARTITIONS
        ever = self.all[partition]
        facts = RecordFacts(partition, len(ever), self.now, author, row, newer)
        ever.append(Stored(key, facts, includes))
        self.logs[partition].append(ever[-1])

    def _clean(self) -> None:
        """Clean a prefix of a partition that holds nothing younger than the lag allows, and not the last record."""
        partition = self.rng.randrange(PARTITIONS)
        log = self.logs[partition]
        young = (i for i, each in enumerate(log) if each.facts.timestamp_ms > self.now - self.settings.lag_ms)
        limit = min(next(young, len(log)), len(log) - 1)
        if limit <= 0:
            return
        end = limit if self.rng.random() < 0.6 else self.rng.randint(1, limit)
        last = {each.key: each.facts.offset for each in log[:end]}
        self.logs[partition] = [
            each for each in log[:end] if last[each.key] == each.facts.offset and not self._is_expired(each)
        ] + log[end:]

    def _is_expired(self, stored: Stored) -> bool:
        if stored.facts.digest is not None:
            return False
        place = (stored.facts.partition, stored.facts.offset)
        horizon = self.horizons.setdefault(place, self.now + self.settings.delete_retention_ms)
        return self.now > horizon

    def ends(self) -> list[int]:
        return [len(each) for each in self.all]

    def truth(self, key: int, scan: Scan) -> KeyClass:
        """How the topic up to the scan's ends, had it never been cleaned, differs from the source."""
        partition, source = key % PARTITIONS, scan.source.get(key)
        records = self.all[partition][: scan.ends[partition]]
        counted = [each for each in records if each.key == key and each.includes <= scan.sees]
        held = counted[-1].facts.digest if counted else None
        if held == source:
            return KeyClass.IDENTICAL
        if source is None:
            return KeyClass.EXTRA_IN_TOPIC
        return KeyClass.MISSING_IN_TOPIC if held is None else KeyClass.VALUE_MISMATCH


@dataclass(frozen=True)
class Scan:
    """A reconciliation of a world: what it saw of the source at S, what it read of the topic, and when."""

    snapshot: VisibleTransactions
    sees: frozenset[int]
    source: dict[int, Row]
    records: dict[int, list[RecordFacts]]
    ends: list[int]
    taken_ms: int
    pinned_ms: int
    ended_ms: int


def run(world: World) -> Scan:
    """Live for a while, then take S, pass the fences and scan, while everything goes on."""
    while not world.whole:
        world.step()
    for _ in range(world.rng.randrange(120)):
        world.step()
    taken = Scan(world.snapshot(), world.visible, world.rows(world.visible), {}, [], world.now, 0, 0)
    # The second fence is for rows that were gone when they were re-read: see cdc.spark.reconcile.verdict.
    for _ in range(2 if world.settings.toast else 1):
        fence = len(world.wal)
        while world.published < fence:
            world.step()
    for _ in range(world.rng.choice((0, 0, 60))):
        world.step()
    pinned_ms = world.now
    records: dict[int, list[RecordFacts]] = {key: [] for key in range(KEYS + 1)}
    starts, ends, pace = [0] * PARTITIONS, world.ends(), world.rng.choice((1, 3, 10))
    _read_on(world, starts, ends, records, pace)
    if world.settings.reads_on:
        starts, ends, pinned_ms = ends, world.ends(), world.now
        _read_on(world, starts, ends, records, pace)
    return replace(taken, records=records, ends=ends, pinned_ms=pinned_ms, ended_ms=world.now)


def _read_on(
    world: World, starts: list[int], ends: list[int], records: dict[int, list[RecordFacts]], pace: int
) -> None:
    """Read one partition after the other, a few records at a time, with up to ``pace`` steps in between."""
    for partition, end in enumerate(ends):
        position = starts[partition]
        while True:
            for _ in range(world.rng.randrange(pace)):
                world.step()
            ahead = [each for each in world.logs[partition] if position <= each.facts.offset < end]
            if not ahead:
                break
            for each in ahead[: world.rng.randint(1, 6)]:
                records[each.key].append(each.facts)
                position = each.facts.offset + 1
