"""Who wrote a key is found from where it lies."""

from __future__ import annotations

import zlib

from cdc.contract.partition import partition_of
from cdc.topics.partitioner import PARTITIONERS, PlacementCensus, SplitKey

KEYS = [f"user-{number}".encode() for number in range(500)]


def test_golden_numbers() -> None:
    """As librdkafka's own tests of its partitioners have them."""
    assert [PARTITIONERS["fnv1a"](key) for key in (b"kafka", b"giberish123456789", b"1234")] == [
        0xD33C4E1,
        0x77A58295,
        0x23BDD03,
    ]
    assert PARTITIONERS["murmur2"](b"kafka") == 0xD067CF64 & 0x7FFFFFFF
    assert PARTITIONERS["crc32"](b"123456789") == 0xCBF43926


def test_one_writer_is_recognised() -> None:
    census = PlacementCensus(6)
    for key in KEYS:
        census.add(partition_of(key, 6), key)

    found = census.placement(5)

    assert (found.partitioner, found.mixed, found.is_sound) == ("murmur2", None, True)
    assert found.matches["murmur2"] == 1.0
    assert sum(found.keys) == sum(found.records) == 500


def test_two_writers_are_told_apart_and_their_common_keys_named() -> None:
    census = PlacementCensus(6)
    for key in KEYS[:300]:
        census.add(partition_of(key, 6), key)
    for key in KEYS[200:]:
        census.add(zlib.crc32(key) % 6, key)

    found = census.placement(5)

    assert found.partitioner is None
    assert set(found.mixed or ()) == {"murmur2", "crc32"}
    apart = [key for key in KEYS[200:300] if partition_of(key, 6) != zlib.crc32(key) % 6]
    assert found.split_count == len(apart)
    assert found.split[0] == SplitKey(apart[0], tuple(sorted((partition_of(apart[0], 6), zlib.crc32(apart[0]) % 6))))
    assert len(found.split) == 10


def test_keys_that_nobody_hashed() -> None:
    census = PlacementCensus(4)
    for number, key in enumerate(KEYS):
        census.add(number % 4, key)

    found = census.placement(5)

    assert (found.partitioner, found.mixed, found.is_sound) == (None, None, True)


def test_one_partition_or_few_keys_tell_nothing() -> None:
    single, few = PlacementCensus(1), PlacementCensus(4)
    for key in KEYS:
        single.add(0, key)
    for key in KEYS[:5]:
        few.add(partition_of(key, 4), key)

    assert single.placement(1).matches == few.placement(1).matches == {}


def test_the_hottest_keys_are_exact_however_many_there_are() -> None:
    census = PlacementCensus(1)
    for turn in range(4):
        for number in range(3_000):
            if number % 1_000 == 7 or turn < 2:
                census.add(0, f"{number}".encode())
    census.add(0, None)

    found = census.placement(3)

    assert found.hot == ((b"1007", 4), (b"2007", 4), (b"7", 4))
    assert found.keyless == 1
