"""A Bloom filter, for the one thing that it is right for: to spare the exact check for what is surely new.

It never says "seen" for certain: at a rate of 0.01, one of a hundred new messages looks seen. Whoever drops these
loses real events. So it only answers ``is_surely_new``; what it is not sure of has to be looked up.

With ``n`` items and a rate ``p``: ``m = -n ln p / (ln 2)²`` bits, rounded up, and ``k = m/n ln 2`` hashes, rounded to
the nearest: rounding down would give a higher rate than asked for.
"""

from __future__ import annotations

import math
import random
from hashlib import blake2b
from typing import NamedTuple

from cdc.base.errors import ConfigError


class BloomSize(NamedTuple):
    """How large a filter has to be."""

    bits: int
    hashes: int

    @property
    def size_bytes(self) -> int:
        """Of memory."""
        return (self.bits + 7) // 8


def bloom_size(items: int, rate: float) -> BloomSize:
    """For so many items, and so many false positives among what is new.

    Args:
        items: at least 1.
        rate: between 0 and 1, both excluded.

    Raises:
        ConfigError: they are not.
    """
    if items < 1 or not 0 < rate < 1:
        raise ConfigError(
            f"no Bloom filter holds {items} items with {rate} of false positives",
            remedy="give at least one item, and a rate between 0 and 1, for instance 0.01",
        )
    bits = math.ceil(-items * math.log(rate) / math.log(2) ** 2)
    return BloomSize(bits, max(1, round(bits / items * math.log(2))))


class BloomFilter:
    """Remembers that it was shown something, in few bits.

    Args:
        items: how many different things it will be shown; with more, the rate grows.
        rate: share of new things that it may not be sure of.
        seed: chooses the hashes; the same seed gives the same answers.

    Raises:
        ConfigError: a number is out of range.
    """

    def __init__(self, items: int, rate: float, *, seed: int = 0) -> None:
        self.size = bloom_size(items, rate)
        self._bits = bytearray(self.size.size_bytes)
        self._salt = seed.to_bytes(8, "little")

    def is_surely_new(self, item: bytes) -> bool:
        """True: it was never added. False: nobody knows, ask the exact check."""
        bits = self._bits
        return any(not bits[place >> 3] >> (place & 7) & 1 for place in self._places(item))

    def add(self, item: bytes) -> None:
        """From now on it is not surely new."""
        bits = self._bits
        for place in self._places(item):
            bits[place >> 3] |= 1 << (place & 7)

    def _places(self, item: bytes) -> list[int]:
        """Two hashes make all others (Kirsch and Mitzenmacher, "Less hashing, same performance")."""
        digest = blake2b(item, digest_size=16, salt=self._salt).digest()
        first, second = int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little") | 1
        bits, hashes = self.size
        return [(first + number * second) % bits for number in range(hashes)]


class BloomMeasurement(NamedTuple):
    """A full filter, asked for things that it was never shown.

    Attributes:
        size: of the filter.
        asked: how many new things.
        expected: share of them that theory says it is not sure of: ``(1 - e^(-kn/m))^k``.
        measured: the share that it was not sure of.
    """

    size: BloomSize
    asked: int
    expected: float
    measured: float

    def __str__(self) -> str:
        return (
            f"{self.size.bits} bits ({self.size.size_bytes / 2**20:.2f} MiB), {self.size.hashes} hashes; "
            f"false positives: measured {self.measured:.4%}, theory {self.expected:.4%}, of {self.asked} new ones"
        )


def measure_bloom(items: int, rate: float, *, asked: int = 100_000, seed: int = 0) -> BloomMeasurement:
    """Fill a filter with random things, and count how many others it is not sure of.

    Args:
        items, rate, seed: as for ``BloomFilter``.
        asked: how many others.
    """
    bloom, rng = BloomFilter(items, rate, seed=seed), random.Random(seed)
    for _ in range(items):
        bloom.add(b"+" + rng.randbytes(15))
    unsure = sum(not bloom.is_surely_new(b"-" + rng.randbytes(15)) for _ in range(asked))
    bits, hashes = bloom.size
    return BloomMeasurement(bloom.size, asked, (1 - math.exp(-hashes * items / bits)) ** hashes, unsure / asked)
