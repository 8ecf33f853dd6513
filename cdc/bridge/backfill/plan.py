"""Finds the blocks of a table that are still to be read. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from cdc.contract.record import LeafProgress

CHUNK_BLOCKS: Final = 512
"""4 MiB of heap, some ten thousand rows: they take about a second to read, and a crash repeats no more than these."""

OPEN: Final = 2**32
"""The end of the last range, past every block number that PostgreSQL can have. The heap may grow while it is read."""


class Blocks(NamedTuple):
    """Blocks ``start`` to ``end`` (not included) of a heap; ``end`` is ``OPEN`` in the last range."""

    start: int
    end: int


def remaining(leaf: LeafProgress, taken: Collection[Blocks], size: int = CHUNK_BLOCKS) -> Iterator[Blocks]:
    """Yields the ranges that are neither done nor taken, in order, of at most ``size`` blocks; the last one is open."""
    position = 0
    last = max(leaf.blocks - 1, 0) // CHUNK_BLOCKS * CHUNK_BLOCKS
    for start, end in (*merged([*leaf.done, *taken]), (OPEN, OPEN)):
        while position < start:
            if position >= last:
                yield Blocks(position, start)
                break
            yield Blocks(position, min(position + size, start, last))
            position = min(position + size, start, last)
        position = max(position, end)


def merged(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Returns the ranges sorted, with adjacent and overlapping ones joined."""
    result: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(result[-1][1], end))
        else:
            result.append((start, end))
    return tuple(result)


def with_done(leaf: LeafProgress, blocks: Blocks) -> LeafProgress:
    """Returns the leaf with these blocks done."""
    return replace(leaf, done=merged([*leaf.done, blocks]))


def is_done(leaf: LeafProgress) -> bool:
    """Whether all blocks were read."""
    return leaf.done == ((0, OPEN),)


def share_done(leaves: Collection[LeafProgress]) -> float:
    """Returns the share of the blocks that is done, from 0 to 1."""
    total = sum(max(leaf.blocks, 1) for leaf in leaves)
    done = sum(
        min(end, max(leaf.blocks, 1)) - min(start, max(leaf.blocks, 1)) for leaf in leaves for start, end in leaf.done
    )
    return done / total if total else 0.0
