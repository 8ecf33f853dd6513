"""Ranges of blocks: each block once, the last range open, whatever was done before."""

from __future__ import annotations

import random

import pytest

from cdc.bridge.backfill.plan import CHUNK_BLOCKS, OPEN, Blocks, is_done, merged, remaining, share_done, with_done
from cdc.contract.record import LeafProgress


def leaf(blocks: int, *done: tuple[int, int]) -> LeafProgress:
    return LeafProgress("public", "t", 1, blocks, merged(done))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (leaf(0), [(0, OPEN)]),
        (leaf(1), [(0, OPEN)]),
        (leaf(CHUNK_BLOCKS), [(0, OPEN)]),
        (leaf(CHUNK_BLOCKS + 1), [(0, CHUNK_BLOCKS), (CHUNK_BLOCKS, OPEN)]),
        (leaf(3 * CHUNK_BLOCKS, (CHUNK_BLOCKS, 2 * CHUNK_BLOCKS)), [(0, CHUNK_BLOCKS), (2 * CHUNK_BLOCKS, OPEN)]),
        (leaf(3 * CHUNK_BLOCKS, (2 * CHUNK_BLOCKS, OPEN)), [(0, CHUNK_BLOCKS), (CHUNK_BLOCKS, 2 * CHUNK_BLOCKS)]),
        (leaf(5, (0, OPEN)), []),
    ],
)
def test_what_remains(given: LeafProgress, expected: list[tuple[int, int]]) -> None:
    assert list(remaining(given, ())) == expected


def test_taken_ranges_are_not_given_twice() -> None:
    given = leaf(4 * CHUNK_BLOCKS)
    first = next(remaining(given, ()))
    second = next(remaining(given, [first]))
    assert (first, second) == (Blocks(0, CHUNK_BLOCKS), Blocks(CHUNK_BLOCKS, 2 * CHUNK_BLOCKS))


@pytest.mark.parametrize("seed", range(20))
def test_every_block_once_in_any_order(seed: int) -> None:
    rng = random.Random(seed)
    blocks = rng.randrange(10 * CHUNK_BLOCKS)
    given, read = leaf(blocks), []
    while not is_done(given):
        taken: list[Blocks] = []
        for _ in range(rng.randint(1, 4)):
            each = next(
                remaining(given, taken, rng.choice((1, 7, CHUNK_BLOCKS)) if blocks < 100 else CHUNK_BLOCKS), None
            )
            if each is not None:
                taken.append(each)
        rng.shuffle(taken)
        for each in taken[: rng.randint(1, len(taken))]:  # the others are given up, as after a crash
            given = with_done(given, each)
            read.append(each)
    assert merged(read) == ((0, OPEN),)
    assert sum(end - start for start, end in read) == OPEN


def test_share() -> None:
    assert share_done([leaf(0)]) == 0
    assert share_done([leaf(100, (0, 50)), leaf(100)]) == 0.25
    assert share_done([leaf(100, (0, OPEN)), leaf(0, (0, OPEN))]) == 1
