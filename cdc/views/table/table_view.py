"""A view's tables, for programs that ask: rows by key, ranges and indexes, counts, and what changes.

Every answer comes from the store as one commit left it, and says what it is worth. Any number of threads may use one
``TableView``: it keeps only the facts of the newest version that it saw.

What changes is told by the journal, which names keys; their rows are read as they are now. So every key converges, and
a row that changed twice between two looks is returned once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from cdc.base.lsn import LSN
from cdc.views.store.port import Item, Key, Store, StoreSnapshot
from cdc.views.table import journal
from cdc.views.table.answers import (
    EVERYTHING,
    ChangedRow,
    Changes,
    Evidence,
    Found,
    FoundMany,
    Kind,
    Page,
    Range,
    Watched,
    evidence_of,
)
from cdc.views.table.cursors import Token, cursor, order_after, parse_token
from cdc.views.table.equal_keys import equal_place
from cdc.views.table.errors import NotLoaded, UnknownIndex, UnknownTable, WrongQuestion
from cdc.views.table.facts import FACTS, Facts, TableFacts, fact_key, read_facts
from cdc.views.table.indexes import IndexForm
from cdc.views.table.keys import Value, index_prefix, pointed, stop_of
from cdc.views.table.rows import unpack
from cdc.views.table.table_keys import TableKeys
from cdc.views.table.unreadable import entries, unreadable_keys, unreadable_of

Result = TypeVar("Result")

POLL_S: Final = 0.02
"""How often to look at the version. A look costs microseconds, and 20 ms go unnoticed beside the fsync of a commit."""

CHECK_S: Final = 1.0
"""How often to check that this is still the same store. A store that was deleted and made anew has another id, and may
be at the same version."""

ENTRIES: Final = 100
"""Commits of the journal that are read at once."""

PAGE: Final = 1000
"""Rows, or changes, that a watch reads at once."""

_FOREVER_S: Final = 3600.0

_VIEW: Final = fact_key("view")


class _Known(NamedTuple):
    """Facts of one version, and what lookups in its tables need.

    Attributes:
        facts: the facts.
        view: the view's facts as they are stored.
        check_at: when to check again that this is still the same store.
        ready: by table.
    """

    facts: Facts
    view: bytes | None
    check_at: float
    ready: dict[str, _Ready]


class _Ready(NamedTuple):
    """What every lookup in a table needs, until the next commit.

    Attributes:
        known: the facts of the table.
        rows: the space of its rows.
        keys: the form of its keys.
        evidence: what its answers are worth.
        until: seconds since 1970 until when they are; 0 if that has to be asked each time.
    """

    known: TableFacts
    rows: str
    keys: TableKeys
    evidence: Evidence
    until: float


class TableView:
    """Answers questions about the tables of a store.

    Args:
        store: the store, which the caller closes.
    """

    def __init__(self, store: Store) -> None:
        self._store: Final = store
        self._facts: _Known | None = None
        self._keys: dict[tuple[object, ...], TableKeys] = {}

    def version(self) -> int:
        """The version of the store: it grows with each commit."""
        return self._store.version()

    def facts(self) -> Facts:
        """Everything that the view says of itself and of its tables."""
        return self._store.read(self._facts_in)

    def tables(self) -> Mapping[str, TableFacts]:
        """The facts of all tables, by name."""
        return self.facts().tables

    def key(self, table: str, text: str) -> bytes:
        """The record's key for a key that a person wrote: ``{"id":1}``, ``id=1,region=eu``, or the only value.

        Raises:
            WrongQuestion: no such table, or not a key of it.
        """
        return self._keys_of(self._facts_of(self.facts(), table)).written(text)

    def get(self, table: str, key: bytes | Sequence[Value]) -> Found:
        """Looks up the row of a key.

        Args:
            table: the table's name.
            key: a record's key, or the values of its columns.

        Raises:
            WrongQuestion: no such table, or not a key of it.
            NotLoaded: the table has no rows to show yet.
        """

        def query(snapshot: StoreSnapshot) -> Found:
            ready = self._ready(snapshot, table)
            place = ready.keys.place(key)
            stored = entries(snapshot, ready.rows, (place,))[0]
            if stored is not None:
                return Found(unpack(stored), None, ready.evidence)
            places = self._places(snapshot, ready.known, (key,))
            return _found(snapshot, ready.known, places, entries(snapshot, ready.rows, places), ready.evidence)[0]

        return self._store.read(query)

    def get_many(self, table: str, keys: Sequence[bytes | Sequence[Value]]) -> FoundMany:
        """Looks up the rows of many keys, all from one moment; raises as ``get``."""

        def query(snapshot: StoreSnapshot) -> FoundMany:
            facts = self._facts_in(snapshot)
            known = self._loaded(facts, table)
            places = self._places(snapshot, known, keys)
            evidence = evidence_of(facts, known)
            stored = entries(snapshot, known.rows(), places)
            return FoundMany(_found(snapshot, known, places, stored, evidence), evidence)

        return self._store.read(query)

    def count(self, table: str) -> tuple[int, Evidence]:
        """Counts the rows of a table; raises as ``get``."""

        def query(snapshot: StoreSnapshot) -> tuple[int, Evidence]:
            facts = self._facts_in(snapshot)
            known = self._loaded(facts, table)
            return snapshot.count(known.rows()), evidence_of(facts, known)

        return self._store.read(query)

    def scan(self, table: str, wanted: Range = EVERYTHING) -> Page:
        """Returns one page of the rows of a range.

        Raises:
            WrongQuestion: no such table or index, an invalid cursor, or values that no key can have.
            NotLoaded: the table has no rows to show yet.
        """

        def query(snapshot: StoreSnapshot) -> Page:
            facts = self._facts_in(snapshot)
            known = self._loaded(facts, table)
            evidence = evidence_of(facts, known)
            space, low, high = self._bounds(known, wanted)
            by = tuple(wanted.by)
            if wanted.after is not None:
                low = max(low, order_after(wanted.after, evidence.store_id, known, by))
            items = snapshot.scan(space, low, high, wanted.limit + 1)
            shown = items[: wanted.limit]
            after = cursor(evidence.store_id, known, by, shown[-1].key.order) if len(items) > len(shown) > 0 else None
            rows = _rows(snapshot, known, shown) if by else [item.value for item in shown]
            return Page([unpack(row) for row in rows], after, evidence)

        return self._store.read(query)

    def unreadable(self, table: str, wanted: Range = EVERYTHING, after: bytes = b"") -> Sequence[ChangedRow]:
        """Returns one page of the keys of a range whose newest record is not a row.

        Args:
            table: the table's name.
            wanted: which keys, and how many; its ``after`` and ``by`` are ignored.
            after: the order of the last key of the previous page.

        Raises:
            WrongQuestion: no such table, or values that no key can have.
            NotLoaded: the table has no rows to show yet.
        """

        def query(snapshot: StoreSnapshot) -> Sequence[ChangedRow]:
            known = self._loaded(self._facts_in(snapshot), table)
            _, low, high = self._bounds(known, wanted._replace(by={}))
            low = max(low, after + b"\0") if after else low
            return unreadable_keys(snapshot, known, self._keys_of(known), (low, high), wanted.limit)

        return self._store.read(query)

    def changes(self, token: str, tables: Sequence[str], limit: int = 1000) -> Changes:
        """Returns what changed after a token.

        Args:
            token: from ``Changes`` or ``Watched``; empty to get a first token, without any changes.
            tables: by name; the same ones for as long as tokens are handed on.
            limit: how many keys to return; ask again with the answer's token for the rest.

        Raises:
            WrongQuestion: no such table, or an invalid token.
        """

        def query(snapshot: StoreSnapshot) -> Changes:
            facts = self._facts_in(snapshot)
            for table in tables:
                self._facts_of(facts, table)
            store_id = facts.view.store_id if facts.view else ""
            now = Token(store_id, snapshot.version)
            if not token:
                return Changes((), now.text(), {}, now.version)
            since = parse_token(token)
            if since.store_id != store_id:
                return Changes((), now.text(), dict.fromkeys(tables, "the store was recreated"), now.version)
            told = journal.read(snapshot, since.version, ENTRIES)
            if told.is_gap:
                why = "the journal does not reach back so far"
                return Changes((), now.text(), dict.fromkeys(tables, why), now.version)
            found = _ChangedKeys(tables, limit)
            reached = found.take(told, since)
            return Changes(self._changed_rows(facts, snapshot, found), reached.text(), found.reset, now.version)

        return self._store.read(query)

    def watch(
        self, table: str, stop: threading.Event, wanted: Range = EVERYTHING, token: str = ""
    ) -> Iterator[Watched]:
        """Yields the rows of a range of keys, then each key of it that changes, until ``stop`` is set.

        Args:
            table: the table's name.
            stop: ends the watch within 20 ms.
            wanted: which keys; its ``limit``, ``after`` and ``by`` are ignored.
            token: from an earlier event: the watch goes on after it and leaves out rows that did not change since.

        Raises:
            WrongQuestion: no such table, or an invalid token.
            NotLoaded: the table has no rows to show yet.
        """
        low, high = self._key_bounds(table, wanted)
        while not stop.is_set():
            if not token:
                token = self.changes("", (table,), 1).token
                yield from self._all_rows(table, wanted, stop)
                if not stop.is_set():
                    yield Watched("snapshot", token=token)
                continue
            found = self.changes(token, (table,), PAGE)
            if found.reset:
                token = ""
                low, high = self._key_bounds(table, wanted)  # the table may have another key now
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
                self._wait_beyond(found.version, _FOREVER_S, stop)

    def wait_for_lsn(
        self, lsn: LSN, timeout_s: float, stop: threading.Event | None = None, *, timeline: int = 0
    ) -> bool:
        """Waits until the view shows everything committed before an LSN; returns False if it does not in time.

        A table that lags the others may not show it yet; answers about that table then have no LSN.

        Args:
            lsn: an LSN of the source.
            timeout_s: how long to wait.
            stop: ends the wait.
            timeline: the timeline of the server that the LSN comes from; 0 if the source never fails over.

        Raises:
            WrongQuestion: the topics of this view have no LSNs, or the view follows a later timeline.
        """

        def is_shown(facts: Facts) -> bool:
            if facts.view is None:
                return False
            if facts.view.feed != "deployment":
                raise WrongQuestion("the topics of this view have no LSNs: wait for an offset")
            if 0 < timeline < facts.view.timeline:
                raise WrongQuestion(
                    f"{lsn} is an LSN of timeline {timeline}, but the view follows timeline {facts.view.timeline}",
                    remedy="ask the source for its LSN again",
                )
            return facts.view.lsn >= lsn and timeline <= facts.view.timeline

        return self._wait(is_shown, timeout_s, stop)

    def wait_for_offset(
        self, topic: str, partition: int, offset: int, timeout_s: float, stop: threading.Event | None = None
    ) -> bool:
        """Waits until the view shows this record; returns False if it does not in time."""

        def is_shown(facts: Facts) -> bool:
            following = facts.offsets.get(topic, ())
            return partition < len(following) and following[partition] > offset

        return self._wait(is_shown, timeout_s, stop)

    def _wait_beyond(self, version: int, timeout_s: float, stop: threading.Event | None = None) -> bool:
        """Waits until a later version is committed; returns False if none is in time, or when ``stop`` is set."""
        stop, ends_at = stop or threading.Event(), time.monotonic() + timeout_s
        while self._store.version() <= version:
            left_s = ends_at - time.monotonic()
            if left_s <= 0 or stop.wait(min(POLL_S, left_s)):
                return False
        return True

    def _facts_in(self, snapshot: StoreSnapshot) -> Facts:
        """The facts in a snapshot. They are decoded only if its version differs from that of the previous call."""
        return self._known_in(snapshot).facts

    def _known_in(self, snapshot: StoreSnapshot) -> _Known:
        known, now = self._facts, time.monotonic()
        is_same = known is not None and known.facts.version == snapshot.version
        if known is not None and is_same and now < known.check_at:
            return known
        view = snapshot.get(FACTS, [_VIEW])[0]
        if known is not None and is_same and known.view == view:
            known = known._replace(check_at=now + CHECK_S)
        else:
            known = _Known(read_facts(snapshot), view, now + CHECK_S, {})
        self._facts = known
        return known

    def _ready(self, snapshot: StoreSnapshot, table: str) -> _Ready:
        """What a lookup in a table needs; raises as ``_loaded``."""
        known, now = self._known_in(snapshot), time.time()
        ready = known.ready.get(table)
        if ready is None or now > ready.until:
            facts = self._loaded(known.facts, table)
            evidence = evidence_of(known.facts, facts)
            until = known.facts.stands_until(facts) if evidence.state == facts.state else 0.0
            ready = _Ready(facts, facts.rows(), self._keys_of(facts), evidence, until)
            known.ready[table] = ready
        return ready

    def _facts_of(self, facts: Facts, table: str) -> TableFacts:
        """The facts of one table.

        Raises:
            UnknownTable: there is no such table.
        """
        try:
            return facts.tables[table]
        except KeyError:
            there = ", ".join(sorted(facts.tables)[:5]) + (", …" if len(facts.tables) > 5 else "")
            raise UnknownTable(
                f"the view has no table {table}; it has {there or 'none yet'}",
                remedy="name it with its schema, and let view.tables choose it",
            ) from None

    def _loaded(self, facts: Facts, table: str) -> TableFacts:
        """The facts of a table that has rows to show.

        Raises:
            UnknownTable: there is no such table.
            NotLoaded: it has none yet.
        """
        known = self._facts_of(facts, table)
        if not known.is_shown:
            raise NotLoaded(f"{table} is being read for the first time", remedy="ask again when it is whole")
        return known

    def _key_bounds(self, table: str, wanted: Range) -> tuple[bytes, bytes]:
        """The first order of a range of keys, and the order after its last key; raises as ``watch``."""
        _, low, high = self._bounds(self._loaded(self.facts(), table), wanted._replace(by={}))
        return low, high

    def _keys_of(self, table: TableFacts) -> TableKeys:
        """Reads and writes the keys of a table; made once for each form of key."""
        shape = (table.key_kind, table.key)
        keys = self._keys.get(shape)
        if keys is None:
            keys = self._keys[shape] = TableKeys(*shape)
        return keys

    def _places(
        self, snapshot: StoreSnapshot, table: TableFacts, keys: Sequence[bytes | Sequence[Value]]
    ) -> Sequence[Key]:
        """The places of the keys' rows. If there is no row under a key as it is spelled, an equal key is looked up."""
        written = self._keys_of(table)
        places = [*map(written.place, keys)]
        if not written.has_equal_keys:
            return places
        spaces = [table.rows(), table.no_rows()] if table.unreadable else [table.rows()]
        for number, (place, key) in enumerate(zip(places, keys, strict=True)):
            values = written.spelled_otherwise(key)
            if values and entries(snapshot, table.rows(), (place,))[0] is None:
                equal = equal_place(snapshot, spaces, written.readings, values, written.floats)
                places[number] = equal or place
        return places

    def _bounds(self, table: TableFacts, wanted: Range) -> tuple[str, bytes, bytes]:
        """The space to scan, the first order, and the order after the last."""
        try:
            if wanted.by:
                return _index_bounds(table, wanted.by)
            return (table.rows(), *self._keys_of(table).bounds(wanted))
        except (ValueError, TypeError) as error:
            raise WrongQuestion(f"{table.name}: {error}") from error

    def _all_rows(self, table: str, wanted: Range, stop: threading.Event) -> Iterator[Watched]:
        """Yields all rows, page by page. The caller took its token before, so what changes meanwhile is sent again."""
        page = wanted._replace(by={}, limit=PAGE, after=None)
        while not stop.is_set():
            found = self.scan(table, page)
            yield from (Watched("row", row.key, row) for row in found.rows)
            if found.after is None:
                break
            page = page._replace(after=found.after)
        last = b""
        while not stop.is_set() and (told := self.unreadable(table, page, last)):
            yield from (Watched("unreadable", each.key, unreadable=each.unreadable) for each in told)
            last = told[-1].order

    def _changed_rows(self, facts: Facts, snapshot: StoreSnapshot, found: _ChangedKeys) -> list[ChangedRow]:
        rows: list[ChangedRow] = []
        for table, changed in found.keys.items():
            if table in found.reset or not changed:
                continue
            known = facts.tables[table]
            form = self._keys_of(known)
            keys = [Key(order, text) for order, text in changed.items()]
            stored = snapshot.get(known.rows(), keys)
            no_rows = unreadable_of(snapshot, known, keys, stored)
            for key, value in zip(keys, stored, strict=True):
                row = None if value is None else unpack(value)
                text = row.key if row else form.as_json(key.text)
                rows.append(ChangedRow(table, text, row, key.order, no_rows.get(key.order)))
        return rows

    def _wait(self, is_shown: Callable[[Facts], bool], timeout_s: float, stop: threading.Event | None) -> bool:
        ends_at = time.monotonic() + timeout_s
        while True:
            facts = self.facts()
            if is_shown(facts):
                return True
            if not self._wait_beyond(facts.version, ends_at - time.monotonic(), stop):
                return False


