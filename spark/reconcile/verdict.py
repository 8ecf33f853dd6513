"""One key, one snapshot S of the source: does the topic hold what the table held? The rule, and nothing else. Pure.

Theory of operation. Which records of a key count at S? Those whose transaction S sees; of a backfill, those whose
chunk's snapshot S covers. A row lock is held until its transaction is visible, so whoever changes a row next becomes
visible later: along one partition a key's records are first visible ones, then invisible ones. Compaction leaves, of
each key, a suffix of that. Therefore:

* The latest visible record that survived is what the topic held at S. A tombstone, or no record at all: nothing.
* Only invisible records survived: the key was not in the topic at S, or what was there has been cleaned away because of
  them. The cleaner leaves alone what is younger than ``min.compaction.lag.ms``. So when the oldest invisible record is
  too young to have been looked at before the scan ended (``kept``), nothing is missing. Else nobody can know.
* A scan is not one moment. A cleaning in the middle of it can take away the latest visible record, unread, while an
  older one has been read already. That again is the work of an invisible record old enough to be cleaned by, so without
  ``kept`` a difference is not one, even if some visible record was read.
* Records behind the pinned ends are invisible and unread. Once the cleaner may look at those too, because the scan took
  longer than the lag (``outrun``), every key may have one, and no difference is provable.
* A record that the bridge cannot have written (``origin``) counts, whatever it says of itself, as readers of the topic
  take it. A row that it is the newest record of is a difference, ``foreign`` if its value is right.
* ``toast=newer``: the record has a value from after its transaction, on purpose, until its successor comes.
* A row that was gone when its unchanged TOAST was to be re-read is not published: its delete is on the way. At an S
  between the two the source has a version that no record ever had. Its successor is invisible, and it is in the scan if
  the ends were pinned after the bridge had published everything up to a position taken *after* the fence for S was
  passed. So in a table that re-reads (``rereads``) a key with an invisible record has no provable difference.

What cannot be judged now is ``in_flight``: a later round, with a fresh S, can.

A key in several partitions (another program wrote it, or their number changed): offsets do not compare across
partitions, so each partition is judged by itself. The one that the key belongs to says what the topic holds. In any
other, tombstones and invisible records do no harm, but a visible live record does: the bridge will never delete it, and
who reads the topic takes it for a row. It is a difference even if it equals the source.

``judge`` needs sums only, never the records, so that Spark can compute them with ``max_by`` and ``min``: see ``fold``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from cdc.spark.source.visibility import VisibleTransactions

Digest: TypeAlias = bytes | str | int | tuple[object, ...]
"""Of a whole row; only compared for equality."""


class KeyClass(StrEnum):
    """What can be said of a key. The values are the words of the report."""

    IDENTICAL = "identical"
    MISSING_IN_TOPIC = "missing_in_topic"
    EXTRA_IN_TOPIC = "extra_in_topic"
    VALUE_MISMATCH = "value_mismatch"
    FOREIGN = "foreign"
    IN_FLIGHT = "in_flight"

    @property
    def is_difference(self) -> bool:
        """Whether source and topic are proven to differ."""
        return self not in (KeyClass.IDENTICAL, KeyClass.IN_FLIGHT)


@dataclass(frozen=True, slots=True)
class RecordFacts:
    """What the rule looks at in a record.

    Attributes:
        author: the 64-bit id of its transaction; of a backfill record, the snapshot of its chunk.
        digest: of the row, None for a tombstone.
        toast_newer: its header says ``toast=newer``.
    """

    partition: int
    offset: int
    timestamp_ms: int
    author: int | VisibleTransactions
    digest: Digest | None
    toast_newer: bool = False

    def is_visible_in(self, snapshot: VisibleTransactions) -> bool:
        """Whether it counts at this snapshot."""
        if isinstance(self.author, VisibleTransactions):
            return snapshot.covers(self.author)
        return snapshot.sees(self.author)


@dataclass(frozen=True, slots=True)
class TopicState:
    """A key in one partition, at a snapshot; the defaults describe a key without records.

    Attributes:
        partition: where; None without records.
        offset: of the latest visible record, None when there is none.
        digest: of that record; None for a tombstone.
        toast_newer: of that record.
        oldest_invisible_ms: smallest timestamp of the invisible records, None when there are none.
        kept: nothing can have been cleaned away because of an invisible record.
        is_foreign: the bridge cannot have written the latest visible record: see ``origin``.
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
    """No cleaning before the end of the scan looked at a record younger than this.

    Args:
        scan_end_ms: when the last record was read, ms since 1970.
        min_compaction_lag_ms: the topic's; the smallest one that was in force during the scan and before.
        clock_margin_ms: how far the clocks of bridge (record timestamps), broker (cleaner) and reader may be apart.
    """
    return scan_end_ms - min_compaction_lag_ms + clock_margin_ms


