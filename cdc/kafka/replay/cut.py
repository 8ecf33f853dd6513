"""Where a consistent cut lies: which of the records read so far are the state of the source at one LSN.

Theory of operation. A complete progress record at X says that every transaction that committed before X is published.
To apply exactly those, two questions have to be answered.

*Has everything before X been read?* Per partition: yes, once it delivered a record with ``lsn >= X``, because LSNs
never fall within a partition; or once it was read up to a fence (``TopicReader.fence``) that was asked for after X was
seen. The least of what each partition answers is the frontier: a cut may lie at any complete progress up to it.

*Which of the records read lie before X?* Those with ``lsn < X``; in each partition they are a prefix. The others are
held back and open the next batch.

A backfill publishes rows while the stream stands still: several progress records then say the same X, and each covers
more rows before X than the one before. So places for a cut are told apart by where their records lie, not by X alone.

The two are independent of the order in which partitions are read. With a quiet source, each progress is a cut as soon
as the fence is reached. Behind a backlog, the fence is far away, but busy partitions pass many X on the way, and the
greatest X that all have passed is a cut as well. New progress never moves a fence that is still being read up to: so
no load can put off a cut for ever.

When memory is full and no cut is possible (one transaction larger than memory), a part is *spilled*: applied in the
open replica transaction, not committed. ``floor`` remembers the least X that covers what was spilled.

A topic that is far from its end (a new table, one that is rebuilt, one that was stopped) is *behind*: no cut waits for
it, and each takes what was read of it, in the order of its LSNs, for a key may have records in two partitions. It joins
at a cut that everything of it was read for. While all topics are behind, they join together. So that a topic near its
end does not miss every cut by a hair, the fence waits for those. A topic that is loading *falls* behind when its
backfill brings more than can be read: the others need not wait for a table that is not whole.

What another program wrote has LSNs that mean nothing here. One far ahead would keep all records behind it in its
partition from ever being taken. Once it is known for what it is (``foreign.py``), it is set *apart* and the partition
is read again from there on. Its topic stays behind until a later record of the same key is taken.

Pure: no Kafka, no database, no clock. ``_cut.pyx`` does in C what looks at each record.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

from cdc.base.compiled import twin
from cdc.base.errors import DecodeError
from cdc.base.lsn import LSN, ZERO
from cdc.contract.header import header_position
from cdc.contract.ports import Partition, StoredRecord
from cdc.contract.record import Position, Progress

MAX_SEEN: Final = 4_096
"""Complete progress records remembered as places for a cut; of more, every second one is forgotten."""

_BEYOND: Final = LSN((1 << 64) - 1)
_BEFORE_ALL: Final = Position(ZERO, 0)
_NEAR: Final = 10_000
"""Offsets to its end from which on a topic that is behind is waited for; a second's reading."""
_RECORD_BYTES: Final = 400
"""What CPython needs for a record besides key, value and header, about."""
_partition_of: Final = itemgetter(0, 1)
_Climb: TypeAlias = Callable[[Sequence[StoredRecord], LSN], tuple[LSN, bool]]


class Cut(NamedTuple):
    """A place for a cut.

    Attributes:
        progress: complete.
        offset: of its record in the progress topic.
    """

    progress: Progress
    offset: int


class HeldBack(NamedTuple):
    """What a partition holds back.

    Attributes:
        record: the first one.
        last: offset of the last one.
        falls: whether an older one was read behind a newer one: the bridge never writes so, or it is stale.
    """

    record: StoredRecord
    last: int
    falls: bool


