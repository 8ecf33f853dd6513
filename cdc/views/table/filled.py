"""One table of a view as its feed holds it: generations begin, are filled and take over; and what readers are told.

A change of its facts is held here until the transaction that it belongs to writes it (``flush``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypedDict, Unpack

from msgspec.structs import replace

from cdc.contract.ports import StoredRecord
from cdc.contract.table_states import IN_CUT, TableEvent, TableState, moved
from cdc.views.store.port import Item, Transaction
from cdc.views.table.applying import apply
from cdc.views.table.facts import FACTS, KeyColumn, KeyKind, State, TableFacts, ValueKind, encode, fact_key
from cdc.views.table.feed_facts import FEED, FeedTopic, topic_key
from cdc.views.table.indexes import Indexes
from cdc.views.table.keys import KeyForm
from cdc.views.table.records import RecordForm, TableChanges, changes

INTERRUPTED: Final = "it was being read anew when that was interrupted"
_LOADS: Final = "its topic does not hold the whole table yet, or was not read to its end"
_CATCHES_UP: Final = "it catches up with its topic"
_LACKS: Final = "rows of it are in quarantine (cdc quarantine list), so the view does not have them"


class FeedChanges(TypedDict, total=False):
    """What ``change_feed`` and ``move`` may set: fields of ``FeedTopic``."""

    reason: str
    topic_id: str
    read_since: float | None


class FilledTable:
    """A table of a view, filled from a bridge's topic or from another program's.

    Args:
        facts: what readers know of it, as stored, or of a new table.
        feed: what its feed knows of it, likewise.
        is_new: whether the store lacks it so far.
    """

    def __init__(self, facts: TableFacts, feed: FeedTopic, *, is_new: bool = False) -> None:
        self.facts = facts
        self.feed = feed
        self._form: RecordForm | None = None
        self._key: tuple[KeyColumn, ...] = ()
        self._indexes = Indexes((), {})
        self._is_changed = is_new
        self._is_begun = False
        self._is_index_stale = False
        self._drops: list[str] = []

    @property
    def is_changed(self) -> bool:
        """Whether there is anything to flush."""
        return self._is_changed or bool(self._drops)

    @property
    def takes_rows(self) -> bool:
        """Whether it is not stopped, and knows how to read its records."""
        return self._form is not None

    @property
    def has_other_key(self) -> bool:
        """Whether its rows are stored under another key than its records have now."""
        return self._is_held_under_other(self._key)

    @property
    def is_filling(self) -> bool:
        """Whether rows go where readers do not see them, or see them marked. Such changes are not told to watchers."""
        return bool(self.facts.filling) or self.feed.state in (TableState.LOADING, TableState.REBUILDING)

    def describe(
        self, form: RecordForm, key: Sequence[KeyColumn], columns: Sequence[KeyColumn], indexes: Indexes
    ) -> None:
        """Sets how its records are read from now on.

        That may mean that stored rows must be arranged anew. If the table has taken records in this session, it then
        takes no more: only when a session begins, the store is as the last commit left it.
        """
        held = Indexes(self.facts.indexes, {each.name: each.sql_type for each in self.facts.columns})
        is_other_index = (held.columns, held.places) != (indexes.columns, indexes.places)
        if self._is_begun and (is_other_index or self._is_held_under_other(key)):
            self._form = None
            return
        self._form, self._key, self._indexes, self._is_index_stale = form, tuple(key), indexes, is_other_index
        facts, feed = replace(self.facts, columns=tuple(columns)), self.feed
        if not self.has_other_key and facts.filling:
            feed = replace(feed, filling_key=self._key)
        elif not self.has_other_key:
            facts = replace(facts, key=self._key)
        self._take(facts, feed)

    def begin(self) -> None:
        """Notes that its first record of this session is about to come."""
        self._is_begun = True

    def begin_anew(self, why: str, now: float, *, holds_rows: bool) -> None:
        """Begins a new generation: its topic is read from the first record. The old rows are served meanwhile."""
        facts = self.facts
        if facts.filling:
            self._drop(facts.filling)
        generation = max(facts.generation, facts.filling) + 1
        if holds_rows:
            facts = replace(facts, filling=generation)
        else:
            if facts.generation:
                self._drop(facts.generation)
            facts = replace(facts, generation=generation, filling=0, unreadable=0, key=self._key, was_whole=False)
        feed = replace(
            self.feed,
            state=moved(self.feed.state, TableEvent.READ_AGAIN if why else TableEvent.READ),
            reason=why,
            read_since=now,
            unreadable=0,
            filling_key=self._key if holds_rows else (),
        )
        self._take(facts, feed)

    def stop(self, reason: str) -> None:
        """Stops it: it takes no more records."""
        self._form = None
        self.move(TableEvent.REFUSED, reason=reason)

    def resume(self) -> None:
        """Lets a stopped table take records again. It loads, because watchers were not told what it took before."""
        if self.feed.state == TableState.STOPPED and self.facts.filling:
            self.move(TableEvent.REBUILD_RESUMED, reason=INTERRUPTED)
        elif self.feed.state == TableState.STOPPED:
            self.move(TableEvent.RESUMED, reason="")

    def swap(self) -> None:
        """Shows the new generation to readers, because it is complete, and drops the old one."""
        facts = self.facts
        self._drop(facts.generation)
        facts = replace(
            facts, generation=facts.filling, filling=0, key=self.feed.filling_key, unreadable=self.feed.unreadable
        )
        self._take(facts, replace(self.feed, unreadable=0, filling_key=()))

    def move(self, *events: TableEvent, **values: Unpack[FeedChanges]) -> None:
        """Moves to the state that events lead to, and sets other facts of the feed."""
        self._take(self.facts, replace(self.feed, state=moved(self.feed.state, *events), **values))

    def change_feed(self, **values: Unpack[FeedChanges]) -> None:
        """Sets some facts of the feed; the others stay."""
        self._take(self.facts, replace(self.feed, **values))

    def rename(self, name: str) -> None:
        """Sets the name under which readers ask for it."""
        self._take(replace(self.facts, name=name), self.feed)

    def set_kinds(self, key: KeyKind, value: ValueKind) -> None:
        """Sets what the keys and values of another program's topic are."""
        self._take(replace(self.facts, key_kind=key, value_kind=value), self.feed)

    def read(self, records: Sequence[StoredRecord]) -> TableChanges:
        """Returns what records change, and changes nothing itself."""
        assert self._form is not None
        if self._form.with_json_keys is not None:
            records = self._form.with_json_keys(records)
        return changes(self.facts.topic, records, self._form, self._indexes)

    def apply(self, transaction: Transaction, batch: TableChanges) -> None:
        """Writes changes into the generation that takes rows."""
        facts, feed = self.facts, self.feed
        target = facts.filling or facts.generation
        before = feed.unreadable if facts.filling else facts.unreadable
        more = apply(transaction, facts, target, batch, self._indexes, has_unreadable=before > 0)
        if more and facts.filling:
            feed = replace(feed, unreadable=before + more)
        elif more:
            facts = replace(facts, unreadable=before + more)
        self._take(facts, replace(feed, rows_applied=feed.rows_applied + len(batch)))

    def index_anew(self) -> Indexes | None:
        """Returns the indexes that lack its rows, once; None if there are none. The caller must build them."""
        if not self._is_index_stale:
            return None
        self._is_index_stale = False
        for generation in self.generations:
            self._drops += [self.facts.index(place, generation) for place in range(len(self.facts.indexes))]
        self._take(replace(self.facts, indexes=self._indexes.columns), self.feed)
        return self._indexes

    def forget(self) -> None:
        """Drops its rows, because it leaves the view."""
        for generation in self.generations:
            self._drop(generation)

    def flush(self, transaction: Transaction) -> None:
        """Writes what has changed."""
        for space in self._drops:
            transaction.drop(space)
        self._drops.clear()
        if self._is_changed:
            facts = self.facts
            transaction.put(FACTS, [Item(fact_key("table", facts.name), encode(facts))])
            transaction.put(FEED, [Item(topic_key(facts.topic), encode(self.feed))])
            self._is_changed = False

    def _is_held_under_other(self, key: Sequence[KeyColumn]) -> bool:
        held = self.feed.filling_key if self.facts.filling else self.facts.key
        return bool(self.facts.generation) and _places(held) != _places(key)

    @property
    def generations(self) -> list[int]:
        """The generations that hold rows: the served one, and the one that is being filled."""
        return [each for each in (self.facts.generation, self.facts.filling) if each]

    def _drop(self, generation: int) -> None:
        facts = self.facts
        self._drops += [facts.rows(generation), facts.no_rows(generation)]
        self._drops += [facts.index(place, generation) for place in range(len(facts.indexes))]

    def _take(self, facts: TableFacts, feed: FeedTopic) -> None:
        state, reason = _standing(facts, feed)
        was_whole = facts.was_whole or feed.state in IN_CUT
        facts = replace(facts, state=state, reason=reason, topic_id=feed.topic_id, was_whole=was_whole)
        self._is_changed |= (facts, feed) != (self.facts, self.feed)
        self.facts, self.feed = facts, feed


def _standing(facts: TableFacts, feed: FeedTopic) -> tuple[State, str]:
    """Returns the state that readers are told, and why."""
    if facts.filling or feed.state == TableState.STOPPED:
        return "suspect", feed.reason or _LOADS
    if feed.state in (TableState.LOADING, TableState.REBUILDING):
        return "loading", feed.reason or _LOADS
    if feed.state == TableState.CATCHING_UP:
        return "loading", _CATCHES_UP
    if feed.state == TableState.EXCEPTED:
        return "degraded", _LACKS
    if facts.unreadable:
        return "degraded", f"{facts.unreadable} of its records are not rows"
    return "exact", ""


def _places(key: Sequence[KeyColumn]) -> list[tuple[str, bool, bool, int | None]]:
    """Returns what in a key decides where rows are stored, and which records are theirs."""
    form = KeyForm([(column.name, column.sql_type) for column in key])
    others = ((column.is_exact, column.schema_id) for column in key)
    return [(name, is_float, *rest) for name, is_float, rest in zip(form.names, form.floats, others, strict=True)]
