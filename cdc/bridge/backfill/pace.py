"""Tells how much of a backfill is done, how fast it goes, and when it may end. Pure."""

from __future__ import annotations

from typing import Final

from cdc.bridge.backfill.plan import CHUNK_BLOCKS, share_done
from cdc.contract.record import BackfillProgress

_BLOCKS_UNDER_WAY: Final = 4 * CHUNK_BLOCKS
"""The most blocks that two reading connections have under way: each has one chunk and the next."""

_NEARLY: Final = 0.99


def share(progress: BackfillProgress) -> float:
    """Returns the share that is done, from 0 to 1. It counts blocks where it can: the catalog only estimates rows."""
    if progress.state == "done":
        return 1.0
    if not progress.leaves:
        return 0.0
    by_blocks = share_done(progress.leaves)
    # A block counts once its whole chunk is done; for the few chunks under way, the rows tell
    under_way = _BLOCKS_UNDER_WAY / max(sum(leaf.blocks for leaf in progress.leaves), 1)
    by_rows = progress.rows / progress.estimated_rows if progress.estimated_rows > 0 else 0.0
    return max(by_blocks, min(by_rows, by_blocks + under_way, _NEARLY))


def remaining_rows(progress: BackfillProgress) -> int:
    """Returns about how many rows are still to be read; 0 when the backfill is over."""
    return round(progress.estimated_rows * (1 - share(progress))) if progress.is_open else 0


def average_rate(progress: BackfillProgress) -> float | None:
    """Returns the rows per second since the backfill was requested; None before there is anything to measure."""
    seconds = (progress.updated_at - progress.started_at) / 1e6
    return progress.rows / seconds if seconds > 0 and progress.rows else None


def seconds_left(progress: BackfillProgress, rate: float | None) -> float | None:
    """Returns the seconds that are left at this rate; None when nobody can tell."""
    if not progress.is_open or progress.state == "paused" or not rate:
        return None
    return remaining_rows(progress) / rate
