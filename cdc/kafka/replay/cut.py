"""Finds consistent cuts: decides which of the records read so far are the state of the source at one LSN.

Theory of operation. A complete progress record at X says that every transaction that committed before X is published.
To apply exactly those, two questions have to be answered.

*Has everything before X been read?* A partition says yes once it has delivered a record with ``lsn >= X``, because
LSNs never fall within a partition; or once it was read up to a fence (``TopicReader.fence``) that was asked for after X
was seen. The least of the partitions' answers is the frontier: a cut may lie at any complete progress up to it.

*Which of the records read lie before X?* Those with ``lsn < X``; in each partition they are a prefix. The others are
held back and open the next batch.

A backfill publishes rows while the stream stands still: several progress records then say the same X, and each covers
more rows before X than the one before. So places for a cut are told apart by the offsets of their records, not by X
alone.

Neither answer depends on the order in which partitions are read. With a quiet source, each progress is a cut as soon as
the fence is reached. With a backlog, the fence is far away, but busy partitions pass many X on the way, and the
greatest X that all have passed is a cut as well. New progress never moves a fence that is not reached yet, so no load
can put off a cut for ever.

When memory is full and no cut is possible (one transaction larger than memory), a part is *spilled*: applied in the
open replica transaction, not committed. ``floor`` remembers the least X that covers the spilled records.

A topic that is far from its end (a new table, one that is rebuilt, one that was stopped) is *outside*: no cut waits for
it. Each cut takes what was read of it, in the order of the LSNs, because a key may have records in two partitions. The
topic joins at a cut for which all of it was read. While all topics are outside, they join together. The fence waits for
topics near their end, or such a topic could miss every cut by a hair. A topic that is loading *leaves* the cut when its
backfill brings more than can be read: the others need not wait for a table that is not whole.

The LSNs of records that another program wrote mean nothing here. One that is far ahead would hold back all later
records of its partition for ever. Once a record is known to be foreign (``foreign.py``), it is set *apart*, and the
partition is read again from that record on. Its topic stays outside until a later record of the same key is taken.

Pure: no Kafka, no database, no clock. ``_cut.pyx`` does the work per record in C.
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
"""How many complete progress records are remembered as places for a cut; past that, every second one is forgotten."""

_BEYOND: Final = LSN((1 << 64) - 1)
_BEFORE_ALL: Final = Position(ZERO, 0)
NEAR: Final = 10_000
"""A cut waits for a topic that is outside once it is this many offsets from its end: about a second's reading."""
_RECORD_BYTES: Final = 400
"""Roughly what CPython needs for a record in addition to key, value and header."""
_partition_of: Final = itemgetter(0, 1)
_Climb: TypeAlias = Callable[[Sequence[StoredRecord], LSN], tuple[LSN, bool]]


class Cut(NamedTuple):
    """A place at which a cut may lie.

    Attributes:
        progress: a complete progress.
        offset: the offset of its record in the progress topic.
    """

    progress: Progress
    offset: int


class HeldBack(NamedTuple):
    """The records of a partition that are held back.

    Attributes:
        record: the first of them.
        last: the offset of the last of them.
        falls: whether an older record follows a newer one. The bridge never writes in this order, unless it is stale.
    """

    record: StoredRecord
    last: int
    falls: bool


