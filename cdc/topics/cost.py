"""What compaction costs: passes, bytes read and written, time, disk. Pure.

A pass has two parts. The cleaner reads dirty records and puts their keys into a map, 24 bytes a key, at most 90 % full.
Then it reads the log *from its beginning* up to where the map ended, and writes what survives. A map that does not hold
all dirty keys means another pass, which copies the clean part once more. Whole segments are copied: the rest of a
segment in which the map became full is copied as it is.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from cdc.topics.settings import CleanerSettings

ENTRY_BYTES: Final = 24
"""An MD5 and an offset (Kafka's SkimpyOffsetMap)."""
SHOWN_RATIOS: Final = (0.1, 0.2, 0.3, 0.5, 0.7)
_AFFORDABLE: Final = 4.0
"""Each byte written four times by the cleaner: where lowering the ratio begins to cost more than it saves."""
_SEGMENTS: Final = 10
"""With ten segments a tenth of the partition lies in the active one, which no pass cleans."""
_MIB: Final = 1 << 20
_GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class PassPart:
    """The dirty bytes of one pass, on disk.

    Attributes:
        survivors: what is left of them.
        removed: what goes of the records before them.
    """

    size: float
    survivors: float
    removed: float


@dataclass(frozen=True, slots=True)
class Pass:
    """Bytes of one pass: read for the map, read for the copy, written."""

    indexed: float
    copied: float
    written: float

    @property
    def total(self) -> float:
        """All of them: what log.cleaner.io.max.bytes.per.second counts."""
        return self.indexed + self.copied + self.written


def map_keys(cleaner: CleanerSettings) -> int:
    """How many keys one thread's map holds."""
    return int(cleaner.buffer_bytes // cleaner.threads // ENTRY_BYTES * cleaner.load_factor)


def least_passes(keys: int, cleaner: CleanerSettings) -> int:
    """Passes over so many distinct dirty keys, if none of them occurs in two passes."""
    return math.ceil(keys / map_keys(cleaner))


def buffer_for(keys: int, cleaner: CleanerSettings) -> int:
    """The log.cleaner.dedupe.buffer.size with which these keys need a single pass."""
    return math.ceil(keys / cleaner.load_factor) * ENTRY_BYTES * cleaner.threads


def passes(clean_bytes: float, parts: Sequence[PassPart], segments: Sequence[int]) -> list[Pass]:
    """The passes over a partition's dirty bytes.

    Args:
        clean_bytes: before them.
        parts: by pass; together as large as the segments.
        segments: sizes of the dirty segments.
    """
    ends, found, mapped, before = list(accumulate(segments)), [], 0.0, clean_bytes
    for part in parts:
        mapped += part.size
        place = bisect_left(ends, round(mapped))
        copied_to = max(float(ends[min(place, len(ends) - 1)]), mapped) if ends else mapped
        rest = copied_to - mapped
        after = before - part.removed + part.survivors
        found.append(Pass(part.size, before + part.size + rest, after + rest))
        before = after
    return found


def write_amplification(ratio: float, survivors: float = 1.0) -> float:
    """Bytes the cleaner writes for each byte that is appended; 1 / ratio when every record survives.

    Args:
        ratio: min.cleanable.dirty.ratio.
        survivors: share of the dirty bytes that survive their first pass.
    """
    return (1 - ratio) / ratio + survivors if ratio > 0 else math.inf


def seconds(work: float, bytes_per_s: float) -> float:
    """How long so many bytes take; 0 when nothing holds the cleaner back."""
    return work / bytes_per_s


def head_room(log_bytes: float, segment_bytes: int, bytes_per_s: float, delete_delay_ms: int) -> float:
    """Free disk that a pass needs: the segment that is being written, and replaced files until they are deleted.

    Args:
        log_bytes: of the partition.
        segment_bytes: largest segment.
        bytes_per_s: at which the cleaner works, infinite for unthrottled.
        delete_delay_ms: for how long brokers keep files that were replaced.
    """
    # Half of what passes through the cleaner is read, half is written, at most.
    replaced = min(log_bytes, bytes_per_s / 2 * delete_delay_ms / 1_000)
    return min(log_bytes, segment_bytes) + replaced


def wanted_ratio(survivors: float) -> float:
    """The lowest ratio that is affordable, in steps of 0.05, within 0.1 and 0.5."""
    exact = 1 / (1 + _AFFORDABLE - survivors)
    return min(max(math.ceil(exact * 20 - 1e-9) / 20, 0.1), 0.5)


def wanted_segment_bytes(log_bytes: float) -> int:
    """A tenth of the partition as a power of two, from 1 MiB (Kafka's least) to 1 GiB (its default)."""
    return min(max(1 << max(round(log_bytes / _SEGMENTS) - 1, 1).bit_length(), _MIB), _GIB)