@dataclass(slots=True)
class _Waiting:
    """One partition's records that are not applied yet, in order; ``newest`` is the LSN of the last one ever read.
    ``passed`` is its position, where stale records are expected. ``falls`` says that an older one was read behind it.
    ``apart`` is the last record of each key that the bridge cannot have written, ``left_out`` the offsets of all."""

    records: list[StoredRecord] = field(default_factory=list)
    newest: LSN = ZERO
    passed: Position = _BEFORE_ALL
    falls: bool = False
    apart: dict[bytes | None, StoredRecord] = field(default_factory=dict)
    left_out: set[int] = field(default_factory=set)

    def is_next(self, record: StoredRecord) -> bool:
        """Whether the next record does not go back; one without a readable header stands where its predecessor is."""
        try:
            position = header_position(record.header)
        except DecodeError:
            return True
        if position < self.passed:
            self.falls = True
            return False
        self.passed = position
        return True

    def without_apart(self, records: Iterable[StoredRecord]) -> Iterable[StoredRecord]:
        """Those that are read for the first time."""
        return (each for each in records if each.offset not in self.left_out) if self.left_out else records

    def take(self, bound: LSN, published: LSN) -> tuple[list[StoredRecord], int]:
        """Remove and return every record before ``bound``, and how many of them were waiting.

        Args:
            bound: of those that are waiting.
            published: of those that are apart. After a failover they may be of the timeline that was lost: what the
                progress comes to counts again.
        """
        end = self._end_of(bound)
        taken = self.records[:end]
        if end:
            del self.records[:end]
            self.falls = self.falls and climb(self.records, ZERO)[1]
        if not self.apart:
            return taken, end
        due = [each for each in self.apart.values() if _lsn_at([each], 0) < published]
        for record in (*due, *taken):
            if record.key in self.apart and self.apart[record.key].offset <= record.offset:
                del self.apart[record.key]
        return [*due, *taken], end

    def _end_of(self, bound: LSN) -> int:
        """How many records, from the first on, lie before ``bound``: what is behind one that does not is not known."""
        lsn_at = partial(_lsn_at, self.records)
        if self.falls:
            return next((place for place in range(len(self.records)) if lsn_at(place) >= bound), len(self.records))
        return bisect_left(range(len(self.records)), bound, key=lsn_at) if self.records else 0


