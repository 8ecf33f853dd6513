"""What one commit of a view changes, gathered for the journal while its transaction is written."""

from __future__ import annotations

from collections.abc import Iterable

from cdc.views.store.port import Transaction
from cdc.views.table.journal import MAX_KEYS, Changed, JournalEntry, write
from cdc.views.table.records import TableChanges


class News:
    """Of the transaction that is open, or comes next."""

    def __init__(self) -> None:
        self._keys: dict[str, dict[bytes, Changed]] = {}
        self._reset: set[str] = set()

    def add(self, table: str, batch: TableChanges) -> None:
        """Keys of a table change. Of more than the journal holds, only that there are too many is kept."""
        if table in self._reset:
            return
        known = self._keys.setdefault(table, {})
        no_rows = [each.key for each in batch.no_rows if each.is_key]  # nobody asks for what is no key of the table
        for rows in ([each.row.key for each in batch.rows], batch.gone, batch.strange, no_rows):
            known.update((key.order, Changed(key.order, key.text)) for key in rows)
        if sum(map(len, self._keys.values())) > MAX_KEYS:
            self.reset([*self._keys])

    def reset(self, tables: Iterable[str]) -> None:
        """Readers have to read these tables anew."""
        for table in tables:
            self._reset.add(table)
            self._keys.pop(table, None)

    def write(self, transaction: Transaction, lsn: int, commit_ts: int) -> None:
        """Into the journal; what comes next begins with nothing."""
        keys = {table: [*known.values()] for table, known in self._keys.items() if known}
        write(transaction, JournalEntry(lsn, commit_ts, keys, tuple(sorted(self._reset))))
        self.forget()

    def forget(self) -> None:
        """The transaction is not to be."""
        self._keys.clear()
        self._reset.clear()