@dataclass(slots=True)
class _Waiting:
    """The records of one partition that are not applied yet.

    Attributes:
        records: in order.
        newest: the greatest LSN that was ever read.
        passed: the position of the last record; kept up only where stale records are expected.
        falls: whether an older record follows a newer one in ``records``.
        apart: of the records that the bridge cannot have written, the last one of each key.
        left_out: the offsets of all records that the bridge cannot have written.
    """

    records: list[StoredRecord] = field(default_factory=list)
    newest: LSN = ZERO
    passed: Position = _BEFORE_ALL
    falls: bool = False
    apart: dict[bytes | None, StoredRecord] = field(default_factory=dict)
    left_out: set[int] = field(default_factory=set)

    def is_next(self, record: StoredRecord) -> bool:
        """Whether the record does not go back; one without a readable header counts as where its predecessor is."""
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
        """Returns the records that were not set apart when they were read before."""
        return (each for each in records if each.offset not in self.left_out) if self.left_out else records

    def take(self, bound: LSN, published: LSN) -> tuple[list[StoredRecord], int]:
        """Remove and return the records that are due, and how many of them came from ``records``.

        Args:
            bound: every waiting record before this LSN is due.
            published: every record that is apart and lies before this LSN is due. After a failover, such records may be
                from the lost timeline; they count again when the progress reaches them.
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
        """Returns how many records lie before ``bound``, counted up to the first that does not.

        Where LSNs fall, nobody knows what follows a record that is too high, so a binary search would be wrong.
        """
        lsn_at = partial(_lsn_at, self.records)
        if self.falls:
            return next((place for place in range(len(self.records)) if lsn_at(place) >= bound), len(self.records))
        return bisect_left(range(len(self.records)), bound, key=lsn_at) if self.records else 0


class CutBuffer:
    """Holds records back until a cut covers them.

    Args:
        max_records: the buffer is full with this many records …
        max_bytes: … or with records of this many bytes.
        floor: the least LSN at which a cut may lie, which is that of the replica.
    """

    def __init__(self, max_records: int, max_bytes: int, floor: LSN = ZERO) -> None:
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._waiting: dict[Partition, _Waiting] = {}
        self._outside: set[str] = set()
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
        """Whether the buffer is full, so that a cut or a spill is needed now."""
        return self._count >= self._max_records or self._bytes >= self._max_bytes

    @property
    def outside(self) -> frozenset[str]:
        """Topics that are not part of the cut."""
        return frozenset(self._outside)

    @property
    def has_joined(self) -> bool:
        """Whether any topic is part of the cut."""
        return any(topic not in self._outside for topic, _ in self._waiting)

    def watch(self, partitions: Iterable[Partition], *, state: bool, outside: bool = False) -> None:
        """Add partitions to those that count.

        Args:
            partitions: topic and number of each.
            state: whether a cut is made of their records; if not, they only have to be read up to the fence.
            outside: whether their topics join later; if not, a cut needs them at once.
        """
        if state:
            # Records that follow a cut may be as old as the rows that a backfill adds at its LSN, but no older
            passed = _BEFORE_ALL if outside or not self._floor else Position(LSN(self._floor - 1), 0)
            for each in partitions:
                self._waiting[each] = _Waiting(passed=passed)
                if outside:
                    self._outside.add(each[0])
        else:
            self._others.update(partitions)
        self._targets, self._fenced = {}, None  # the last fence does not include these partitions

    def add(self, records: Iterable[StoredRecord]) -> None:
        """Add records of state partitions, in order within each partition."""
        for partition, group in groupby(records, _partition_of):  # a reader returns one partition after the other
            waiting = self._waiting[partition]
            added = [*self._sifted(waiting, waiting.without_apart(group))]
            waiting.newest, falls = self._climb(added, waiting.newest)
            waiting.falls |= falls
            waiting.records += added
            self._count += len(added)
            self._bytes += _size(added)

    def expect_stale(self) -> None:
        """Start to drop records that go back in a partition: a bridge that was stopped and woke up wrote them."""
        self._expects_stale = True

    def saw(self, cut: Cut) -> None:
        """Take note of a complete progress record that was read."""
        if cut.progress.lsn < self._floor or (self._seen and cut.progress.lsn < self._seen[-1].progress.lsn):
            return
        self._seen.append(cut)
        if len(self._seen) > MAX_SEEN:
            self._seen = self._seen[::2]  # one more than an even number, so that the newest one stays

    def wants_fence(self, positions: Mapping[Partition, int]) -> bool:
        """Whether a progress record was seen that no fence covers, and the last fence is reached or useless by now."""
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
        """Make ``wants_fence`` true although no new progress was seen: another fence shows that there is none."""
        self._targets, self._fenced = {}, None

    def fence(self, targets: Mapping[Partition, int]) -> None:
        """Set the fence: once these positions are reached, everything before the newest progress was read."""
        self._targets = targets
        self._fenced = self._seen[-1]

    def is_fence_reached(self, positions: Mapping[Partition, int]) -> bool:
        """Whether every partition that a cut waits for was read up to the fence."""
        self._positions = positions  # ``_frontiers`` compares them with the fence, too
        return self._fenced is not None and all(
            self._reached(each, positions) for each in (*self._awaited(positions), *self._others)
        )

    def cut(self, positions: Mapping[Partition, int], *, again: bool = False) -> Cut | None:
        """Returns the greatest place for a cut before which everything was read; None when there is none yet.

        Args:
            positions: how far each partition was read.
            again: also return the place of the last cut, to take what was read since of topics that are outside.
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
        """Returns the topics that were outside until now and are complete at this cut."""
        if not self._outside:
            return frozenset()
        lacking = {
            partition[0]
            for partition, waiting in self._waiting.items()
            if waiting.newest < cut.progress.lsn and not self._reached(partition, positions)
        }
        if lacking & self._outside and not self.has_joined:
            return frozenset()
        apart = {topic for (topic, _), waiting in self._waiting.items() if waiting.apart}
        return frozenset(self._outside - lacking - apart)

    def join(self, topics: Collection[str]) -> None:
        """Make these topics part of every cut from now on."""
        self._outside.difference_update(topics)

    def holding_up(self, loading: Collection[str], positions: Mapping[Partition, int]) -> frozenset[str]:
        """Returns the loading topics that hold up the others: part of the cut, and far from the fence.

        Returns nothing if all topics of the cut are like that, because then they hold up nobody.
        """
        joined = {topic for topic, _ in self._waiting if topic not in self._outside}
        far = {
            each[0]
            for each in self._waiting
            if each[0] in loading and self._targets.get(each, 0) - positions.get(each, 0) > NEAR
        }
        return frozenset() if joined <= far else frozenset(joined & far)

    def leave(self, topics: Collection[str]) -> None:
        """Take these topics out of the cut: no cut waits for them until they join again."""
        self._outside.update(topics)

    def is_passed(
        self,
        cut: Cut,
        joining: Collection[str],
        positions: Mapping[Partition, int] | None = None,
        ends: Mapping[Partition, int] | None = None,
    ) -> bool:
        """Whether the topics of the cut, and those that join it, hold nothing beyond the cut.

        Args:
            cut: the cut that ``cut`` returned.
            joining: topics that join it.
            positions: how far each partition was read; given together with ``ends``.
            ends: a fence that was asked for when these positions were reached; without it, only what was read counts.
        """
        outside = self._outside.difference(joining)
        return all(
            waiting.newest < cut.progress.lsn
            and (positions is None or ends is None or positions[partition] >= ends[partition])
            for partition, waiting in self._waiting.items()
            if partition[0] not in outside
        )

    def holds_below(self, below: LSN) -> bool:
        """Whether ``take`` would return any waiting record."""
        frontiers = self._frontiers()
        return any(
            waiting.records and _lsn_at(waiting.records, 0) < min(below, frontiers.get(topic, below))
            for (topic, _), waiting in self._waiting.items()
        )

    def take(self, below: LSN, published: LSN | None = None) -> dict[str, list[StoredRecord]]:
        """Remove and return every record with ``lsn < below``, by topic, in order within each partition.

        Args:
            below: the bound; it is lower for a topic that is outside and was not read so far.
            published: the LSN of the progress, if not ``below``.
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
        """Take the records of a cut. Earlier places are forgotten; this one may be taken ``again``."""
        del self._seen[: bisect_left(self._seen, cut.offset, key=_offset_of)]
        self._floor, self._taken = cut.progress.lsn, cut.offset
        return self.take(cut.progress.lsn)

    @property
    def knows_next(self) -> bool:
        """Whether a progress is known at which the next cut may lie."""
        return self._next_place() is not None

    def spill(self, published: LSN) -> dict[str, list[StoredRecord]]:
        """Remove and return records that the next possible cut is sure to cover; from now on, cuts lie beyond them.

        Call it when ``cut`` returns None. If a later progress is known already, all records before it are returned;
        otherwise all records that were read. The result may be empty: then ``ahead`` names the partitions to stop
        reading for now.

        Args:
            published: nothing at or beyond this LSN is returned: another program may have written it, and then no cut
                ever covers it.
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
        """Returns the partitions that were read past the next cut: what they deliver now only fills memory.

        Of a topic that is outside, these are the partitions that were read further than others of the topic.

        Args:
            published: while no next cut is known, records at or beyond this LSN have to wait for it, too.
        """
        place, frontiers = self._next_place(), self._frontiers()
        bound = published if place is None else place.progress.lsn
        return [
            partition
            for partition, waiting in self._waiting.items()
            if waiting.newest >= min(bound, frontiers.get(partition[0], _BEYOND))
        ]

    def beyond(self, lsn: LSN) -> list[HeldBack]:
        """Returns the held-back records of each partition in which the first of them lies at or beyond ``lsn``."""
        return [
            HeldBack(waiting.records[0], waiting.records[-1].offset, waiting.falls)
            for waiting in self._waiting.values()
            if waiting.records and _lsn_at(waiting.records, 0) >= lsn
        ]

    def set_apart(self, held: HeldBack, lsn: LSN) -> list[StoredRecord]:
        """Leave out records that the bridge cannot have written. Read the partition again from the first of them on.

        Args:
            held: as ``beyond`` returned it; its topic is outside.
            lsn: records of ``held`` at or beyond this LSN are not the bridge's.

        Returns:
            The records that are left out.
        """
        waiting = self._waiting[held.record.topic, held.record.partition]
        records = waiting.records
        found = [
            each for place, each in enumerate(records) if each.offset <= held.last and _lsn_at(records, place) >= lsn
        ]
        self._count -= len(records)
        self._bytes -= _size(records)
        for each in found:  # not always in offset order: a stale record comes up only after the one that hid it
            if each.key not in waiting.apart or waiting.apart[each.key].offset < each.offset:
                waiting.apart[each.key] = each
        waiting.left_out.update(each.offset for each in found)
        waiting.records, waiting.newest, waiting.passed, waiting.falls = [], ZERO, _BEFORE_ALL, False
        return found

    def next_offsets(self, positions: Mapping[Partition, int]) -> dict[Partition, int]:
        """Returns, by state partition, the offset of the first record that is held back or apart, else the position."""
        return {
            partition: min(each.offset for each in (*waiting.apart.values(), *waiting.records[:1]))
            if waiting.apart or waiting.records
            else positions[partition]
            for partition, waiting in self._waiting.items()
        }

    def _sifted(self, waiting: _Waiting, records: Iterable[StoredRecord]) -> Iterable[StoredRecord]:
        return filter(waiting.is_next, records) if self._expects_stale else records

    def _frontiers(self) -> dict[str, LSN]:
        """Returns, for topics that are outside, the LSN before which records may be taken.

        A topic that was read up to the fence is absent. The bound is just past the newest LSN of the partition that is
        read least far: all records before that LSN are there. Those at that LSN may go as well, though more may come:
        within one transaction a key's records differ at most in how the key is spelt, and a transaction may be larger
        than memory.
        """
        frontiers: dict[str, LSN] = {}
        if self._outside:
            for partition, waiting in self._waiting.items():
                if partition[0] in self._outside and not self._reached(partition, self._positions):
                    frontiers[partition[0]] = min(frontiers.get(partition[0], _BEYOND), LSN(waiting.newest + 1))
        return frontiers

    def _next_place(self) -> Cut | None:
        """Returns the first known place at which the next cut may lie."""
        first = bisect_left(self._seen, self._taken + 1, key=_offset_of)
        place = bisect_left(self._seen, self._floor, lo=first, key=_lsn_of)
        return self._seen[place] if place < len(self._seen) else None

    def _awaited(self, positions: Mapping[Partition, int]) -> Iterable[Partition]:
        """Returns the state partitions that a cut waits for: those of topics that have joined or soon will."""
        if not self._outside:
            return self._waiting
        return [
            each
            for each in self._waiting
            if each[0] not in self._outside or (each in self._targets and self._targets[each] - positions[each] <= NEAR)
        ]

    def _reached(self, partition: Partition, positions: Mapping[Partition, int]) -> bool:
        target = self._targets.get(partition)
        return target is not None and positions.get(partition, 0) >= target


def climb(records: Sequence[StoredRecord], start: LSN) -> tuple[LSN, bool]:
    """Returns the newest LSN, and whether the LSNs fall anywhere.

    Args:
        records: records of one partition, in order; those without a readable header do not count.
        start: the newest LSN before them.
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
    """Returns the LSN of the record at ``place``; one without a readable header has that of its predecessor."""
    while place >= 0:
        try:
            return header_position(records[place].header).lsn
        except DecodeError:
            place -= 1
    return ZERO
