"""Finds the commit that a snapshot shows: the bridge's progress, since when topics are whole, the point asked for."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cdc.base.lsn import LSN
from cdc.contract.backfill import is_backfill_key, parse_backfill
from cdc.contract.jobspec.deployment import Stream
from cdc.contract.naming import progress_topic
from cdc.contract.progress import parse_progress, stream_key
from cdc.contract.record import BackfillProgress
from cdc.spark.errors import JobError, NotCaughtUp, PastErased
from cdc.spark.offsets import Brokers

FENCE_TIMEOUT_S: Final = 60.0
_PAUSE_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class PublishedPoint:
    """What the progress topic says.

    Attributes:
        lsn: everything that committed before this position is published.
        backfills: every backfill record that is left, in order, by ``namespace.table``.
        may_be_late: the topics may hold rows appended after newer ones, because a bridge with ``delivery: idempotent``
            was suspended and sent them when it woke up.
    """

    lsn: LSN
    backfills: Mapping[str, Sequence[BackfillProgress]]
    may_be_late: bool = False


def wait_published(brokers: Brokers, stream: Stream, fence: LSN, timeout_s: float = FENCE_TIMEOUT_S) -> PublishedPoint:
    """Waits until the bridge's progress has reached ``fence``, and returns it.

    Raises:
        NotCaughtUp: the bridge did not get there in time, or never published anything.
    """
    topic, key = progress_topic(stream.name), stream_key(stream.slot)
    deadline = time.monotonic() + timeout_s
    while True:
        lsn, may_be_late, backfills = LSN(0), False, dict[str, list[BackfillProgress]]()
        for each, value in brokers.read_all(topic):
            if value is None:
                continue
            if each == key:
                of_stream = parse_progress(value)
                lsn, may_be_late = of_stream.lsn, of_stream.lead is not None
            elif is_backfill_key(each):
                progress = parse_backfill(value)
                backfills.setdefault(progress.table, []).append(progress)
        if lsn >= fence:
            return PublishedPoint(lsn, backfills, may_be_late)
        if time.monotonic() > deadline:
            raise NotCaughtUp(
                f"the bridge has published only up to {lsn}, but the source is at {fence}",
                remedy="check with cdc status whether it runs and how far it is, then try again",
            )
        time.sleep(_PAUSE_S)


def whole_since(published: PublishedPoint, table: str) -> LSN | None:
    """Returns the position since which the table's topic is known to hold every row; None if it does not hold them now.

    A topic whose table was never backfilled holds what changed since the bridge began, and counts as whole.
    """
    since: LSN | None = LSN(0)
    for progress in published.backfills.get(table, ()):
        # The first whole record after a gap counts: a later backfill of a whole topic leaves it whole.
        if not progress.whole:
            since = None
        elif since is None or since == 0:
            since = progress.lsn
    return since


def refuse_unless_whole(published: PublishedPoint, table: str, lsn: LSN) -> None:
    """Stops the job unless the topic holds the whole table at ``lsn``.

    Raises:
        NotCaughtUp: the topic does not hold the whole table even now.
        PastErased: it does so only from a later position on.
    """
    since = whole_since(published, table)
    if since is None:
        raise NotCaughtUp(
            f"the topic of {table} does not hold every row yet: its backfill is not done",
            remedy="follow the backfill with cdc backfill, then try again",
        )
    if lsn < since:
        raise PastErased(
            f"{table} as of {lsn} is unknown: its topic holds every row only from {since} on",
            remedy=f"ask for {since} or later",
        )


def point_at(asked: str, published: PublishedPoint) -> LSN:
    """Parses the position that was asked for.

    Raises:
        JobError: the text is not an LSN.
        NotCaughtUp: the bridge has not published up to there.
    """
    try:
        lsn = LSN.parse(asked)
    except ValueError as error:
        raise JobError(str(error), remedy="give a position as pg_current_wal_lsn() prints it") from error
    if lsn > published.lsn:
        raise NotCaughtUp(
            f"the bridge has published only up to {published.lsn}, not to {lsn}", remedy="try again when it has"
        )
    return lsn
