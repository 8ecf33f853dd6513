"""What a replica does not take, whichever database it is: one record, or a whole table. The other tables go on."""

from __future__ import annotations

from typing import Final

from cdc.base.errors import ReplicaRefused
from cdc.contract.ports import StoredRecord, TableRejected

_SHOWN_KEY_BYTES: Final = 500


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
