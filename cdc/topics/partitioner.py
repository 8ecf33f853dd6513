"""Which partitioner wrote the keys of a topic, which keys lie in two partitions, and which have the most records. Pure.

A key that two writers put into different partitions is never compacted as one: each partition keeps its last record of
it, and a tombstone in one does not delete it in the other.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cdc.contract.partition import murmur2

_SAMPLE: Final = 20_000
"""Keys that are hashed for each partitioner: plenty to tell them apart, and hashing in Python takes a while."""
_CERTAIN: Final = 1e-6
"""A partitioner that fits by chance this rarely is taken for the right one."""
_ALL_BUT: Final = 0.999
_MIX_SHARE: Final = 0.02
_EXAMPLES: Final = 10
_HOT_KEPT: Final = 100
_PARTITION_BITS: Final = 20


def _fnv1a(data: bytes) -> int:
    value = 0x811C9DC5
    for byte in data:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    # As librdkafka and Sarama: the absolute value of it as a signed number.
    return value if value < 1 << 31 else (1 << 32) - value


PARTITIONERS: Final[Mapping[str, Callable[[bytes], int]]] = {
    "murmur2": lambda key: murmur2(key) & 0x7FFFFFFF,
    "crc32": zlib.crc32,
    "fnv1a": _fnv1a,
}
"""Hash by name; the partition is the hash modulo their count."""

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
        keys: distinct keys by partition.
        records: by partition.
        sampled: keys that the partitioners were tried on.
        matches: share of those by partitioner; empty when there is one partition.
        partitioner: the one that put nearly all keys where they are; None when none did, or too few keys tell.
        mixed: the two that together did, with their shares.
        hot: keys with the most records, the first one most.
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
        """Whether every key has one place."""
        return self.split_count == 0 and self.mixed is None


class PlacementCensus:
    """Takes all records of a topic, in any order of partitions.

    Args:
        count: of the topic's partitions.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._places: dict[int, int] = {}
        """Hash of the key → how often it was seen, and its first partition in the lower bits."""
        self._keys, self._records = [0] * count, [0] * count
        self._sample: list[tuple[bytes, int]] = []
        self._split: dict[bytes, set[int]] = {}
        self._split_hashes: set[int] = set()
        self._hot: dict[bytes, int] = {}
        self._keyless = 0

    def add(self, partition: int, key: bytes | None) -> None:
        """A record."""
        self._records[partition] += 1
        if key is None:
            self._keyless += 1
            return
        hashed = hash(key)
        before = self._places.get(hashed)
        if before is None:
            self._places[hashed] = 1 << _PARTITION_BITS | partition
            self._keys[partition] += 1
            # The same number from each partition: the keys of the first one alone would tell less.
            if self._keys[partition] <= _SAMPLE // self._count + 1:
                self._sample.append((key, partition))
            return
        self._places[hashed] = before + (1 << _PARTITION_BITS)
        first = before & ((1 << _PARTITION_BITS) - 1)
        if first != partition:
            self._note_split(key, hashed, (first, partition))
        self._hot[key] = (before >> _PARTITION_BITS) + 1
        if len(self._hot) > 10 * _HOT_KEPT:
            # What falls out comes in again with its whole count, if it is seen again.
            self._hot = dict(self._hottest(_HOT_KEPT))

    def placement(self, top: int) -> KeyPlacement:
        """What was seen.

        Args:
            top: how many hot keys, at most a hundred.
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
        # By chance one key in so many partitions fits; together they must not.
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
