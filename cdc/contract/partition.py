"""Computes the partition of a key as ``murmur2_random`` and every Java client do, for keys that are not null.

Producers do not need this, because librdkafka does it. Code that looks for records in a wrong partition does.
"""

from __future__ import annotations

from typing import Final

_MIX: Final = 0x5BD1E995
_WORD: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Returns the 32-bit hash of Kafka's ``Utils.murmur2``, as an unsigned number."""
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
    """Returns the number of the key's partition among ``count`` partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % count
