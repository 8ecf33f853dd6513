"""How much of a backfill is done, and how long the rest takes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.base.lsn import LSN
from cdc.bridge.backfill.intake import no_backfill
from cdc.bridge.backfill.pace import average_rate, remaining_rows, seconds_left, share
from cdc.bridge.backfill.plan import CHUNK_BLOCKS, OPEN
from cdc.contract.record import BackfillProgress, LeafProgress

CHUNKS = 100


def running(chunks_done: int, rows: int, estimated_rows: int = 1_000) -> BackfillProgress:
    """A table of a hundred chunks."""
    done = ((0, chunks_done * CHUNK_BLOCKS),) if chunks_done else ()
    leaves = (LeafProgress("public", "t", 1, CHUNKS * CHUNK_BLOCKS, done),)
    return replace(
        no_backfill("public.t", "t", LSN(1)), state="running", leaves=leaves, rows=rows, estimated_rows=estimated_rows
    )


@pytest.mark.parametrize(
    ("progress", "expected"),
    [
        (replace(running(0, 0), leaves=()), 0.0),
        (running(0, 0), 0.0),
        (running(50, 0), 0.5),
        (running(50, 520), 0.52),  # rows of the chunks that are under way
        (running(50, 900), 0.54),  # the estimate was too low: no more than four chunks are under way
        (running(50, 900, 0), 0.5),
        (running(97, 10_000), 0.99),
        (running(100, 10_000), 1.0),
        (replace(running(0, 0), state="done"), 1.0),
    ],
)
def test_the_share_that_is_done(progress: BackfillProgress, expected: float) -> None:
    assert share(progress) == pytest.approx(expected)


def test_an_empty_heap_counts_as_one_block() -> None:
    leaves = (LeafProgress("public", "a", 1, 0, ((0, OPEN),)), LeafProgress("public", "b", 2, 1))
    assert share(replace(running(0, 0, 0), leaves=leaves)) == 0.5
    assert share(replace(running(0, 0, 0), leaves=leaves[:1])) == 1.0
    assert share(replace(running(0, 0, 1), leaves=leaves[1:])) == 0.0


def test_what_remains_goes_at_the_rate_that_is_measured() -> None:
    half = running(50, 500)
    assert remaining_rows(half) == 500
    assert seconds_left(half, 10.0) == 50.0
    assert seconds_left(half, None) is None
    assert seconds_left(half, 0.0) is None
    assert seconds_left(replace(half, state="paused"), 10.0) is None
    over = replace(half, state="failed")
    assert remaining_rows(over) == 0
    assert seconds_left(over, 10.0) is None


@pytest.mark.parametrize(
    ("rows", "seconds", "expected"),
    [(500, 4.0, 125.0), (1, 0.5, 2.0), (0, 4.0, None), (500, 0.0, None), (0, 0.0, None)],
)
def test_the_rate_is_that_since_the_request(rows: int, seconds: float, expected: float | None) -> None:
    asked = replace(running(50, rows), started_at=7_000_000, updated_at=7_000_000 + int(seconds * 1e6))
    assert average_rate(asked) == expected