class _ChangedKeys:
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


def _index_bounds(table: TableFacts, by: Mapping[str, Value]) -> tuple[str, bytes, bytes]:
    columns = tuple(by)
    for place, index in enumerate(table.indexes):
        if index[: len(columns)] == columns:
            types = {column.name: column.sql_type for column in table.columns}
            form = IndexForm([(name, types.get(name, "text")) for name in columns])
            low = index_prefix(form.one_of_equals([*by.values()]), form.floats)
            return table.index(place), low, stop_of(low)
    there = "; ".join(", ".join(index) for index in table.indexes)
    raise UnknownIndex(
        f"{table.name} has no index that begins with ({', '.join(columns)}); it has {there or 'none'}",
        remedy="view.index in the configuration makes one",
    )


def _found(
    snapshot: StoreSnapshot,
    table: TableFacts,
    places: Sequence[Key],
    stored: Sequence[bytes | None],
    evidence: Evidence,
) -> list[Found]:
    no_rows = unreadable_of(snapshot, table, places, stored)
    return [
        Found(None if value is None else unpack(value), no_rows.get(place.order) if no_rows else None, evidence)
        for place, value in zip(places, stored, strict=True)
    ]


def _rows(snapshot: StoreSnapshot, table: TableFacts, entries: Sequence[Item]) -> list[bytes]:
    """The rows that index entries lead to. None is missing: rows and entries are written in one transaction."""
    found = snapshot.get(table.rows(), [pointed(entry.value) for entry in entries])
    return [row for row in found if row is not None]
