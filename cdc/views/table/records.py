"""Records of one topic → changes of its table: rows, deleted keys, and records that are not rows. Pure; the hot path.

A ``RecordForm`` (``forms.py``) says how keys and values are read. A record that does not fit the form is not a row: it
never stops the feed, and whoever asks for its key gets an error that names it.
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
    """How the records of a topic are read. The first three raise ``ValueError`` for a record that does not fit.

    Attributes:
        key: a record's key → its order, and JSON text.
        value: a record's value and header → JSON text; None if it says that the row was deleted.
        evidence: a record's header → the LSN of its commit as JSON text, and µs since 1970.
        is_former: whether a key that does not fit was valid in a former definition of the table: such records are
            ignored.
        with_json_keys: records with keys in JSON, without those of a former form; None if all keys are JSON.
    """

    key: Callable[[bytes], tuple[bytes, bytes]]
    value: Callable[[bytes, bytes], bytes | None]
    evidence: Callable[[bytes], tuple[bytes, int]]
    is_former: Callable[[bytes], bool]
    with_json_keys: Callable[[Sequence[StoredRecord]], Sequence[StoredRecord]] | None = None


class NewRow(NamedTuple):
    """A row, and its order in each index."""

    row: Item
    entries: Sequence[bytes]


class NoRow(NamedTuple):
    """A key whose newest record is not a row.

    Attributes:
        key: the key's place in the space of records that are not rows.
        is_key: whether the record has a valid key, so that it may have had a row, which is deleted.
        text: an encoded ``Unreadable``; None when a tombstone has replaced the record.
    """

    key: Key
    is_key: bool
    text: bytes | None


@dataclass(frozen=True, slots=True)
class TableChanges:
    """What the records of one topic change in its table, at most one change for each key.

    Attributes:
        topic: the topic whose table changes.
        rows: new rows, in order.
        gone: deleted keys.
        strange: keys whose record goes, while a row under another spelling of the same key stays.
        no_rows: records that are not rows.
    """

    topic: str
    rows: Sequence[NewRow]
    gone: Sequence[Key]
    no_rows: Sequence[NoRow]
    strange: Sequence[Key] = ()

    def __len__(self) -> int:
        return len(self.rows) + len(self.gone) + len(self.strange)


def changes(topic: str, records: Sequence[StoredRecord], form: RecordForm, indexes: Indexes) -> TableChanges:
    """The changes that the newest record of each key makes."""
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
            row = form.value(value, header)
            if row is None:
                gone.append(at)
                continue
            entries = indexes.orders(row, order) if indexes else ()
        except ValueError as error:
            no_rows.append(NoRow(at, True, _told(record, error)))
            continue
        rows.append(NewRow(Item(at, pack(text, row, partition, offset, lsn, ts)), entries))
    rows.sort(key=_order_of)
    return TableChanges(topic, rows, gone, no_rows, strange)


def position_of(record: StoredRecord) -> Position:
    """The position in the record's header. A record without one sorts before all others."""
    try:
        return header_position(record.header)
    except DecodeError:
        return Position(ZERO, 0)


def _newest(
    records: Sequence[StoredRecord], form: RecordForm
) -> tuple[dict[bytes, tuple[StoredRecord, bytes]], list[NoRow]]:
    """Finds the newest record and the key's JSON text by order, and the records whose key is invalid.

    A key has records in two partitions if another program wrote one to the wrong partition. Then positions decide.
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
    """The last record of each key and partition. Most batches have each key only once, which is cheap to notice."""
    if len({record.key for record in records}) == len(records):
        return records
    return list({(record.key, record.partition): record for record in records}.values())


def _is_newer(record: StoredRecord, other: StoredRecord) -> bool:
    return record.partition == other.partition or position_of(other) <= position_of(record)


def _told(record: StoredRecord, error: ValueError) -> bytes:
    key = "" if record.key is None else record.key.decode(errors="replace")[:SHOWN_KEY]
    return encode(Unreadable(record.partition, record.offset, key, str(error)))
