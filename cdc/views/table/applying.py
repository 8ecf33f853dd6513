"""Changes of one table → the spaces of a generation: rows, index entries, and records that are not rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from cdc.views.store.port import Item, Key, Transaction
from cdc.views.table.facts import TableFacts
from cdc.views.table.indexes import Indexes
from cdc.views.table.keys import pointer
from cdc.views.table.records import NewRow, TableChanges
from cdc.views.table.rows import unpack


def apply(
    transaction: Transaction,
    table: TableFacts,
    generation: int,
    batch: TableChanges,
    indexes: Indexes,
    *,
    has_unreadable: bool,
) -> int:
    """Writes a batch.

    Args:
        transaction: open.
        table: the table whose rows change.
        generation: the generation to write to.
        batch: the changes.
        indexes: the indexes of the generation; they already contain the rows that it holds.
        has_unreadable: whether the generation holds records that are not rows.

    Returns:
        By how much the number of records that are not rows has grown.
    """
    space = table.rows(generation)
    gone = [*batch.gone, *(each.key for each in batch.no_rows if each.is_key)]
    if batch.strange:
        # A row at the same place stays if its key is spelled otherwise: the tombstone is for another record.
        there = transaction.get(space, batch.strange)
        gone += [key for key, row in zip(batch.strange, there, strict=True) if row and unpack(row).key == key.text]
    if indexes:
        _index(transaction, table, generation, batch.rows, gone, indexes)
    if batch.rows:
        transaction.put(space, [each.row for each in batch.rows])
    if gone:
        transaction.delete(space, gone)
    return _note(transaction, table.no_rows(generation), batch) if has_unreadable or batch.no_rows else 0


def _index(
    transaction: Transaction,
    table: TableFacts,
    generation: int,
    rows: Sequence[NewRow],
    gone: Sequence[Key],
    indexes: Indexes,
) -> None:
    """Replaces the index entries of the old rows by those of the new ones."""
    keys = [*(each.row.key for each in rows), *gone]
    entered = [each.entries for each in rows] + [()] * len(gone)
    out: dict[int, list[Key]] = defaultdict(list)
    for key, entries, before in zip(keys, entered, transaction.get(table.rows(generation), keys), strict=True):
        if before is None:
            continue
        for place, order in enumerate(indexes.orders(unpack(before).row, key.order)):
            if not entries or entries[place] != order:
                out[place].append(Key(order, order))
    for place in range(len(indexes)):
        space = table.index(place, generation)
        if out[place]:
            transaction.delete(space, out[place])
        if rows:
            transaction.put(space, entries_of(rows, place))


def entries_of(rows: Sequence[NewRow], place: int) -> list[Item]:
    """The entries of rows in one index."""
    orders = [(each.entries[place], each.row.key) for each in rows]
    return sorted([Item(Key(order, order), pointer(key)) for order, key in orders])


def _note(transaction: Transaction, space: str, batch: TableChanges) -> int:
    """Adds and removes records that are not rows; returns by how much their number has grown."""
    noted = [Item(each.key, each.text) for each in batch.no_rows if each.text is not None]
    over = [*(each.row.key for each in batch.rows), *batch.gone, *batch.strange]
    over += [each.key for each in batch.no_rows if not each.text]
    known = transaction.get(space, [*over, *(item.key for item in noted)])
    was_over = [key for key, value in zip(over, known, strict=False) if value is not None]
    if was_over:
        transaction.delete(space, was_over)
    if noted:
        transaction.put(space, noted)
    return sum(value is None for value in known[len(over) :]) - len(was_over)
