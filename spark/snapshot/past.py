"""Judges whether a compacted topic still holds the state at a point, from what was seen of each partition. Pure.

Theory of operation. A *bound* cuts a partition: the records below it belong to the state, and a key's state is its
latest record below the bound. Compaction erases a record when it finds a later one of the same key, and erases a
tombstone some time after that. So what is left of a key is always the end of its story. If a key has a record below the
bound, its state is exact: the latest record there is the latest there ever was. If a key has none, one of three things
happened, and they look alike: the key first appeared after the bound, or its older records were erased, or all of its
records were.

To tell these apart we need a proof that **nothing at or after the bound was erased**. Then, if a key has no record
below the bound, the first record that is left of it is the first it ever had after the bound. If that one is an insert,
there was no row at the bound. Any other first record is an *orphan*: the row may have had records that are erased, so
its state is unknown. (Changed keys, backfilled rows and repaired rows count as orphans, although theirs may well be the
first record of the key.)

There are three proofs:

1. *Rest*. The newest state is asked for, the partition's end offset has not moved since, and no record lies after the
   bound. (For an older point this would prove nothing: tombstones after it may have come and gone.)
2. *A pair*. There are two records x and y of one key, y is below the bound, and x is still there after everything was
   read. A run of the cleaner covers the log up to some offset and rewrites it from the beginning. A run that covered y
   and got as far as x would have erased x. So each run either ends below y, and erased nothing at the bound; or it has
   not reached x yet, and so not the bound either.
3. *The clock*. The cleaner never covers a segment with a record younger than ``min.compaction.lag.ms``. If the last
   record below the bound is still younger than that when the reading ends, no run ever reached it. Then nothing after
   the bound has erased anything below it, and orphans do not matter.

The second and the third need a record *below* the bound. A record after it does not do: others may have stood before it
and be erased.

All three rely on the order within a partition. If a record that belongs below the bound was appended after one that
does not, none of them holds. (A bridge with ``delivery: idempotent`` was suspended, and wrote the record late.)

Two precautions cover a cleaner that works while the log is read. First, a record after the *end* of the reading may
have made the cleaner erase one that was about to be read. So the *tail*, written meanwhile, is read as well, and bound
and orphans are taken from log and tail together. Second, the cleaner may remove a tombstone after an older record of
its key was read and before the tombstone itself is. So a reading that takes as long as ``delete.retention.ms`` proves
nothing.

We assume that a partition keeps its leader while it is read; that nobody deletes records by hand; that neither setting
was lowered and raised again within its own length; and that the clocks of the bridge's, the brokers' and the driver's
machines agree within ``CLOCK_MARGIN_MS``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

CLOCK_MARGIN_MS: Final = 5_000


@dataclass(frozen=True, slots=True)
class LogPlace:
    """The place of one record: its offset, the LSN and commit time (µs) in its header, and when it was produced."""

    offset: int
    lsn: int
    commit_us: int
    produced_ms: int


@dataclass(frozen=True, slots=True)
class PartitionEvidence:
    """What was seen of one partition, in log and tail together.

    Attributes:
        quiet: the newest state is asked for, and the partition did not grow while it was read.
        below: the last remaining record that belongs to the state.
        bound: the first remaining record that does not.
        superseded: the offset of x, in the pair with the lowest y.
        superseding: the y of that pair.
        orphan: the last orphan: a record that is the first one left of its key and not an insert.
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
        ended_ms: when everything was read and each pair's x had been seen again.
        took_ms: how long it took from the first record to that moment.
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
        since: records up to this one's LSN may be missing; None if no later point is known to help.
    """

    partition: int
    reason: str
    since: LogPlace | None


def judge(evidence: PartitionEvidence, reading: LogReading) -> Erased | None:
    """Returns None if the fold of the partition is exactly the state at the bound, or else why that is not proven."""
    if reading.took_ms >= reading.retention_ms:
        return Erased(
            evidence.partition, "reading took at least as long as tombstones are kept (delete.retention.ms)", None
        )
    bound, below = evidence.bound, evidence.below
    if bound is None and evidence.quiet:
        return None
    if bound is not None and below is not None and bound.offset < below.offset:
        return Erased(evidence.partition, "an older record was written after a newer one", None)
    if below is not None and below.produced_ms > reading.ended_ms - reading.lag_ms + CLOCK_MARGIN_MS:
        return None
    orphan, pair = evidence.orphan, evidence.superseding
    if bound is not None and orphan is not None and orphan.offset >= bound.offset:
        return Erased(evidence.partition, "keys that changed later have no older record left", _later(orphan, pair))
    if pair is not None and (bound is None or pair.offset < bound.offset):
        return None
    return Erased(
        evidence.partition, "the remaining records do not prove that no others were erased", _later(orphan, pair)
    )


def answerable_since(erased: Iterable[Erased]) -> LogPlace | None:
    """Returns the record after which all these partitions can answer; None if that is not known of each."""
    places = [each.since for each in erased]
    known = [place for place in places if place is not None]
    return max(known, key=lambda place: place.lsn) if known and len(known) == len(places) else None


def _later(orphan: LogPlace | None, pair: LogPlace | None) -> LogPlace | None:
    """Returns the later of the two: the pair proves any bound after both. Without a pair no later bound is proven."""
    if pair is None or orphan is None:
        return pair
    return max(orphan, pair, key=lambda place: place.offset)
