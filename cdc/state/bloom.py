"""A Bloom filter, for its one good use here: to skip the exact duplicate check for messages that are surely new.

A Bloom filter cannot say "seen" for certain. With a rate of 0.01, it takes one in a hundred new messages for seen, and
a service that drops these loses real events. So this filter only answers ``is_surely_new``. Look up everything else.

For ``n`` items and a rate ``p`` it has ``m = -n ln p / (ln 2)²`` bits, rounded up, and ``k = m/n ln 2`` hashes, rounded
to the nearest integer. Rounding down would give a higher rate than asked for.
"""

from __future__ import annotations

import math
import random
from hashlib import blake2b
from typing import NamedTuple

from cdc.base.errors import ConfigError


class BloomSize(NamedTuple):
    """The size of a filter: its bits, and how many of them each item sets."""

    bits: int
    hashes: int

    @property
    def size_bytes(self) -> int:
        """The memory that the bits take."""
        return (self.bits + 7) // 8


def bloom_size(items: int, rate: float) -> BloomSize:
    """Returns the size of a filter for this many items and this rate of false positives.

    Args:
        items: at least 1.
        rate: between 0 and 1, both excluded.

    Raises:
        ConfigError: a number is out of range.
    """
    if items < 1 or not 0 < rate < 1:
        raise ConfigError(
            f"no Bloom filter holds {items} items with a false positive rate of {rate}",
            remedy="give at least one item, and a rate between 0 and 1, for instance 0.01",
        )
    bits = math.ceil(-items * math.log(rate) / math.log(2) ** 2)
    return BloomSize(bits, max(1, round(bits / items * math.log(2))))


class BloomFilter:
    """Remembers which items it was shown, in a few bits each.

    Args:
        items: how many different items will be added; with more, the rate grows.
        rate: the share of new items that the filter may take for seen.
        seed: chooses the hashes; the same seed gives the same answers.

    Raises:
        ConfigError: a number is out of range.
    """

    def __init__(self, items: int, rate: float, *, seed: int = 0) -> None:
        self.size = bloom_size(items, rate)
        self._bits = bytearray(self.size.size_bytes)
        self._salt = seed.to_bytes(8, "little")

    def is_surely_new(self, item: bytes) -> bool:
        """Returns True if the item was never added. False means "perhaps": look it up."""
        bits = self._bits
        return any(not bits[place >> 3] >> (place & 7) & 1 for place in self._places(item))

    def add(self, item: bytes) -> None:
        """Adds an item, which is not surely new from now on."""
        bits = self._bits
        for place in self._places(item):
            bits[place >> 3] |= 1 << (place & 7)

    def _places(self, item: bytes) -> list[int]:
        """Returns the item's bits, from two hashes (Kirsch and Mitzenmacher, "Less hashing, same performance")."""
        digest = blake2b(item, digest_size=16, salt=self._salt).digest()
        # The second hash is odd, hence never 0: all places would be the same
        first, second = int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little") | 1
        bits, hashes = self.size
        return [(first + number * second) % bits for number in range(hashes)]


class BloomMeasurement(NamedTuple):
    """How a full filter answered for items that were never added.

    Attributes:
        size: the filter's size.
        asked: how many new items it was asked about.
        expected: the share of these that it takes for seen in theory: ``(1 - e^(-kn/m))^k``.
        measured: the share of these that it took for seen.
    """

    size: BloomSize
    asked: int
    expected: float
    measured: float

    def __str__(self) -> str:
        return (
            f"{self.size.bits} bits ({self.size.size_bytes / 2**20:.2f} MiB), {self.size.hashes} hashes; "
            f"false positives: measured {self.measured:.4%}, theory {self.expected:.4%}, of {self.asked} new items"
        )


def measure_bloom(items: int, rate: float, *, asked: int = 100_000, seed: int = 0) -> BloomMeasurement:
    """Fills a filter with random items, and counts how many new ones it takes for seen.

    Args:
        items, rate, seed: as for ``BloomFilter``.
        asked: how many new items to ask about.
    """
    bloom, rng = BloomFilter(items, rate, seed=seed), random.Random(seed)
    for _ in range(items):
        bloom.add(b"+" + rng.randbytes(15))
    unsure = sum(not bloom.is_surely_new(b"-" + rng.randbytes(15)) for _ in range(asked))
    bits, hashes = bloom.size
    return BloomMeasurement(bloom.size, asked, (1 - math.exp(-hashes * items / bits)) ** hashes, unsure / asked)
