"""In which partition a key belongs: what ``murmur2_random``, and so every Java client, makes of a key that is not null.

Producing does not need it, librdkafka knows by itself. Whoever finds a record elsewhere does.
"""

from __future__ import annotations

from typing import Final

_MIX: Final = 0x5BD1E995
_WORD: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit hash as Kafka's ``Utils.murmur2`` computes it, without sign."""
    h = (0x9747B28C ^ len(data)) & _WORD
    whole = len(data) - len(data) % 4
    for place in range(0, whole, 4):
        k = int.from_bytes(data[place : place + 4], "little") * _MIX & _WORD
        k = (k ^ k >> 24) * _MIX & _WORD
        h = (h * _MIX & _WORD) ^ k
    if whole < len(data):
        h = (h ^ int.from_bytes(data[whole:], "little")) * _MIX & _WORD
    h = (h ^ h >> 13) * _MIX & _WORD
    return h ^ h >> 15


def partition_of(key: bytes, count: int) -> int:
    """The number of the partition among ``count``."""
    return (murmur2(key) & 0x7FFFFFFF) % count
