"""What a replica does not take, whichever database it is: one record, or a whole table. The other tables go on.

Records of some tables may stand aside (``sink.quarantine``). What that means is said in ``postgres.quarantine``, and is
the same for all databases.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import structlog

from cdc.base.errors import ReplicaRefused
from cdc.contract.ports import StoredRecord, TableRejected

_SHOWN_KEY_BYTES: Final = 500

Rendered = TypeVar("Rendered")

log = structlog.get_logger("cdc.sink")


def key_text(key: bytes) -> str:
    """Returns any bytes of a key as a text that PostgreSQL takes, which takes no NUL. A key in Avro begins with one."""
    return key.decode(errors="replace").replace("\0", "\\0")


class RecordRejected(TableRejected):
    """The replica table rejects a record. The arguments become the attributes of these names."""

    def __init__(self, record: StoredRecord, reason: str) -> None:
        key = "without a key" if record.key is None else key_text(record.key[:_SHOWN_KEY_BYTES])
        super().__init__(
            record.topic,
            reason,
            record,
            message=f"topic {record.topic!r} partition {record.partition} offset {record.offset} key {key}: {reason}",
            remedy="correct the replica table, or the row in the source so that a newer record replaces this one; "
            "then restart the sink, which tries again",
        )


class TableRefused(ReplicaRefused):
    """A replica table does not match its definition and cannot be made to. The table stops, the others go on."""


def as_tombstone(record: StoredRecord) -> StoredRecord:
    """Returns the record that deletes the row of a record which is put aside."""
    return record._replace(value=None)


def render_all_but(
    render: Callable[[Sequence[StoredRecord]], Rendered], records: Sequence[StoredRecord], budget: int
) -> tuple[Rendered, list[RecordRejected]]:
    """Renders records, with tombstones in place of those that cannot be written as rows.

    Args:
        render: renders records; raises ``RecordRejected`` for one that cannot be written.
        records: in the order of each partition.
        budget: how many records may be refused.

    Returns:
        What was rendered, and why each of the others was refused.

    Raises:
        RecordRejected: more are, or one that cannot be put aside: a tombstone, or a record without a key.
    """
    refused: list[RecordRejected] = []
    while True:
        try:
            return render(records), refused
        except RecordRejected as error:
            culprit = error.record
            assert culprit is not None
            if culprit.key is None or culprit.value is None or len(refused) >= budget:
                raise
            refused.append(error)
            place = culprit.partition, culprit.offset
            records = [as_tombstone(each) if each[1:3] == place else each for each in records]


def check_budget(refused: RecordRejected, *, kept: int, budget: int) -> StoredRecord:
    """Returns the record that is put aside.

    Args:
        refused: why the replica table does not take it.
        kept: how many other keys of the table are in quarantine.
        budget: how many may be.

    Raises:
        RecordRejected: as many are as may be.
    """
    record = refused.record
    assert record is not None
    if kept >= budget:
        raise RecordRejected(
            record,
            f"{refused.reason}; {kept} rows of the table are in quarantine already, as many as sink.quarantine allows",
        )
    return record


def tell_put_aside(table: str, key: bytes, refused: RecordRejected, *, kept: int) -> None:
    """Logs that a record was put aside.

    Args:
        table: ``namespace.table``.
        key: the record's key in JSON.
        refused: why the replica table does not take it.
        kept: how many keys of the table are in quarantine now.
    """
    assert refused.record is not None
    log.warning(
        "row put into quarantine: the replica table refuses it",
        table=table,
        key=key_text(key[:_SHOWN_KEY_BYTES]),
        partition=refused.record.partition,
        offset=refused.record.offset,
        reason=refused.reason,
        in_quarantine=kept,
        remedy="correct the replica table, or the row in the source; then cdc quarantine retry",
    )