class CutBuffer:
    """Holds records back until a cut covers them.

    Args:
        max_records: the buffer is full with this many records …
        max_bytes: … or with records of this many bytes.
        floor: the least LSN at which a cut may lie: where the replica stands.
    """

    def __init__(self, max_records: int, max_bytes: int, floor: LSN = ZERO) -> None:
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._waiting: dict[Partition, _Waiting] = {}
        self._behind: set[str] = set()
        self._others: set[Partition] = set()
        self._count = 0
        self._bytes = 0
        self._seen: list[Cut] = []
        self._targets: Mapping[Partition, int] = {}
        self._positions: Mapping[Partition, int] = {}
        self._fenced: Cut | None = None
        self._floor = floor
        self._taken = -1
        self._expects_stale = False
        module = twin("cdc.kafka.replay._cut")
        self._climb: _Climb = climb if module is None else module.climb

    @property
    def is_full(self) -> bool:
        """Whether memory asks for a cut or a spill now."""
        return self._count >= self._max_records or self._bytes >= self._max_bytes

    @property
    def behind(self) -> frozenset[str]:
        """Topics that are not part of the cut yet."""
        return frozenset(self._behind)

    @property
    def has_joined(self) -> bool:
        """Whether any topic is part of the cut."""
        return any(topic not in self._behind for topic, _ in self._waiting)

    def watch(self, partitions: Iterable[Partition], *, state: bool, behind: bool = False) -> None:
        """Partitions that count from now on; with ``state``, their records are what a cut is made of.

        With ``behind`` their topics join later, else a cut needs them at once.
        """
        if state:
            # What follows a cut is not older than the rows that a backfill may add to it
            passed = _BEFORE_ALL if behind or not self._floor else Position(LSN(self._floor - 1), 0)
            for each in partitions:
                self._waiting[each] = _Waiting(passed=passed)
                if behind:
                    self._behind.add(each[0])
        else:
            self._others.update(partitions)
        self._targets, self._fenced = {}, None  # the fence did not ask for these

    def add(self, records: Iterable[StoredRecord]) -> None:
        """Records of state partitions, in order within each partition."""
        for partition, group in groupby(records, _partition_of):  # a reader hands out one partition after the other
            waiting = self._waiting[partition]
            added = [*self._sifted(waiting, waiting.without_apart(group))]
            waiting.newest, falls = self._climb(added, waiting.newest)
            waiting.falls |= falls
            waiting.records += added
            self._count += len(added)
            self._bytes += _size(added)

    def expect_stale(self) -> None:
        """From now on leave out what goes back in a partition: a bridge that was stopped and woke up wrote it."""
        self._expects_stale = True

    def saw(self, cut: Cut) -> None:
        """A complete progress record was read."""
        if cut.progress.lsn < self._floor or (self._seen and cut.progress.lsn < self._seen[-1].progress.lsn):
            return
        self._seen.append(cut)
        if len(self._seen) > MAX_SEEN:
            self._seen = self._seen[1::2]

    def wants_fence(self, positions: Mapping[Partition, int]) -> bool:
        """Whether a progress record was seen that no fence covers, and the last fence is reached or of no more use."""
        newest, fenced = self._seen[-1] if self._seen else None, self._fenced
        if newest is None or newest.progress.lsn < self._floor:
            return False
        if fenced is None:
            return True
        if newest.offset <= fenced.offset:
            return False
        is_spent = fenced.offset <= self._taken or fenced.progress.lsn < self._floor
        return is_spent or self.is_fence_reached(positions)

    def forget_fence(self) -> None:
        """Ask for another one, although no new progress was seen: to learn that there is none."""
        self._targets, self._fenced = {}, None

    def fence(self, targets: Mapping[Partition, int]) -> None:
        """Positions asked for just now: with them reached, everything before the newest progress seen was read."""
        self._targets = targets
        self._fenced = self._seen[-1]

    def is_fence_reached(self, positions: Mapping[Partition, int]) -> bool:
        """Whether every partition that a cut waits for was read up to the fence."""
        self._positions = positions
        return self._fenced is not None and all(
            self._reached(each, positions) for each in (*self._awaited(positions), *self._others)
        )

    def cut(self, positions: Mapping[Partition, int], *, again: bool = False) -> Cut | None:
        """The greatest place for a cut that everything before it was read for; None when there is none yet.

        Args:
            positions: up to which each partition was read.
            again: the place that was taken last will do, for what topics that are behind have read since.
        """
        if self._fenced is None or not all(self._reached(each, positions) for each in self._others):
            return None
        frontier = self._fenced.progress.lsn
        for partition in self._awaited(positions):
            if not self._reached(partition, positions):
                frontier = min(frontier, self._waiting[partition].newest)
        fenced = bisect_left(self._seen, self._fenced.offset + 1, key=_offset_of)
        place = bisect_left(self._seen, frontier + 1, hi=fenced, key=_lsn_of) - 1
        if place < 0 or self._seen[place].progress.lsn < self._floor:
            return None
        found = self._seen[place]
        return found if again or found.offset > self._taken else None

    def joining(self, cut: Cut, positions: Mapping[Partition, int]) -> frozenset[str]:
        """Topics that are behind until now and complete at this cut."""
        if not self._behind:
            return frozenset()
        lacking = {
            partition[0]
            for partition, waiting in self._waiting.items()
            if waiting.newest < cut.progress.lsn and not self._reached(partition, positions)
        }
        if lacking & self._behind and not self.has_joined:
            return frozenset()
        apart = {topic for (topic, _), waiting in self._waiting.items() if waiting.apart}
        return frozenset(self._behind - lacking - apart)

    def join(self, topics: Collection[str]) -> None:
        """These topics are part of every cut from now on."""
        self._behind.difference_update(topics)

    def flooded(self, loading: Collection[str], positions: Mapping[Partition, int]) -> frozenset[str]:
        """Of topics that are loading those which keep others from a cut: far from the fence, and part of it."""
        joined = {topic for topic, _ in self._waiting if topic not in self._behind}
        far = {
            each[0]
            for each in self._waiting
            if each[0] in loading and self._targets.get(each, 0) - positions.get(each, 0) > _NEAR
        }
        return frozenset() if joined <= far else frozenset(joined & far)

    def fall_behind(self, topics: Collection[str]) -> None:
        """No cut waits for these topics until they join again."""
        self._behind.update(topics)

    def is_passed(
        self,
        cut: Cut,
        joining: Collection[str],
        positions: Mapping[Partition, int] | None = None,
        ends: Mapping[Partition, int] | None = None,
    ) -> bool:
        """Whether nothing lies beyond the cut in the topics that are part of it, or are to be.

        Args:
            cut: that ``cut`` found.
            joining: topics that are to be part of it.
            positions: up to which each partition was read; with ``ends``.
            ends: a fence that was asked for with these positions reached; without, only what was read counts.
        """
        apart = self._behind.difference(joining)
        return all(
            waiting.newest < cut.progress.lsn
            and (positions is None or ends is None or positions[partition] >= ends[partition])
            for partition, waiting in self._waiting.items()
            if partition[0] not in apart
        )

    def holds_below(self, below: LSN) -> bool:
        """Whether ``take`` would take anything."""
        frontiers = self._frontiers()
        return any(
            waiting.records and _lsn_at(waiting.records, 0) < min(below, frontiers.get(topic, below))
            for (topic, _), waiting in self._waiting.items()
        )

    def take(self, below: LSN, published: LSN | None = None) -> dict[str, list[StoredRecord]]:
        """Remove and return every record with ``lsn < below``, by topic, in order within each partition.

        Args:
            below: in topics that are behind, less where not all before that was read.
            published: where the progress stands, if not at ``below``.
        """
        taken: dict[str, list[StoredRecord]] = {}
        frontiers = self._frontiers()
        for (topic, _), waiting in self._waiting.items():
            if waiting.records or waiting.apart:
                records, waited = waiting.take(
                    min(below, frontiers.get(topic, below)), below if published is None else published
                )
                self._count -= waited
                self._bytes -= _size(records[len(records) - waited :])
                if records:
                    taken.setdefault(topic, []).extend(records)
        return taken

    def take_cut(self, cut: Cut) -> dict[str, list[StoredRecord]]:
        """``take`` for a cut; earlier places for one are forgotten, this one may be taken ``again``."""
        del self._seen[: bisect_left(self._seen, cut.offset, key=_offset_of)]
        self._floor, self._taken = cut.progress.lsn, cut.offset
        return self.take(cut.progress.lsn)

    @property
    def knows_next(self) -> bool:
        """Whether a progress was seen at which the next cut may lie."""
        return self._next_place() is not None

    def spill(self, published: LSN) -> dict[str, list[StoredRecord]]:
        """Remove and return records that the next possible cut is sure to cover; later cuts only lie beyond them.

        Call it when ``cut`` says None. All that was read so far goes, or, if a later progress is known already, all
        that lies before it. May be empty: then ``ahead`` names the partitions to stop reading for now.

        Args:
            published: at or beyond which nothing goes. It may be another program's, whom no cut ever covers.
        """
        place = self._next_place()
        if place is not None:
            self._floor = place.progress.lsn
            return self.take(self._floor)
        taken = self.take(published, ZERO)
        newest = max((self._climb(records, ZERO)[0] for records in taken.values()), default=ZERO)
        self._floor = max(self._floor, LSN(newest + 1))
        return taken

    def ahead(self, published: LSN) -> Collection[Partition]:
        """Partitions of which everything for the next cut was read: what they deliver now only fills memory.

        Of topics that are behind, those that are further than others of the same topic.

        Args:
            published: while no next cut is known, what lies there or beyond has to wait for it, too.
        """
        place, frontiers = self._next_place(), self._frontiers()
        bound = published if place is None else place.progress.lsn
        return [
            partition
            for partition, waiting in self._waiting.items()
            if waiting.newest >= min(bound, frontiers.get(partition[0], _BEYOND))
        ]

    def beyond(self, lsn: LSN) -> list[HeldBack]:
        """What is held back, of each partition whose first record that is lies at or beyond ``lsn``."""
        return [
            HeldBack(waiting.records[0], waiting.records[-1].offset, waiting.falls)
            for waiting in self._waiting.values()
            if waiting.records and _lsn_at(waiting.records, 0) >= lsn
        ]

    def set_apart(self, held: HeldBack, lsn: LSN) -> list[StoredRecord]:
        """Leave out what the bridge cannot have written; the partition is to be read again from the first one on.

        Args:
            held: as ``beyond`` told; its topic is behind.
            lsn: at or beyond which a record of these is not the bridge's.

        Returns:
            Those that are left out.
        """
        waiting = self._waiting[held.record.topic, held.record.partition]
        records = waiting.records
        found = [
            each for place, each in enumerate(records) if each.offset <= held.last and _lsn_at(records, place) >= lsn
        ]
        self._count -= len(records)
        self._bytes -= _size(records)
        for each in found:  # not always in order: one that was stale behind another is found after it
            if each.key not in waiting.apart or waiting.apart[each.key].offset < each.offset:
                waiting.apart[each.key] = each
        waiting.left_out.update(each.offset for each in found)
        waiting.records, waiting.newest, waiting.passed, waiting.falls = [], ZERO, _BEFORE_ALL, False
        return found

    def next_offsets(self, positions: Mapping[Partition, int]) -> dict[Partition, int]:
        """Per state partition the first record that is still held back or apart, else the position."""
        return {
            partition: min(each.offset for each in (*waiting.apart.values(), *waiting.records[:1]))
            if waiting.apart or waiting.records
            else positions[partition]
            for partition, waiting in self._waiting.items()
        }

    def _sifted(self, waiting: _Waiting, records: Iterable[StoredRecord]) -> Iterable[StoredRecord]:
        return filter(waiting.is_next, records) if self._expects_stale else records

    def _frontiers(self) -> dict[str, LSN]:
        """Of topics that are behind, the LSN before which records may be taken; absent when all of it was read.

        Everything before the last one is there. Of the last one all that is there may go: a key's records in one
        transaction differ in how the key is spelt at most, and a transaction may be larger than memory.
        """
        frontiers: dict[str, LSN] = {}
        if self._behind:
            for partition, waiting in self._waiting.items():
                if partition[0] in self._behind and not self._reached(partition, self._positions):
                    frontiers[partition[0]] = min(frontiers.get(partition[0], _BEYOND), LSN(waiting.newest + 1))
        return frontiers

    def _next_place(self) -> Cut | None:
        """The first known place at which the next cut may lie."""
        first = bisect_left(self._seen, self._taken + 1, key=_offset_of)
        place = bisect_left(self._seen, self._floor, lo=first, key=_lsn_of)
        return self._seen[place] if place < len(self._seen) else None

    def _awaited(self, positions: Mapping[Partition, int]) -> Iterable[Partition]:
        """State partitions that a cut waits for: of topics that have joined, or will soon."""
        if not self._behind:
            return self._waiting
        return [
            each
            for each in self._waiting
            if each[0] not in self._behind or (each in self._targets and self._targets[each] - positions[each] <= _NEAR)
        ]

    def _reached(self, partition: Partition, positions: Mapping[Partition, int]) -> bool:
        target = self._targets.get(partition)
        return target is not None and positions.get(partition, 0) >= target


def climb(records: Sequence[StoredRecord], start: LSN) -> tuple[LSN, bool]:
    """The newest LSN there is, and whether one of these records lies before what was read ahead of it.

    Args:
        records: of one partition, in order; those without a readable header do not count.
        start: the newest LSN ahead of them.
    """
    newest, falls = start, False
    for record in records:
        try:
            lsn = header_position(record.header).lsn
        except DecodeError:
            continue
        if lsn < newest:
            falls = True
        else:
            newest = lsn
    return newest, falls


def _size(records: Sequence[StoredRecord]) -> int:
    held = sum([len(key or b"") + len(value or b"") + len(header) for _, _, _, key, value, header in records])
    return held + len(records) * _RECORD_BYTES


def _lsn_of(cut: Cut) -> LSN:
    return cut.progress.lsn


def _offset_of(cut: Cut) -> int:
    return cut.offset


def _lsn_at(records: list[StoredRecord], place: int) -> LSN:
    """The LSN of the record there; one without a readable header stands where its predecessor stands."""
    while place >= 0:
        try:
            return header_position(records[place].header).lsn
        except DecodeError:
            place -= 1
    return ZERO
