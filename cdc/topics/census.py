"""Counts what the records of a partition are: live, superseded, or tombstones.

The cleaner can remove a superseded record when it cleans the record that supersedes it. So garbage is counted in the
segment of the later record.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

from cdc.topics.layout import Horizons, Layout

_RECORD_OVERHEAD: Final = 10
"""Bytes that a record takes in an uncompressed batch, besides key, value and headers."""
_SIZE_BITS: Final = 31
"""Offset and size of a record share one int, which takes less memory than a tuple."""
_SIZE_MASK: Final = (1 << _SIZE_BITS) - 1


@dataclass(slots=True)
class Garbage:
    """Superseded records.

    Attributes:
        records: how many they are.
        size: their bytes before compression.
        first: the offset of the earliest record that supersedes another one; None when there is none.
    """

    records: int = 0
    size: int = 0
    first: int | None = None

    def add(self, offset: int, size: int) -> None:
        """Counts a record of this size, which the record at ``offset`` supersedes."""
        self.records += 1
        self.size += size
        if self.first is None:
            self.first = offset

    def include(self, other: Garbage) -> None:
        """Adds the garbage of another count."""
        self.records += other.records
        self.size += other.size
        if other.first is not None and (self.first is None or other.first < self.first):
            self.first = other.first


@dataclass(frozen=True, slots=True)
class Tombstones:
    """Tombstones that are the newest record of their key, by what the cleaner has done with them.

    Attributes:
        waiting: the cleaner has not met them, so the clock of delete.retention.ms has not started.
        fresh: the clock is running.
        expired: the time is over; the next pass removes them.
    """

    waiting: int = 0
    fresh: int = 0
    expired: int = 0

    @property
    def total(self) -> int:
        """The number of all tombstones."""
        return self.waiting + self.fresh + self.expired


class Census:
    """Counts the records of one partition, which are added in order.

    It distinguishes keys by 64-bit hashes: with ten million keys, one census in 300,000 takes two keys for one.

    Args:
        layout: the layout of the same partition, read before.
        map_keys: how many keys the cleaner's map holds, for ``passes``.
    """

    def __init__(self, layout: Layout, map_keys: int | None = None) -> None:
        self._bases = [each.base for each in layout.segments]
        self._newest: dict[int, int] = {}
        self._tombstones: dict[int, int] = {}
        self.records = 0
        self.size = 0
        self.keyless = 0
        self.garbage = [Garbage() for _ in range(len(self._bases) + 1)]
        self.passes = Passes(layout.cleaned_until, map_keys)

    def add(self, offset: int, key: bytes | None, value_size: int, *, is_tombstone: bool) -> None:
        """Adds the next record.

        Args:
            offset: its offset.
            key: its key.
            value_size: bytes of value and headers.
            is_tombstone: its value is null; an empty value is not null.
        """
        self.records += 1
        if key is None:
            self.keyless += 1
            self.size += value_size + _RECORD_OVERHEAD
            return
        size = len(key) + value_size + _RECORD_OVERHEAD
        self.size += size
        hashed = hash(key)
        before = self._newest.get(hashed)
        self._newest[hashed] = offset << _SIZE_BITS | min(size, _SIZE_MASK)
        if before is not None:
            self.garbage[bisect_right(self._bases, offset)].add(offset, before & _SIZE_MASK)
            self.passes.add(offset, size, before >> _SIZE_BITS, before & _SIZE_MASK)
        else:
            self.passes.add(offset, size, -1, 0)
        if is_tombstone:
            self._tombstones[hashed] = offset
        elif self._tombstones:
            self._tombstones.pop(hashed, None)

    @property
    def distinct_keys(self) -> int:
        """The number of keys, deleted ones included."""
        return len(self._newest)

    @property
    def total_garbage(self) -> Garbage:
        """The garbage of all segments together."""
        found = Garbage()
        for each in self.garbage:
            found.include(each)
        return found

    def tombstones(self, horizons: Horizons, now_ms: int) -> Tombstones:
        """Counts the newest records of deleted keys, by the delete horizons of their batches."""
        waiting = fresh = expired = 0
        for offset in self._tombstones.values():
            moment_ms = _horizon_ms(horizons, offset)
            if moment_ms is None:
                waiting += 1
            elif moment_ms > now_ms:
                fresh += 1
            else:
                expired += 1
        return Tombstones(waiting, fresh, expired)


@dataclass(slots=True)
class DirtyPart:
    """A run of dirty records whose keys one pass of the cleaner puts into its map.

    Attributes:
        start: the first offset of the run.
        keys: the number of distinct keys in the run.
        size: bytes of the records, before compression.
        newest: bytes of the records that are the newest of their key in the run.
        removed: bytes of records before the run that these supersede.
    """

    start: int
    keys: int = 0
    size: int = 0
    newest: int = 0
    removed: int = 0


class Passes:
    """Splits dirty records into parts that the cleaner's map can hold, as the cleaner would.

    Args:
        start: the offset at which the dirty records begin.
        map_keys: how many keys a map holds; None for any number.
    """

    def __init__(self, start: int, map_keys: int | None) -> None:
        self._start = start
        self._map_keys = map_keys
        self.parts: list[DirtyPart] = []

    def add(self, offset: int, size: int, before: int, before_size: int) -> None:
        """Adds the next record, with the offset and size of the key's record before it; offset -1 if there is none."""
        if offset < self._start:
            return
        part = self.parts[-1] if self.parts else None
        # A full map ends the pass at the next record, even if that has a key in the map.
        if part is None or part.keys == self._map_keys:
            part = DirtyPart(offset)
            self.parts.append(part)
        part.size += size
        part.newest += size
        if before >= part.start:
            part.newest -= before_size
        else:
            part.keys += 1
            part.removed += before_size


def _horizon_ms(horizons: Horizons, offset: int) -> int | None:
    place = bisect_right(horizons.bases, offset) - 1
    if place < 0 or offset > horizons.lasts[place]:
        return None
    return horizons.moments_ms[place]
