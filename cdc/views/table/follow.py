"""What changes in a view's tables: what changed after a token, or a watch that yields changes as they happen.

The journal names the keys that changed; their rows are read as they are now. So every key converges, and a row that
changed twice between two looks is returned once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from cdc.views.store.port import Key, StoreSnapshot
from cdc.views.table import journal
from cdc.views.table.answers import ChangedRow, Changes, Kind, Range, Watched
from cdc.views.table.cursors import Token, parse_token
from cdc.views.table.facts import Facts
from cdc.views.table.rows import unpack
from cdc.views.table.unreadable import unreadable_of

if TYPE_CHECKING:
    from cdc.views.table.table_view import TableView

_ENTRIES: Final = 100
PAGE: Final = 1000
_FOREVER_S: Final = 3600.0


def changes(view: TableView, token: str, tables: Sequence[str], limit: int) -> Changes:
    """Returns what changed after a token: ``TableView.changes``."""

    def query(snapshot: StoreSnapshot) -> Changes:
        facts = view.facts_in(snapshot)
        for table in tables:
            view.facts_of(facts, table)
        store_id = facts.view.store_id if facts.view else ""
        now = Token(store_id, snapshot.version)
        if not token:
            return Changes((), now.text(), {}, now.version)
        since = parse_token(token)
        if since.store_id != store_id:
            return Changes((), now.text(), dict.fromkeys(tables, "the store was made anew"), now.version)
        told = journal.read(snapshot, since.version, _ENTRIES)
        if told.is_gap:
            return Changes((), now.text(), dict.fromkeys(tables, "the journal does not reach back so far"), now.version)
        found = _Found(tables, limit)
        reached = found.take(told, since)
        return Changes(_rows(view, facts, snapshot, found), reached.text(), found.reset, now.version)

    return view.read(query)


def watch(view: TableView, table: str, stop: threading.Event, wanted: Range, token: str) -> Iterator[Watched]:
    """Yields the rows of a range of keys, then their changes: ``TableView.watch``."""
    low, high = view.bounds(table, wanted)
    while not stop.is_set():
        if not token:
            token = changes(view, "", (table,), 1).token
            yield from _snapshot(view, table, wanted, stop)
            if not stop.is_set():
                yield Watched("snapshot", token=token)
            continue
        found = changes(view, token, (table,), PAGE)
        if found.reset:
            token = ""
            low, high = view.bounds(table, wanted)  # the table may have another key now
            yield Watched("reset", reason=found.reset[table])
            continue
        told = [each for each in found.changed if low <= each.order < high]
        for each in told:
            # Only the last event has a token: a watch that went on from an earlier one would miss those after it.
            last = found.token if each is told[-1] else ""
            kind: Kind = "row" if each.row else "unreadable" if each.unreadable else "delete"
            yield Watched(kind, each.key, each.row, last, unreadable=each.unreadable)
        token = found.token
        if parse_token(token).version >= found.version:
            view.wait_beyond(found.version, _FOREVER_S, stop)


def _snapshot(view: TableView, table: str, wanted: Range, stop: threading.Event) -> Iterator[Watched]:
    """Yields all rows, page by page. The caller took its token before, so what changes meanwhile is sent again."""
    page = wanted._replace(by={}, limit=PAGE, after=None)
    while not stop.is_set():
        found = view.scan(table, page)
        yield from (Watched("row", row.key, row) for row in found.rows)
        if found.after is None:
            break
        page = page._replace(after=found.after)
    last = b""
    while not stop.is_set() and (told := view.unreadable(table, page, last)):
        yield from (Watched("unreadable", each.key, unreadable=each.unreadable) for each in told)
        last = told[-1].order


class _Found:
    """The keys that changed, each once, and the tables to be read anew."""

    def __init__(self, tables: Sequence[str], limit: int) -> None:
        self._tables = tables
        self._limit = limit
        self.keys: dict[str, dict[bytes, bytes]] = {table: {} for table in tables}
        self.reset: dict[str, str] = {}

    def take(self, told: journal.JournalCommits, since: Token) -> Token:
        """Takes entries until there are enough keys; returns a token for what was taken."""
        skipped, left = since.keys, self._limit
        for version, entry in told.entries:
            for table in {*entry.reset} & {*self._tables}:
                self.reset[table] = "it was read anew"
                self.keys[table].clear()
            changed = [(table, key) for table in self._tables for key in entry.keys.get(table, ())]
            shown = changed[skipped : skipped + left]
            for table, key in shown:
                self.keys[table][key.order] = key.text
            left -= len(shown)
            if skipped + len(shown) < len(changed):
                return Token(since.store_id, version - 1, skipped + len(shown))
            skipped = 0
        return Token(since.store_id, told.version)


def _rows(view: TableView, facts: Facts, snapshot: StoreSnapshot, found: _Found) -> list[ChangedRow]:
    rows: list[ChangedRow] = []
    for table, changed in found.keys.items():
        if table in found.reset or not changed:
            continue
        known = facts.tables[table]
        form = view.keys_of(known)
        keys = [Key(order, text) for order, text in changed.items()]
        stored = snapshot.get(known.rows(), keys)
        no_rows = unreadable_of(snapshot, known, keys, stored)
        for key, value in zip(keys, stored, strict=True):
            row = None if value is None else unpack(value)
            text = row.key if row else form.as_json(key.text)
            rows.append(ChangedRow(table, text, row, key.order, no_rows.get(key.order)))
    return rows
