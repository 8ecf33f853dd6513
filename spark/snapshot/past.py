"""Whether a compacted topic still holds the state at a point. Pure: it judges what was seen of each partition.

Theory of operation. A *bound* cuts a partition: records below it belong to the state, the state of a key is its latest
record below. Compaction erases a record when it finds a later one of the same key, and a tombstone some time after
that; so what is left of a key is always the end of its story. Hence a key with a record below the bound is exact: its
latest record there is the latest that ever was. A key without one is either new behind the bound, or its older records
are erased, or both it and they are: three cases that look alike.

They are told apart by a proof that **nothing at or behind the bound is erased**. Then the first record that is left of
a key without one below the bound is the first it ever had behind it, and when that is an insert, there was no row at
the bound. Any other first record (an *orphan*) means a row whose records are erased, or might mean it: the state is
unknown. (A changed key, a backfilled and a repaired row count as orphans although they may be the first of their key.)

The proof is one of three:

1. The newest state is asked for, and by its offsets the partition has not grown since, and no record is
   behind the bound. (Of an older point this would prove nothing: tombstones behind it may have come and gone.)
2. A *pair*: two records x and y of one key, y below the bound, of which x is still there when everything is read.
   A run of the cleaner covers the log up to some offset and rewrites it from the beginning on. A run that covered y and
   had rewritten as much as the place of x would have erased x. So each run either ends below y, hence erased nothing at
   the bound, or has not come as far as x, hence not to the bound.
3. The clock: the cleaner never covers a segment with a record younger than ``min.compaction.lag.ms``. When the last
   record below the bound is younger than that at the end of the reading, no run ever reached it. So nothing below is
   erased by anything behind either, and orphans do not matter.

The last two need a record *below* the bound: the first one that is left behind it may come after others that went.

All three rest on the order of a partition. Where a record below the bound stands behind one that is not (a bridge with
``delivery: idempotent`` stood still, and wrote it late), none of them holds.

A cleaner at work while the log is read needs no further care but two. A record behind the *end* of the reading may have
erased one that was about to be read: hence the *tail*, what was written meanwhile, is read as well, and bound and
orphans are those of log and tail together. And a tombstone could go between the reading of an older record and its own
place: hence a reading that takes as long as ``delete.retention.ms`` proves nothing.

It is assumed that a partition keeps its leader while it is read, that nobody deletes records by hand, that the two
settings were not lowered and raised again within their own length, and that the clocks of the bridge's, the brokers'
and the driver's machines agree within ``CLOCK_MARGIN_MS``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

CLOCK_MARGIN_MS: Final = 5_000


@dataclass(frozen=True, slots=True)
class LogPlace:
    """A record: its offset, the LSN and commit time (µs) in its header, and when it was produced."""

    offset: int
    lsn: int
    commit_us: int
    produced_ms: int


@dataclass(frozen=True, slots=True)
class PartitionEvidence:
    """What was seen of one partition, log and tail together.

    Attributes:
        quiet: the newest state is asked for, and the partition did not grow while it was read.
        below: the last record that is left of those that belong to the state.
        bound: the first that is left of the others.
        superseded: x of the pair with the lowest y.
        superseding: that y.
        orphan: the last record that is the first left of its key and no insert.
    """

    partition: int
    quiet: bool
    below: LogPlace | None
    bound: LogPlace | None
    superseded: int | None
    superseding: LogPlace | None
    orphan: LogPlace | None


@dataclass(frozen=True, slots=True)
class LogReading:
    """How the log was read.

    Attributes:
        ended_ms: when everything was read, and each pair's x was seen again.
        took_ms: from the first record to then.
        lag_ms: ``min.compaction.lag.ms``.
        retention_ms: ``delete.retention.ms``.
    """

    ended_ms: int
    took_ms: int
    lag_ms: int
    retention_ms: int


@dataclass(frozen=True, slots=True)
class Erased:
    """Why a partition cannot answer.

    Attributes:
        since: records whose LSN is not above this one's may be missing; None when no later point helps either.
    """

    partition: int
    reason: str
    since: LogPlace | None


def judge(evidence: PartitionEvidence, reading: LogReading) -> Erased | None:
    """None when the fold of the partition is the state at the bound, exactly."""
    if reading.took_ms >= reading.retention_ms:
        return Erased(evidence.partition, "reading took as long as tombstones are kept (delete.retention.ms)", None)
    bound, below = evidence.bound, evidence.below
    if bound is None and evidence.quiet:
        return None
    if bound is not None and below is not None and bound.offset < below.offset:
        return Erased(evidence.partition, "an older record was written behind a newer one", None)
    if below is not None and below.produced_ms > reading.ended_ms - reading.lag_ms + CLOCK_MARGIN_MS:
        return None
    orphan, pair = evidence.orphan, evidence.superseding
    if bound is not None and orphan is not None and orphan.offset >= bound.offset:
        return Erased(evidence.partition, "of keys that changed later nothing older is left", _later(orphan, pair))
    if pair is not None and (bound is None or pair.offset < bound.offset):
        return None
    return Erased(evidence.partition, "what is left does not prove that nothing else was there", _later(orphan, pair))


def answerable_since(erased: Iterable[Erased]) -> LogPlace | None:
    """The record behind which all these partitions can answer, as far as is known."""
    places = [each.since for each in erased]
    known = [place for place in places if place is not None]
    return max(known, key=lambda place: place.lsn) if known and len(known) == len(places) else None


def _later(orphan: LogPlace | None, pair: LogPlace | None) -> LogPlace | None:
    """Any bound behind both is proven by the pair; without a pair there is no such bound but the end."""
    if pair is None or orphan is None:
        return pair
    return max(orphan, pair, key=lambda place: place.offset)
