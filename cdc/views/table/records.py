"""Records of one topic → changes of its table: rows, keys that are gone, and what is no row. Pure; the hot path.

What stands in keys and values is told by a ``RecordForm`` (``forms.py``). A record that does not fit the form is no
row: it never stops anything, and asking for its key says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, NamedTuple

from cdc.base.errors import DecodeError
from cdc.base.lsn import ZERO
from cdc.contract.header import header_position, is_of_no_row
from cdc.contract.ports import StoredRecord
from cdc.contract.record import Position
from cdc.views.store.port import Item, Key
from cdc.views.table.facts import SHOWN_KEY, Unreadable, encode
from cdc.views.table.indexes import Indexes
from cdc.views.table.keys import order_of_no_key
from cdc.views.table.rows import pack

_order_of: Final = attrgetter("row.key.order")


class RecordForm(NamedTuple):
    """How the records of a topic are read. The first three raise ``ValueError`` for what does not fit.

    Attributes:
        key: a record's key → its order, and JSON text.
        value: a record's value → JSON text.
        evidence: a record's header → the LSN of its commit as JSON text, and µs since 1970.
        is_former: whether a key that does not fit was one by a former definition: such records count no more.
    """

    key: Callable[[bytes], tuple[bytes, bytes]]
    value: Callable[[bytes], bytes]
    evidence: Callable[[bytes], tuple[bytes, int]]
    is_former: Callable[[bytes], bool]


class NewRow(NamedTuple):
    """A row, and where it stands in each index."""

    row: Item
    entries: Sequence[bytes]


class NoRow(NamedTuple):
    """Of a key whose newest record is no row.

    Attributes:
        key: where it stands among what is no row.
        is_key: it may have a row, which is gone.
        text: ``Unreadable``; None when a tombstone took the record away.
    """

    key: Key
    is_key: bool
    text: bytes | None


@dataclass(frozen=True, slots=True)
class TableChanges:
    """What records of one topic do to its table, at most one change a key.

    Attributes:
        topic: whose state it is.
        rows: by order.
        gone: keys that were deleted.
        strange: keys whose record goes; a row of the same key under another spelling stays.
        no_rows: records that are no rows.
    """

    topic: str
    rows: Sequence[NewRow]
    gone: Sequence[Key]
    no_rows: Sequence[NoRow]
    strange: Sequence[Key] = ()

    def __len__(self) -> int:
        return len(self.rows) + len(self.gone) + len(self.strange)


def changes(topic: str, records: Sequence[StoredRecord], form: RecordForm, indexes: Indexes) -> TableChanges:
    """What the last record of each key does."""
    rows: list[NewRow] = []
    gone: list[Key] = []
    strange: list[Key] = []
    newest, no_rows = _newest(records, form)
    for order, (record, text) in newest.items():
        _, partition, offset, key, value, header = record
        at = Key(order, key or b"")
        if value is None:
            (strange if is_of_no_row(header) else gone).append(at)
            continue
        try:
            lsn, ts = form.evidence(header)
            row = form.value(value)
            entries = indexes.orders(row, order) if indexes else ()
        except ValueError as error:
            no_rows.append(NoRow(at, True, _told(record, error)))
            continue
        rows.append(NewRow(Item(at, pack(text, row, partition, offset, lsn, ts)), entries))
    rows.sort(key=_order_of)
    return TableChanges(topic, rows, gone, no_rows, strange)


def position_of(record: StoredRecord) -> Position:
    """Where the record says it stands; what does not say it stands before everything."""
    try:
        return header_position(record.header)
    except DecodeError:
        return Position(ZERO, 0)


def _newest(
    records: Sequence[StoredRecord], form: RecordForm
) -> tuple[dict[bytes, tuple[StoredRecord, bytes]], list[NoRow]]:
    """By order, the newest record and its key's JSON text; and records whose key is none.

    A key has records in two partitions when somebody wrote one where it does not belong; then positions decide.
    """
    newest: dict[bytes, tuple[StoredRecord, bytes]] = {}
    strange: dict[bytes, NoRow] = {}
    for record in _last(records):
        key = record.key
        try:
            if key is None:
                raise ValueError("it has no key")
            order, text = form.key(key)
        except ValueError as error:
            if key is None or not form.is_former(key):
                at = order_of_no_key(key, record.partition, record.offset)
                strange[at] = NoRow(Key(at, at), False, None if record.value is None else _told(record, error))
            continue
        other = newest.get(order)
        if other is None or _is_newer(record, other[0]):
            newest[order] = (record, text)
    return newest, list(strange.values())


def _last(records: Sequence[StoredRecord]) -> Sequence[StoredRecord]:
    """The last of each key and partition; most batches have each key once, which is found out cheaply."""
    if len({record.key for record in records}) == len(records):
        return records
    return list({(record.key, record.partition): record for record in records}.values())


def _is_newer(record: StoredRecord, other: StoredRecord) -> bool:
    return record.partition == other.partition or position_of(other) <= position_of(record)


def _told(record: StoredRecord, error: ValueError) -> bytes:
    key = "" if record.key is None else record.key.decode(errors="replace")[:SHOWN_KEY]
    return encode(Unreadable(record.partition, record.offset, key, str(error)))