def fold(records: Iterable[RecordFacts], snapshot: VisibleTransactions, kept_since_ms: int) -> TopicState:
    """The sums over one key's records in one partition, in any order."""
    latest: RecordFacts | None = None
    partition: int | None = None
    oldest_invisible_ms: int | None = None
    for record in records:
        if partition not in (None, record.partition):
            raise ValueError(f"partitions {partition} and {record.partition}: fold each by itself")
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
    """Whether a cleaning during the scan may have looked at records from behind its ends.

    A scan that takes longer than the lag avoids it by reading on: to ends that are pinned when it is through. What it
    finds there is invisible, and counts as such.

    Args:
        pinned_ms: when the (last) end offsets were asked for, ms since 1970.
        kept_since_ms: see there.
    """
    return pinned_ms <= kept_since_ms


def judge(source: Digest | None, state: TopicState, *, rereads: bool = False, outrun: bool = False) -> KeyClass:
    """The verdict on a key that was found in one partition at most.

    Args:
        source: digest of the row at S, None when there is none.
        state: of the key in the topic.
        rereads: the bridge completes rows of this table by reading them again: some column may be stored out of line,
            and the replica identity is not FULL.
        outrun: see ``is_outrun``.
    """
    if source == state.digest and (state.kept or state.offset is not None):
        # A tombstone of anybody's says nothing that is not so; of a row the bridge would not delete such a record.
        return KeyClass.FOREIGN if state.is_foreign and source is not None else KeyClass.IDENTICAL
    if outrun or not state.kept or state.toast_newer or (rereads and state.oldest_invisible_ms is not None):
        return KeyClass.IN_FLIGHT
    if source is None:
        return KeyClass.EXTRA_IN_TOPIC
    return KeyClass.MISSING_IN_TOPIC if state.digest is None else KeyClass.VALUE_MISMATCH


def judge_scattered(
    source: Digest | None, states: Sequence[TopicState], home: int, *, rereads: bool = False, outrun: bool = False
) -> KeyClass:
    """The verdict on a key that was found in several partitions, or in one that it does not belong to.

    Args:
        source: as for ``judge``.
        states: one for each partition that has records of the key.
        home: the partition that the partitioner gives the key.
        rereads: as for ``judge``.
        outrun: as for ``judge``.
    """
    at_home = next((each for each in states if each.partition == home), ABSENT)
    verdict = judge(source, at_home, rereads=rereads, outrun=outrun)
    if verdict is not KeyClass.IDENTICAL:
        return verdict
    strays = [each for each in states if each.partition != home]
    if not outrun and any(each.kept and each.digest is not None for each in strays):
        return KeyClass.EXTRA_IN_TOPIC
    return verdict if all(each.kept and each.digest is None for each in strays) else KeyClass.IN_FLIGHT


@dataclass(frozen=True, slots=True)
class TableEvidence:
    """What decides whether a table can be judged at all.

    A backfill drops the row that its chunk saw when a transaction that the chunk did not see touched it and was
    published. Until such a transaction is visible, the table still has the row that the topic never got.

    Attributes:
        whole: before S was taken, the topic held every row: no first backfill, or one after a gap, was under way.
        unseen: ``Progress.unseen`` of the stream, read before S was taken and after ``whole``.
        snapshot: S.
        reading_ms: from when S was taken (of a state carried on from an earlier run, from the start of that run) to the
            end of the scan. Not from the scan's start: an invisible tombstone may clean a visible record away,
            and go itself, before the scan begins.
        delete_retention_ms: the topic's ``delete.retention.ms``.
    """

    whole: bool
    unseen: tuple[int, ...]
    snapshot: VisibleTransactions
    reading_ms: int
    delete_retention_ms: int


def why_unverifiable(facts: TableEvidence) -> str | None:
    """The reason why every key of a table is ``unverifiable``, or None when each can be judged."""
    if not facts.whole:
        return "its backfill is not complete: the topic does not hold every row yet"
    if not all(map(facts.snapshot.sees, facts.unseen)):
        return (
            "transactions are published that the snapshot does not see (a synchronous standby is awaited?), and the"
            " backfill left out what they touched; take the snapshot again when they are visible"
        )
    if facts.reading_ms >= facts.delete_retention_ms:
        return (
            f"from the snapshot to the end of the scan {facts.reading_ms} ms went by,"
            f" and tombstones are kept for {facts.delete_retention_ms} ms only"
            " (delete.retention.ms): a delete may have gone unseen; read the topic from the beginning, or faster"
        )
    return None
