"""Headers of Kafka's record batches: bytes of a fetch → ``RecordBatch``.

A header is never compressed, so it shows sizes, offsets, times, producers and the cleaner's marks without unpacking a
record. Kafka's page "Record Batch" (message format, magic 2) describes the fields.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_PREFIX: Final = struct.Struct(">qi")
_PREFIX_SIZE: Final = 12
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_DELETE_HORIZON: Final = 0x40
_MAGIC_PLACE: Final = 16
_MAGIC: Final = 2


class RecordBatch(NamedTuple):
    """One record batch of a log.

    Attributes:
        base, last: the first and last offset; the cleaner keeps both when it removes records.
        size: bytes on disk, header included.
        records: how many are left in the batch.
        max_ms: the largest timestamp of the records, -1 for none.
        horizon_ms: when the cleaner may remove the tombstones; None until the cleaner has met the batch.
        producer: producer id and epoch; None outside Kafka transactions.
        is_control: the batch ends a Kafka transaction, and holds nobody's record.
    """

    base: int
    last: int
    size: int
    records: int
    max_ms: int
    horizon_ms: int | None
    producer: tuple[int, int] | None
    is_control: bool

    @property
    def was_cleaned(self) -> bool:
        """Whether the cleaner rewrote the batch: records are missing, or a delete horizon is set."""
        return self.records <= self.last - self.base or self.horizon_ms is not None


def parse_batches(data: bytes | memoryview) -> Iterator[RecordBatch]:
    """Yields the complete batches of a fetch. A broker may cut off the last one.

    Args:
        data: record batches, one after another.
    """
    place, end = 0, len(data)
    while end - place > _MAGIC_PLACE:
        base, length = _PREFIX.unpack_from(data, place)
        size = _PREFIX_SIZE + length
        if length <= 0 or place + size > end:
            return
        if data[place + _MAGIC_PLACE] != _MAGIC or size < _HEADER.size:
            # A message from before Kafka 0.11 that no cleaner has rewritten. It counts as one record, without a time.
            yield RecordBatch(base, base, size, 1, -1, None, None, is_control=False)
        else:
            yield _batch(_HEADER.unpack_from(data, place), size)
        place += size


def _batch(fields: tuple[int, ...], size: int) -> RecordBatch:
    base, _, _, _, _, attributes, last_delta, base_ms, max_ms, producer_id, epoch, _, count = fields
    return RecordBatch(
        base=base,
        last=base + last_delta,
        size=size,
        records=count,
        max_ms=max_ms,
        horizon_ms=base_ms if attributes & _DELETE_HORIZON else None,
        producer=(producer_id, epoch) if attributes & _TRANSACTIONAL else None,
        is_control=bool(attributes & _CONTROL),
    )
