"""Finds the partitioner that wrote a topic's keys, keys in several partitions, and keys with the most records. Pure.

If two writers put a key into different partitions, compaction works on each partition alone: both keep their last
record of the key, and a tombstone in one does not delete the key in the other.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cdc.contract.partition import murmur2

_SAMPLE: Final = 20_000
"""How many keys are hashed for each partitioner. They are plenty to decide, and hashing in Python is slow."""
_CERTAIN: Final = 1e-6
"""A partitioner is only named if it would fit by chance less often than this."""
_ALL_BUT: Final = 0.999
"""A partitioner has to fit this share of the keys: a few may come from a test or a tool."""
_MIX_SHARE: Final = 0.02
"""A partitioner may be one of two if it fits this much more of the keys than chance would."""
_EXAMPLES: Final = 10
_HOT_KEPT: Final = 100
_PARTITION_BITS: Final = 20
"""Enough for a million partitions. Count and partition share one int, which takes less memory than a tuple."""


def _fnv1a(data: bytes) -> int:
    value = 0x811C9DC5
    for byte in data:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    # Like librdkafka and Sarama: the absolute value of the hash as a signed number.
    return value if value < 1 << 31 else (1 << 32) - value


PARTITIONERS: Final[Mapping[str, Callable[[bytes], int]]] = {
    "murmur2": lambda key: murmur2(key) & 0x7FFFFFFF,
    "crc32": zlib.crc32,
    "fnv1a": _fnv1a,
}
"""The hash of each partitioner. The partition is the hash modulo the number of partitions."""

WRITERS: Final[Mapping[str, str]] = {
    "murmur2": "Java clients, Kafka Connect, and librdkafka with partitioner=murmur2_random (the bridge)",
    "crc32": "librdkafka with its default, consistent_random: Python, Go, .NET and Node clients on top of it",
    "fnv1a": "Sarama, kafka-go and Goka, or librdkafka with partitioner=fnv1a_random",
}


@dataclass(frozen=True, slots=True)
class SplitKey:
    """A key with records in several partitions."""

    key: bytes
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class KeyPlacement:
    """How the keys of a topic lie in its partitions.

    Attributes:
        keys: the number of distinct keys by partition.
        records: the number of records by partition.
        sampled: how many keys the partitioners were tried on.
        matches: by partitioner, the share of these keys that it fits; empty with one partition or too few keys.
        partitioner: the one that fits nearly all keys; None when there is none, or too few keys to tell.
        mixed: the two partitioners that together fit nearly all keys; else None.
        split_count: the number of keys in several partitions.
        split: some of these keys, as examples.
        hot: the keys with the most records, in descending order.
        keyless: the number of records without a key.
    """

    keys: tuple[int, ...]
    records: tuple[int, ...]
    sampled: int
    matches: Mapping[str, float]
    partitioner: str | None
    mixed: tuple[str, str] | None
    split_count: int
    split: tuple[SplitKey, ...]
    hot: tuple[tuple[bytes, int], ...]
    keyless: int

    @property
    def is_sound(self) -> bool:
        """Whether every key has only one partition."""
        return self.split_count == 0 and self.mixed is None


class PlacementCensus:
    """Counts the records of a topic, whose partitions may come in any order.

    Args:
        count: the number of the topic's partitions.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._places: dict[int, int] = {}
        """The hash of a key → its number of records, with its first partition in the lower bits."""
        self._keys, self._records = [0] * count, [0] * count
        self._sample: list[tuple[bytes, int]] = []
        self._split: dict[bytes, set[int]] = {}
        self._split_hashes: set[int] = set()
        self._hot: dict[bytes, int] = {}
        self._keyless = 0

    def add(self, partition: int, key: bytes | None) -> None:
        """Adds a record."""
        self._records[partition] += 1
        if key is None:
            self._keyless += 1
            return
        hashed = hash(key)
        before = self._places.get(hashed)
        if before is None:
            self._places[hashed] = 1 << _PARTITION_BITS | partition
            self._keys[partition] += 1
            # The same number from each partition: a partitioner that always fits one partition must not pass
            if self._keys[partition] <= _SAMPLE // self._count + 1:
                self._sample.append((key, partition))
            return
        self._places[hashed] = before + (1 << _PARTITION_BITS)
        first = before & ((1 << _PARTITION_BITS) - 1)
        if first != partition:
            self._note_split(key, hashed, (first, partition))
        self._hot[key] = (before >> _PARTITION_BITS) + 1
        if len(self._hot) > 10 * _HOT_KEPT:
            # No count is lost: a key that drops out here returns with its full count when it is next seen.
            self._hot = dict(self._hottest(_HOT_KEPT))

    def placement(self, top: int) -> KeyPlacement:
        """Returns how the keys lie.

        Args:
            top: the number of hot keys to return, at most 100.
        """
        matches = self._matches()
        return KeyPlacement(
            keys=tuple(self._keys),
            records=tuple(self._records),
            sampled=len(self._sample),
            matches=matches,
            partitioner=self._single(matches),
            mixed=None if self._single(matches) else self._mixed(matches),
            split_count=len(self._split_hashes),
            split=tuple(SplitKey(key, tuple(sorted(places))) for key, places in self._split.items()),
            hot=tuple(self._hottest(top)),
            keyless=self._keyless,
        )

    def _note_split(self, key: bytes, hashed: int, places: Sequence[int]) -> None:
        self._split_hashes.add(hashed)
        if key in self._split or len(self._split) < _EXAMPLES:
            self._split.setdefault(key, set()).update(places)

    def _hottest(self, top: int) -> list[tuple[bytes, int]]:
        return sorted(self._hot.items(), key=lambda each: (-each[1], each[0]))[:top]

    def _matches(self) -> dict[str, float]:
        # By chance, a partitioner fits a key with probability 1 / partitions. For all keys, it must be next to none.
        if self._count == 1 or self._count ** -float(len(self._sample)) > _CERTAIN:
            return {}
        return {
            name: sum(hash_of(key) % self._count == place for key, place in self._sample) / len(self._sample)
            for name, hash_of in PARTITIONERS.items()
        }

    @staticmethod
    def _single(matches: Mapping[str, float]) -> str | None:
        best = max(matches, key=lambda name: matches[name], default=None)
        return best if best is not None and matches[best] >= _ALL_BUT else None

    def _mixed(self, matches: Mapping[str, float]) -> tuple[str, str] | None:
        chance = 1 / self._count
        likely = sorted(
            (name for name, share in matches.items() if share > chance + _MIX_SHARE), key=lambda name: -matches[name]
        )
        for number, one in enumerate(likely):
            for other in likely[number + 1 :]:
                hashes = PARTITIONERS[one], PARTITIONERS[other]
                fits = sum(any(of(key) % self._count == place for of in hashes) for key, place in self._sample)
                if fits / len(self._sample) >= _ALL_BUT:
                    return one, other
        return None
