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

Pure: no Kafka, no database, no clock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from cdc.encode.header import header_position
from cdc.errors import DecodeError
from cdc.lsn import LSN, ZERO
from cdc.ports import Partition, StoredRecord
from cdc.record import Progress

MAX_SEEN: Final = 4_096
"""Complete progress records remembered as places for a cut; of more, every second one is forgotten."""

_BEYOND: Final = LSN((1 << 64) - 1)


class Cut(NamedTuple):
    """A place for a cut.

    Attributes:
        progress: complete.
        offset: of its record in the progress topic.
    """

    progress: Progress
    offset: int


@dataclass(slots=True)
class _Waiting:
    """One partition's records that are not applied yet, in order; ``newest`` is the LSN of the last one ever read."""

    records: list[StoredRecord] = field(default_factory=list)
    newest: LSN = ZERO


class CutBuffer:
    """Holds records back until a cut covers them.

    Args:
        max_records: the buffer is full with this many records …
        max_bytes: … or with values of this many bytes.
        floor: the least LSN at which a cut may lie: where the replica stands.
    """

    def __init__(self, max_records: int, max_bytes: int, floor: LSN = ZERO) -> None:
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._waiting: dict[Partition, _Waiting] = {}
        self._others: set[Partition] = set()
        self._count = 0
        self._bytes = 0
        self._seen: list[Cut] = []
        self._targets: Mapping[Partition, int] = {}
        self._fenced: Cut | None = None
        self._floor = floor
        self._taken = -1

    @property
    def is_full(self) -> bool:
        """Whether memory asks for a cut or a spill now."""
        return self._count >= self._max_records or self._bytes >= self._max_bytes

    def watch(self, partitions: Iterable[Partition], *, state: bool) -> None:
        """A cut needs these partitions from now on; with ``state``, their records are what it is made of."""
        if state:
            self._waiting.update((each, _Waiting()) for each in partitions)
        else:
            self._others.update(partitions)
        self._targets, self._fenced = {}, None  # the fence did not ask for these

    def add(self, records: Iterable[StoredRecord]) -> None:
        """Records of state partitions, in order within each partition."""
        touched: dict[Partition, _Waiting] = {}
        for record in records:
            partition = record.topic, record.partition
            waiting = touched.get(partition)
            if waiting is None:
                waiting = touched[partition] = self._waiting[partition]
            waiting.records.append(record)
            self._count += 1
            self._bytes += len(record.value or b"")
        for waiting in touched.values():
            waiting.newest = max(waiting.newest, _lsn_at(waiting.records, len(waiting.records) - 1))

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

    def fence(self, targets: Mapping[Partition, int]) -> None:
        """Positions asked for just now: with them reached, everything before the newest progress seen was read."""
        self._targets = targets
        self._fenced = self._seen[-1]

    def is_fence_reached(self, positions: Mapping[Partition, int]) -> bool:
        """Whether every partition was read up to the fence."""
        return all(self._reached(each, positions) for each in (*self._waiting, *self._others))

    def cut(self, positions: Mapping[Partition, int]) -> Cut | None:
        """The greatest place for a cut that everything before it was read for; None when there is none yet."""
        if not all(self._reached(each, positions) for each in self._others):
            return None
        if self._fenced is None:
            return None
        frontier = self._fenced.progress.lsn
        for partition, waiting in self._waiting.items():
            if not self._reached(partition, positions):
                frontier = min(frontier, waiting.newest)
        fenced = bisect_left(self._seen, self._fenced.offset + 1, key=_offset_of)
        place = bisect_left(self._seen, frontier + 1, hi=fenced, key=_lsn_of) - 1
        if place < 0 or self._seen[place].progress.lsn < self._floor:
            return None
        return self._seen[place]

    def take(self, below: LSN) -> dict[str, list[StoredRecord]]:
        """Remove and return every record with ``lsn < below``, by topic, in order within each partition."""
        taken: dict[str, list[StoredRecord]] = {}
        for (topic, _), waiting in self._waiting.items():
            records = waiting.records
            if not records:
                continue
            end = bisect_left(range(len(records)), below, key=partial(_lsn_at, records))
            if end:
                taken.setdefault(topic, []).extend(records[:end])
                del records[:end]
        for records in taken.values():
            self._count -= len(records)
            self._bytes -= sum(len(record.value or b"") for record in records)
        return taken

    def take_cut(self, cut: Cut) -> dict[str, list[StoredRecord]]:
        """``take`` for a cut; earlier places for one are forgotten."""
        del self._seen[: bisect_left(self._seen, cut.offset + 1, key=_offset_of)]
        self._floor, self._taken = cut.progress.lsn, cut.offset
        return self.take(cut.progress.lsn)

    def spill(self) -> dict[str, list[StoredRecord]]:
        """Remove and return records that the next possible cut is sure to cover; later cuts only lie beyond them.

        Call it when ``cut`` says None. All that was read so far goes, or, if a later progress is known already, all
        that lies before it. May be empty: then ``ahead`` names the partitions to stop reading for now.
        """
        place = bisect_left(self._seen, self._floor, key=_lsn_of)
        if place < len(self._seen):
            self._floor = self._seen[place].progress.lsn
            return self.take(self._floor)
        self._floor = max(self._floor, LSN(max((each.newest for each in self._waiting.values()), default=ZERO) + 1))
        return self.take(_BEYOND)

    def ahead(self) -> Collection[Partition]:
        """Partitions of which everything for the next cut was read: what they deliver now only fills memory."""
        place = bisect_left(self._seen, self._floor, key=_lsn_of)
        if place == len(self._seen):
            return ()
        bound = self._seen[place].progress.lsn
        return [partition for partition, waiting in self._waiting.items() if waiting.newest >= bound]

    def next_offsets(self, positions: Mapping[Partition, int]) -> dict[Partition, int]:
        """Per state partition the first record that is still held back, else the position."""
        return {
            partition: waiting.records[0].offset if waiting.records else positions[partition]
            for partition, waiting in self._waiting.items()
        }

    def _reached(self, partition: Partition, positions: Mapping[Partition, int]) -> bool:
        target = self._targets.get(partition)
        return target is not None and positions[partition] >= target


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
