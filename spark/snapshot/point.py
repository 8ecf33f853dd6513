"""Which commit a snapshot is of: the bridge's progress, from when on topics are whole, and the point asked for."""

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
    """What the progress topic said.

    Attributes:
        lsn: everything that committed before is published.
        backfills: by ``namespace.table``, every record that is left, in order.
        may_be_late: the topics may hold rows behind newer ones: a bridge with ``delivery: idempotent`` stood still, and
            sent them when it woke up.
    """

    lsn: LSN
    backfills: Mapping[str, Sequence[BackfillProgress]]
    may_be_late: bool = False


def wait_published(brokers: Brokers, stream: Stream, fence: LSN, timeout_s: float = FENCE_TIMEOUT_S) -> PublishedPoint:
    """The bridge's progress, once it has come to ``fence``.

    Raises:
        NotCaughtUp: it did not in time, or never published anything.
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
                f"the bridge has published up to {lsn} only, the source is at {fence}",
                remedy="see whether it runs and how far it is (cdc status), then try again",
            )
        time.sleep(_PAUSE_S)


def whole_since(published: PublishedPoint, table: str) -> LSN | None:
    """From which position on the table's topic is known to hold all of it; None when it does not.

    A topic whose table was never backfilled holds what changed since its bridge began, and is taken for whole.
    """
    since: LSN | None = LSN(0)
    for progress in published.backfills.get(table, ()):
        if not progress.whole:
            since = None
        elif since is None or since == 0:
            since = progress.lsn
    return since


def refuse_unless_whole(published: PublishedPoint, table: str, lsn: LSN) -> None:
    """Stop when the topic does not hold the whole table at ``lsn``.

    Raises:
        NotCaughtUp: it does not even now.
        PastErased: only from a later position on.
    """
    since = whole_since(published, table)
    if since is None:
        raise NotCaughtUp(
            f"the topic of {table} does not hold the whole table yet: its backfill is not done",
            remedy="follow it with cdc backfill, then try again",
        )
    if lsn < since:
        raise PastErased(
            f"{table} as of {lsn} is not known: its topic holds the whole table from {since} on",
            remedy=f"ask for {since} or later",
        )


def point_at(asked: str, published: PublishedPoint) -> LSN:
    """The position that was asked for.

    Raises:
        JobError: it is none.
        NotCaughtUp: it is not published yet.
    """
    try:
        lsn = LSN.parse(asked)
    except ValueError as error:
        raise JobError(str(error), remedy="give a position as pg_current_wal_lsn() prints it") from error
    if lsn > published.lsn:
        raise NotCaughtUp(
            f"the bridge has published up to {published.lsn}, not to {lsn}", remedy="try again when it has"
        )
    return lsn
