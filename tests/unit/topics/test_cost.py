"""The cost model in numbers that can be checked by hand."""

from __future__ import annotations

import math

import pytest

from cdc.topics.census import Passes
from cdc.topics.cost import (
    Pass,
    PassPart,
    buffer_for,
    head_room,
    least_passes,
    map_keys,
    passes,
    seconds,
    wanted_ratio,
    wanted_segment_bytes,
    write_amplification,
)
from cdc.topics.settings import CleanerSettings

GB, MB = 10**9, 10**6


def test_a_default_cleaner_maps_five_million_keys_at_once() -> None:
    assert map_keys(CleanerSettings()) == 5_033_164
    assert map_keys(CleanerSettings(threads=2)) == 2_516_581
    assert map_keys(CleanerSettings(buffer_bytes=1_048_577)) == 39_321


@pytest.mark.parametrize(("keys", "expected"), [(0, 0), (1, 1), (5_033_164, 1), (5_033_165, 2), (20_000_000, 4)])
def test_passes_by_keys(keys: int, expected: int) -> None:
    assert least_passes(keys, CleanerSettings()) == expected


@pytest.mark.parametrize("keys", [1, 39_321, 20_000_000])
def test_the_buffer_for_one_pass_holds_the_keys(keys: int) -> None:
    cleaner = CleanerSettings(threads=3, buffer_bytes=buffer_for(keys, CleanerSettings(threads=3)) + 3 * 24)
    assert least_passes(keys, cleaner) == 1


def test_half_of_a_hundred_gigabytes_is_more_than_half_of_the_work() -> None:
    """The estimate that divides 50 GB by 100 MB/s says eight minutes; the cleaner moves 250 GB."""
    (work,) = passes(50 * GB, [PassPart(50 * GB, 50 * GB, 0)], [50 * GB])

    assert work == Pass(indexed=50 * GB, copied=100 * GB, written=100 * GB)
    assert seconds(work.total, 100 * MB) == 2_500


def test_each_further_pass_copies_the_clean_part_again() -> None:
    found = passes(80.0, [PassPart(10, 5, 5), PassPart(10, 5, 5)], [10, 10])

    assert found == [Pass(10, 90, 80), Pass(10, 90, 80)]


def test_a_segment_is_copied_whole_however_little_of_it_was_mapped() -> None:
    found = passes(0.0, [PassPart(4, 1, 0), PassPart(6, 1, 0)], [10])

    assert found == [Pass(4, 10, 7), Pass(6, 7, 2)]


def test_nothing_dirty_costs_nothing() -> None:
    assert passes(100.0, [], []) == []


def test_the_map_is_filled_as_the_cleaner_fills_it() -> None:
    """Three keys a map; the record behind a full map begins the next pass even if its key is in the map."""
    cut = Passes(0, map_keys=3)
    newest: dict[str, int] = {}
    for offset, key in enumerate("aabcaade"):
        cut.add(offset, 10, newest.get(key, -1), 10 if key in newest else 0)
        newest[key] = offset

    first, second = cut.parts
    assert (first.start, first.keys, first.size, first.newest, first.removed) == (0, 3, 40, 30, 0)
    assert (second.start, second.keys, second.size, second.newest, second.removed) == (4, 3, 40, 30, 10)


@pytest.mark.parametrize(("ratio", "expected"), [(0.1, 10.0), (0.25, 4.0), (0.5, 2.0), (0.0, math.inf)])
def test_write_amplification_is_one_by_the_ratio(ratio: float, expected: float) -> None:
    assert write_amplification(ratio) == pytest.approx(expected)


def test_what_does_not_survive_is_not_written() -> None:
    assert write_amplification(0.5, survivors=0.1) == pytest.approx(1.1)


def test_recommendations() -> None:
    assert [wanted_ratio(share) for share in (0.0, 1.0)] == [0.2, 0.25]
    assert [wanted_segment_bytes(size) for size in (0, 100 * MB, 100 * GB)] == [1 << 20, 1 << 24, 1 << 30]


def test_head_room_is_a_segment_and_what_waits_to_be_deleted() -> None:
    assert head_room(10 * GB, 1 * GB, math.inf, 60_000) == 11 * GB
    assert head_room(10 * GB, 1 * GB, 20 * MB, 60_000) == 1.6 * GB
    assert head_room(100 * MB, 1 * GB, math.inf, 60_000) == 200 * MB
