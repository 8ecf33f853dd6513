"""The rule of the comparison: at a snapshot S of the source, does the topic hold what the table held for a key? Pure.

Theory of operation. A record counts at S, or is *visible*, if S sees its transaction; a backfilled record, if S covers
the snapshot of its chunk. PostgreSQL holds a row lock until the transaction is visible, so whoever changes the row next
becomes visible later. Within a partition, a key's visible records therefore all come before its invisible ones.
Compaction leaves a suffix of that sequence. It follows:

* The latest visible record that survived is what the topic held at S. If that is a tombstone, or if the key has no
  record at all, the topic held nothing.
* If only invisible records survived, either the key was not in the topic at S, or the cleaner removed its visible
  records because of the invisible ones. The cleaner leaves records younger than ``min.compaction.lag.ms`` alone. So if
  the oldest invisible record was too young for the cleaner until the scan ended (``kept``), nothing was removed.
  Otherwise nobody can know.
* A scan takes time. While it runs, the cleaner may remove the latest visible record before it is read, after an older
  one has been read. That, too, takes an invisible record old enough for the cleaner. So without ``kept`` no difference
  is proven, even if some visible record was read.
* Records after the pinned ends are invisible, and the scan does not read them. If it takes longer than the lag, the
  cleaner may use those too (``outrun``). Then every key may have one, and no difference can be proven.
* A record that the bridge cannot have written (``origin``) counts whatever its header says, because readers of the
  topic take it for the row. If it is the newest record of a row, that is a difference: ``foreign`` if its value is
  right.
* ``toast=newer`` marks a record that holds, on purpose, a value newer than its transaction. Until its successor comes,
  a difference proves nothing.
* If a row is gone when the bridge re-reads its unchanged TOAST value, the bridge publishes nothing: the delete is on
  its way. At an S between the two, the source has a version that no record ever had. The delete is invisible at S. The
  scan contains it if the ends were pinned after the bridge had published everything up to a position taken *after* the
  fence for S was passed. So in a table that re-reads (``rereads``), a key with an invisible record has no provable
  difference.

A key that cannot be judged now is ``in_flight``: a later round, with a fresh S, can judge it.

A key may be in several partitions, because another program wrote it or because their number changed. Offsets do not
compare across partitions, so each partition is judged by itself. The partition where the key belongs says what the
topic holds. In any other, tombstones and invisible records do no harm, but a visible live record does: the bridge will
never delete it, and readers of the topic take it for a row. It is a difference even if it equals the source.

``judge`` needs a few aggregates per key, never the records, so Spark can compute them with ``max_by`` and ``min``
(``fold`` says the same in Python).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from cdc.spark.source.visibility import VisibleTransactions

Digest: TypeAlias = bytes | str | int | tuple[object, ...]
"""Stands for a whole row; only compared for equality."""


class KeyClass(StrEnum):
    """The class of a key. The values appear in the report."""

    IDENTICAL = "identical"
    MISSING_IN_TOPIC = "missing_in_topic"
    EXTRA_IN_TOPIC = "extra_in_topic"
    VALUE_MISMATCH = "value_mismatch"
    FOREIGN = "foreign"
    IN_FLIGHT = "in_flight"

    @property
    def is_difference(self) -> bool:
        """True if source and topic are proven to differ."""
        return self not in (KeyClass.IDENTICAL, KeyClass.IN_FLIGHT)


@dataclass(frozen=True, slots=True)
class RecordFacts:
    """The part of a record that the rule needs.

    Attributes:
        author: the 64-bit id of the record's transaction; for a backfilled record, the snapshot of its chunk.
        digest: the digest of the row; None for a tombstone.
        toast_newer: the header says ``toast=newer``.
    """

    partition: int
    offset: int
    timestamp_ms: int
    author: int | VisibleTransactions
    digest: Digest | None
    toast_newer: bool = False

    def is_visible_in(self, snapshot: VisibleTransactions) -> bool:
        """Tells whether the record counts at this snapshot."""
        if isinstance(self.author, VisibleTransactions):
            return snapshot.covers(self.author)
        return snapshot.sees(self.author)


@dataclass(frozen=True, slots=True)
class TopicState:
    """The state of a key in one partition at a snapshot; the defaults describe a key without records.

    Attributes:
        partition: the partition; None without records.
        offset: the offset of the latest visible record; None if there is none.
        digest: the digest of that record; None for a tombstone.
        toast_newer: that record is marked ``toast=newer``.
        oldest_invisible_ms: the smallest timestamp of the invisible records; None if there are none.
        kept: the cleaner cannot have removed anything because of an invisible record.
        is_foreign: the bridge cannot have written the latest visible record (see ``origin``).
    """

    partition: int | None = None
    offset: int | None = None
    digest: Digest | None = None
    toast_newer: bool = False
    oldest_invisible_ms: int | None = None
    kept: bool = True
    is_foreign: bool = False


ABSENT = TopicState()


def kept_since_ms(scan_end_ms: int, min_compaction_lag_ms: int, clock_margin_ms: int) -> int:
    """Returns the time since which records were too young for the cleaner, right up to the end of the scan.

    Args:
        scan_end_ms: when the last record was read, ms since 1970.
        min_compaction_lag_ms: the topic's setting; the smallest one that was in force during the scan and before.
        clock_margin_ms: how far apart the clocks of bridge (record timestamps), broker (cleaner) and reader may be.
    """
    return scan_end_ms - min_compaction_lag_ms + clock_margin_ms


def fold(records: Iterable[RecordFacts], snapshot: VisibleTransactions, kept_since_ms: int) -> TopicState:
    """Computes the state of a key from its records in one partition, given in any order."""
    latest: RecordFacts | None = None
    partition: int | None = None
    oldest_invisible_ms: int | None = None
    for record in records:
        if partition not in (None, record.partition):
            raise ValueError(f"records of partitions {partition} and {record.partition}: fold each partition by itself")
        partition = record.partition
        if record.is_visible_in(snapshot):
            if latest is None or record.offset > latest.offset:
                latest = record
        elif oldest_invisible_ms is None or record.timestamp_ms < oldest_invisible_ms:
            oldest_invisible_ms = record.timestamp_ms
    return TopicState(
        partition,
        latest.offset if latest else None,
        latest.digest if latest else None,
        latest is not None and latest.toast_newer,
        oldest_invisible_ms,
        oldest_invisible_ms is None or oldest_invisible_ms > kept_since_ms,
    )


def is_outrun(pinned_ms: int, kept_since_ms: int) -> bool:
    """Tells whether the cleaner may have used records from after the scan's ends while the scan ran.

    A scan that takes longer than the lag avoids this by reading on, to ends pinned when it is done. The records it
    finds there are invisible, and count as such.

    Args:
        pinned_ms: when the last end offsets were asked for, ms since 1970.
        kept_since_ms: the result of ``kept_since_ms``.
    """
    return pinned_ms <= kept_since_ms


def judge(source: Digest | None, state: TopicState, *, rereads: bool = False, outrun: bool = False) -> KeyClass:
    """Returns the class of a key that was found in one partition at most.

    Args:
        source: digest of the row at S; None if there is no row.
        state: the key's state in the topic.
        rereads: the bridge completes rows of this table by re-reading them, because some column may be stored out of
            line and the replica identity is not FULL.
        outrun: the result of ``is_outrun``.
    """
    if source == state.digest and (state.kept or state.offset is not None):
        # A foreign tombstone says nothing false. A foreign record of a row is a difference even if its value is right.
        return KeyClass.FOREIGN if state.is_foreign and source is not None else KeyClass.IDENTICAL
    if outrun or not state.kept or state.toast_newer or (rereads and state.oldest_invisible_ms is not None):
        return KeyClass.IN_FLIGHT
    if source is None:
        return KeyClass.EXTRA_IN_TOPIC
    return KeyClass.MISSING_IN_TOPIC if state.digest is None else KeyClass.VALUE_MISMATCH


def judge_scattered(
    source: Digest | None, states: Sequence[TopicState], home: int, *, rereads: bool = False, outrun: bool = False
) -> KeyClass:
    """Returns the class of a key that was found in several partitions, or in one where it does not belong.

    Args:
        source: as for ``judge``.
        states: one state for each partition that has records of the key.
        home: the partition that the partitioner gives the key.
        rereads: as for ``judge``.
        outrun: as for ``judge``.
    """
    at_home = next((each for each in states if each.partition == home), ABSENT)
    found = judge(source, at_home, rereads=rereads, outrun=outrun)
    if found is not KeyClass.IDENTICAL:
        return found
    strays = [each for each in states if each.partition != home]
    if not outrun and any(each.kept and each.digest is not None for each in strays):
        return KeyClass.EXTRA_IN_TOPIC
    return found if all(each.kept and each.digest is None for each in strays) else KeyClass.IN_FLIGHT


@dataclass(frozen=True, slots=True)
class TableEvidence:
    """The facts that decide whether a table can be judged at all.

    A backfill leaves out a row that its chunk saw if a transaction that the chunk did not see changed the row and was
    published. Until that transaction is visible, the table still has a row that the topic never got.

    Attributes:
        whole: the topic held every row before S was taken: no first backfill, nor one after a gap, was under way.
        unseen: the stream's ``Progress.unseen``, read before S was taken and after ``whole``.
        snapshot: S.
        reading_ms: the time from taking S to the end of the scan. Not from the scan's start: an invisible tombstone may
            make the cleaner remove a visible record, and be removed itself, before the scan begins.
        delete_retention_ms: the topic's ``delete.retention.ms``; None before the scan, when no time has passed yet.
    """

    whole: bool
    unseen: tuple[int, ...]
    snapshot: VisibleTransactions
    reading_ms: int = 0
    delete_retention_ms: int | None = None


def why_unverifiable(facts: TableEvidence) -> str | None:
    """Returns the reason why no key of the table can be judged; None if each can."""
    if not facts.whole:
        return "its backfill is not complete: the topic does not hold every row yet"
    if not all(map(facts.snapshot.sees, facts.unseen)):
        return (
            "the topic has transactions that the snapshot does not see yet (do they wait for a synchronous standby?),"
            " and the backfill left out the rows that they changed; compare again when they are visible"
        )
    if facts.delete_retention_ms is not None:
        return why_too_slow(facts.reading_ms, facts.delete_retention_ms)
    return None


def why_too_slow(reading_ms: int, delete_retention_ms: int) -> str | None:
    """Returns why no key can be judged if a tombstone may have come and gone during the scan; None if none can."""
    if reading_ms < delete_retention_ms:
        return None
    return (
        f"the scan ended {reading_ms} ms after the snapshot, but tombstones are kept for only"
        f" {delete_retention_ms} ms (delete.retention.ms), so a delete may have gone unseen; use more"
        " --passes, or raise topics.delete_retention_ms"
    )
