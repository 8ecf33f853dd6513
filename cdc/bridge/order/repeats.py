"""What the topics hold beyond the stored progress, so that the stream does not publish it again. Pure.

Theory of operation. With ``delivery: idempotent``, rows go out before the progress that covers them. A producer that
keeps order leaves in each partition a prefix of what it was given, however it ends. So a partition holds everything of
the stream up to its last record, and nothing after it. The last record's (lsn, seq) tells the two apart.

Only rows of the stream go out that way. Everything else is written in a Kafka transaction with the progress of that
moment, which begins once Kafka has all rows before it. If such a record is the last of a partition, that partition
holds no row beyond the progress, and nothing is skipped there. This matters for the tombstones of a TRUNCATE and of a
table that begins anew, which share their position with the change that follows them.

Two records of one change share a position, too: the tombstone of a row's old key, and the row under its new one. Of
these, the partition holds those up to the last record's key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cdc.base.lsn import LSN, ZERO
from cdc.contract.header import DELETE, INSERT, UPDATE, header_position, parse_header
from cdc.contract.partition import partition_of
from cdc.contract.ports import Partition, StoredRecord
from cdc.contract.record import Position, Ready


class Repeats:
    """Takes out of the stream what the topics already hold.

    Args:
        last: the last record of each partition that holds one; its header is a bridge's.
        partitions: how many partitions each topic has.

    Attributes:
        greatest: the greatest commit LSN in the topics; past it, nothing is in the topics already.
    """

    def __init__(self, last: Mapping[Partition, StoredRecord], partitions: Mapping[str, int]) -> None:
        self._ends: dict[Partition, tuple[Position, bytes]] = {}
        self._partitions = partitions
        self.greatest = ZERO
        for partition, record in last.items():
            header = parse_header(record.header)
            self.greatest = max(self.greatest, header.lsn)
            if header.op in (INSERT, UPDATE, DELETE) and header.xid is not None:
                self._ends[partition] = Position(header.lsn, header.seq), record.key or b""

    def are_passed(self, lsn: LSN) -> bool:
        """Whether a stream that was taken up to ``lsn`` has passed everything that the topics held."""
        return lsn > self.greatest

    def left(self, records: Sequence[Ready]) -> list[Ready]:
        """Returns those of the stream's next records that the topics do not hold yet."""
        return [each for each in records if not self._is_there(*each[:4])]

    def _is_there(self, topic: str, key: bytes, _value: bytes | None, header: bytes) -> bool:
        count = self._partitions.get(topic)
        if count is None:
            return False  # the topic was created after the start
        partition = (topic, partition_of(key, count))
        if (end := self._ends.get(partition)) is None:
            return False
        position, last_key = header_position(header), end[1]
        if position < end[0]:
            return True
        is_there = position == end[0]
        if not is_there or key == last_key:
            del self._ends[partition]
        return is_there
