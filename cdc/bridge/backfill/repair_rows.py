"""Turns what the table has for some keys into records: rows, and tombstones for what does not belong in the topic.

Theory of operation. For each key, the row's record or a tombstone is produced under the canonical key, unless the
stream touched that key since recording began, as with chunks (``touched``). Three things are never written by the
stream, so they get tombstones in any case: other bytes that a reader may take for the same key (``{"id":"1"}``), bytes
that are not a key of the table, and records in a partition where their key does not belong.

A reader that knows a row by the values of its key, and not by its bytes, may take such a tombstone for a deletion of
the row itself. So the tombstone's header says that it belongs to no row. Because not every reader heeds that, the
canonical record follows the tombstone. Where the stream touched the key, its record comes before the tombstone; then
the key is looked up once more, with a recording that begins after the tombstone.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from cdc.base.lsn import LSN
from cdc.bridge.backfill.repair_part import Repaired
from cdc.bridge.backfill.rows import Ordinals
from cdc.bridge.backfill.stream_side import StreamSide
from cdc.bridge.backfill.surroundings import Surroundings
from cdc.bridge.capture.key_rows import KeyAnswer, KeyRows
from cdc.bridge.encode import TableEncoder
from cdc.bridge.order.touched import Recording
from cdc.contract.header import BACKFILL, DELETE, HeaderStamp, of_no_row, with_null_documents
from cdc.contract.partition import partition_of
from cdc.contract.record import RepairKey


class RepairWriter:
    """Produces the records of one topic's repair.

    Args:
        topic: the state topic.
        partitions: how many partitions the topic has.
        stream: tells where the stream is.
        ordinals: the ordinals of backfilled records.
        around: takes the records.
    """

    def __init__(
        self, topic: str, partitions: int, stream: StreamSide, ordinals: Ordinals, around: Surroundings
    ) -> None:
        self._topic = topic
        self._partitions = partitions
        self._stream = stream
        self._ordinals = ordinals
        self._produce = around.produce
        self._bury = around.bury

    def publish(
        self,
        keys: Sequence[RepairKey],
        found: KeyRows,
        table: TableEncoder,
        recording: Recording,
        done: Repaired,
    ) -> None:
        """Produce the records for these keys.

        Args:
            keys: the keys as they were asked for.
            found: what the table has for each key; the stream is published up to where that was read.
            table: encodes rows of ``found``.
            recording: a recording that began before that was read.
            done: takes the counts of what is done.
        """
        lsn, now = LSN(self._stream.settled_lsn - 1), time.time_ns() // 1_000
        stamp = HeaderStamp(lsn, None, now, found.moment.snapshot_text)
        is_emptied = recording.is_emptied(found.moment.snapshot)
        written: set[bytes] = set()
        for (key, partition), answer in zip(keys, found.answers, strict=True):
            if not answer.is_read:
                done.again.append(RepairKey(key, partition))
                continue
            canonical = _canonical(table, found.key, answer)
            is_moved = self._is_misplaced(key, partition)
            if is_moved:
                assert partition is not None
                self._bury(self._topic, partition, key, self._of_no_row(stamp, table))
                done.tombstones += 1
            if key != canonical and key not in recording.keys and key not in written:
                self._produce(self._topic, key, None, self._of_no_row(stamp, table))
                done.tombstones += 1
                done.bytes += len(key)
                written.add(key)
                is_moved = True
            # Once per key, but again after each tombstone that a reader may take for the row's
            if canonical is None or (canonical in written and not is_moved):
                continue
            # A TRUNCATE that the reading does not see removed the rows that it has; a missing row is still missing
            if canonical in recording.keys or (is_emptied and answer.row is not None):
                if is_moved:
                    done.again.append(RepairKey(canonical))
                else:
                    done.touched += 1
                continue
            written.add(canonical)
            if answer.row is None:
                self._tombstone(stamp, table, canonical, done)
            else:
                self._row(stamp, table, canonical, answer.row, done)

    def _is_misplaced(self, key: bytes, partition: int | None) -> bool:
        if partition is None or not 0 <= partition < self._partitions:
            return False
        return partition_of(key, self._partitions) != partition

    def _row(
        self, stamp: HeaderStamp, table: TableEncoder, key: bytes, row: tuple[bytes | None, ...], done: Repaired
    ) -> None:
        header = stamp.header(BACKFILL, self._ordinals.next(self._topic), table.fingerprint)
        if nulls := table.null_documents(row):
            header = with_null_documents(header, nulls)
        value = table.value(row)
        self._produce(self._topic, key, value, header)
        done.rows += 1
        done.bytes += len(value)

    def _tombstone(self, stamp: HeaderStamp, table: TableEncoder, key: bytes, done: Repaired) -> None:
        self._produce(self._topic, key, None, stamp.header(DELETE, self._ordinals.next(self._topic), table.fingerprint))
        done.tombstones += 1
        done.bytes += len(key)

    def _of_no_row(self, stamp: HeaderStamp, table: TableEncoder) -> bytes:
        return of_no_row(stamp.header(DELETE, self._ordinals.next(self._topic), table.fingerprint))


def _canonical(table: TableEncoder, names: Sequence[str], answer: KeyAnswer) -> bytes | None:
    """Returns the key's bytes as the stream would write them; None for what is not a key of the table."""
    if answer.row is not None:
        return table.key(answer.row)
    if answer.key is None:
        return None
    cells = dict(zip(names, answer.key, strict=True))
    return table.key(tuple([cells.get(column.name) for column in table.relation.columns]))
