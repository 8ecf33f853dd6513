"""Computes what compaction costs: passes, bytes read and written, time, disk. Pure.

A pass has two parts. First the cleaner reads dirty records and puts their keys into a map, with 24 bytes a key, until
the map is 90 % full. Then it reads the log *from its beginning* to the last record in the map, and writes what
survives. If the map does not hold all dirty keys, there is another pass, which copies the clean part again. The cleaner
copies whole segments: the rest of the segment in which the map became full is copied unchanged.
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
"""The size of a map entry: an MD5 hash and an offset (Kafka's SkimpyOffsetMap)."""
SHOWN_RATIOS: Final = (0.1, 0.2, 0.3, 0.5, 0.7)
_AFFORDABLE: Final = 4.0
"""The cleaner may write each byte four times. From there on, a lower ratio costs more than it saves."""
_SEGMENTS: Final = 10
"""How many segments a partition should have: a tenth of it then lies in the active one, which no pass cleans."""
_MIB: Final = 1 << 20
_GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class PassPart:
    """The dirty bytes of one pass, on disk.

    Attributes:
        size: how many they are.
        survivors: how many of them survive the pass.
        removed: bytes of older records that the pass removes.
    """

    size: float
    survivors: float
    removed: float


@dataclass(frozen=True, slots=True)
class Pass:
    """The bytes of one pass: read for the map, read for the copy, and written."""

    indexed: float
    copied: float
    written: float

    @property
    def total(self) -> float:
        """All bytes, as log.cleaner.io.max.bytes.per.second counts them."""
        return self.indexed + self.copied + self.written


def map_keys(cleaner: CleanerSettings) -> int:
    """Returns how many keys the map of one thread holds."""
    return int(cleaner.buffer_bytes // cleaner.threads // ENTRY_BYTES * cleaner.load_factor)


def least_passes(keys: int, cleaner: CleanerSettings) -> int:
    """Returns the number of passes over this many distinct dirty keys, if none of them occurs in two passes."""
    return math.ceil(keys / map_keys(cleaner))


def buffer_for(keys: int, cleaner: CleanerSettings) -> int:
    """Returns the log.cleaner.dedupe.buffer.size with which these keys need only one pass."""
    return math.ceil(keys / cleaner.load_factor) * ENTRY_BYTES * cleaner.threads


def passes(clean_bytes: float, parts: Sequence[PassPart], segments: Sequence[int]) -> list[Pass]:
    """Returns the passes over a partition's dirty bytes.

    Args:
        clean_bytes: bytes before the dirty ones.
        parts: the dirty bytes by pass; together as large as the segments.
        segments: the sizes of the dirty segments.
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
    """Returns how many bytes the cleaner writes for each byte appended: 1 / ratio if every record survives.

    Args:
        ratio: min.cleanable.dirty.ratio.
        survivors: the share of dirty bytes that survive their first pass.
    """
    return (1 - ratio) / ratio + survivors if ratio > 0 else math.inf


def seconds(work: float, bytes_per_s: float) -> float:
    """Returns how long this many bytes take; 0 when the cleaner is not throttled."""
    return work / bytes_per_s


def head_room(log_bytes: float, segment_bytes: int, bytes_per_s: float, delete_delay_ms: int) -> float:
    """Returns the free disk that a pass needs, for the segment being written and for replaced files not yet deleted.

    Args:
        log_bytes: bytes of the partition.
        segment_bytes: bytes of the largest segment.
        bytes_per_s: the cleaner's speed; infinite when it is not throttled.
        delete_delay_ms: how long brokers keep replaced files.
    """
    # The speed counts bytes read and written. At most half of them are written.
    replaced = min(log_bytes, bytes_per_s / 2 * delete_delay_ms / 1_000)
    return min(log_bytes, segment_bytes) + replaced


def wanted_ratio(survivors: float) -> float:
    """Returns the lowest affordable ratio between 0.1 and 0.5, in steps of 0.05."""
    exact = 1 / (1 + _AFFORDABLE - survivors)
    # Without the tiny amount, a rounding error of 0.3 * 20 would lead to 0.35
    return min(max(math.ceil(exact * 20 - 1e-9) / 20, 0.1), 0.5)


def wanted_segment_bytes(log_bytes: float) -> int:
    """Returns a tenth of the partition as a power of two, from 1 MiB (Kafka's minimum) to 1 GiB (its default)."""
    return min(max(1 << max(round(log_bytes / _SEGMENTS) - 1, 1).bit_length(), _MIB), _GIB)
