"""The open transaction of a view's store, and everything that its next commit must write.

The writers of both kinds of views share it: views of a bridge's topics, and of other programs' topics.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

from msgspec.structs import replace

from cdc.base.crashpoints import reach
from cdc.base.errors import StoreRefused
from cdc.contract.ports import Partition
from cdc.views.store.port import Item, Store, Transaction
from cdc.views.table.applying import entries_of
from cdc.views.table.facts import FACTS, Facts, ViewFacts, encode, fact_key, read_facts
from cdc.views.table.feed_facts import FEED, FeedFacts, read_feed, topic_key
from cdc.views.table.filled import FilledTable
from cdc.views.table.indexes import Indexes
from cdc.views.table.journal import MAX_KEYS, Changed, JournalEntry, write
from cdc.views.table.records import NewRow, TableChanges
from cdc.views.table.rows import unpack


class News:
    """What watchers of the view are told at the next commit: changed keys, or tables to read again."""

    def __init__(self) -> None:
        self._keys: dict[str, dict[bytes, Changed]] = {}
        self._reset: set[str] = set()

    def add(self, table: str, batch: TableChanges) -> None:
        """Adds the keys that a batch changes. If there are more than the journal holds, watchers read the tables again."""
        if table in self._reset:
            return
        known = self._keys.setdefault(table, {})
        no_rows = [each.key for each in batch.no_rows if each.is_key]  # nobody can ask for bytes that are not a key
        for rows in ([each.row.key for each in batch.rows], batch.gone, batch.strange, no_rows):
            known.update((key.order, Changed(key.order, key.text)) for key in rows)
        if sum(map(len, self._keys.values())) > MAX_KEYS:
            self.reset([*self._keys])

    def reset(self, tables: Iterable[str]) -> None:
        """Notes that readers must read these tables again."""
        for table in tables:
            self._reset.add(table)
            self._keys.pop(table, None)

    def write(self, transaction: Transaction, lsn: int, commit_ts: int) -> None:
        """Writes the news into the journal, and starts the next one."""
        keys = {table: [*known.values()] for table, known in self._keys.items() if known}
        write(transaction, JournalEntry(lsn, commit_ts, keys, tuple(sorted(self._reset))))
        self.forget()

    def forget(self) -> None:
        """Drops the news of a transaction that was aborted."""
        self._keys.clear()
        self._reset.clear()


_ROWS_AT_ONCE: Final = 5_000


class Filling:
    """Writes to one store, and commits.

    Args:
        store: the store; the caller holds its lock.
        name: the name of the view.
        feed: what fills the view.
    """

    def __init__(self, store: Store, name: str, feed: Literal["deployment", "topics"]) -> None:
        self._store = store
        self._name = name
        self._feed = feed
        self._transaction: Transaction | None = None
        self._news = News()
        self._offsets: dict[str, list[int]] = {}
        self._moved: set[str] = set()
        self.view = ViewFacts(name=name, feed=feed, store_id="")

    @property
    def is_changed(self) -> bool:
        """Whether there is anything to commit."""
        return self._transaction is not None or bool(self._moved)

    @property
    def offsets(self) -> dict[Partition, int]:
        """The next offset to read, by partition."""
        return {(topic, n): at for topic, of_topic in self._offsets.items() for n, at in enumerate(of_topic)}

    def restore(self) -> tuple[Facts, FeedFacts]:
        """Reads what the store holds.

        Raises:
            StoreRefused: the store belongs to another view.
        """
        facts, feed = self._store.read(lambda snapshot: (read_facts(snapshot), read_feed(snapshot)))
        if facts.view is None:
            self.view = replace(self.view, store_id=uuid.uuid4().hex, began_at=time.time())
        elif (facts.view.name, facts.view.feed) != (self._name, self._feed):
            raise StoreRefused(
                f"the store holds view {facts.view.name!r}, but this view is {self._name!r}",
                remedy="give each `name` its own view.store, or delete the store; it is filled again from the topics",
            )
        else:
            self.view = facts.view
        self._offsets = {topic: [*of_topic] for topic, of_topic in facts.offsets.items()}
        return facts, feed

    def holds_rows(self, table: FilledTable) -> bool:
        """Whether readers see rows of the table."""
        space = table.facts.rows()
        return bool(table.facts.generation) and self._store.read(lambda snapshot: snapshot.count(space)) > 0

    def move(self, offsets: Mapping[Partition, int]) -> None:
        """Sets the offsets from which reading continues after the next commit."""
        for (topic, number), offset in offsets.items():
            known = self._offsets.setdefault(topic, [])
            known.extend([0] * (number + 1 - len(known)))
            if known[number] != offset:
                known[number] = offset
                self._moved.add(topic)

    def forget_offsets(self, topic: str) -> None:
        """Forgets a topic's offsets, because it is read from the beginning."""
        if self._offsets.pop(topic, None) is not None:
            self._moved.add(topic)

    def aim(self, topic: str, ends: Sequence[int], now: float, *, is_new: bool) -> None:
        """Sets how far an incomplete topic must be read. Answers tell readers how much of that is left."""
        targets = self.view.targets
        if is_new and not targets:
            self.view = replace(self.view, began_at=now, rows=0)
        if is_new or topic in targets:
            self.view = replace(self.view, targets={**targets, topic: tuple(ends)})

    def apply(self, table: FilledTable, batch: TableChanges) -> None:
        """Writes a table's changes."""
        table.apply(self.transaction(), batch)
        self.view = replace(self.view, rows=self.view.rows + len(batch))
        if not table.is_filling:
            self._news.add(table.facts.name, batch)

    def tell_anew(self, tables: Sequence[FilledTable]) -> None:
        """Notes that tables are complete, so that readers read them again after the next commit."""
        whole = {table.facts.topic for table in tables}
        left = {topic: ends for topic, ends in self.view.targets.items() if topic not in whole}
        self.view = replace(self.view, targets=left)
        self._news.reset(table.facts.name for table in tables)

    def index(self, tables: Iterable[FilledTable]) -> None:
        """Builds missing indexes from the rows of the last commit."""
        for table in tables:
            indexes = table.index_anew()
            if indexes is None:
                continue
            table.flush(self.transaction())
            for generation in table.generations:
                self._index(table, generation, indexes)

    def rename(self, names: Sequence[str]) -> None:
        """Notes names that tables gave up or took. A watcher of such a name has rows of another table."""
        self.transaction().delete(FACTS, [fact_key("table", name) for name in names])
        self._news.reset(names)

    def remove(self, table: FilledTable) -> None:
        """Deletes a table from the view."""
        transaction, facts = self.transaction(), table.facts
        table.forget()
        table.flush(transaction)
        transaction.delete(FACTS, [fact_key("table", facts.name), fact_key("offsets", facts.topic)])
        transaction.delete(FEED, [topic_key(facts.topic)])
        left = {topic: ends for topic, ends in self.view.targets.items() if topic != facts.topic}
        self.view = replace(self.view, targets=left, retired=max(self.view.retired, facts.number))

    def commit(self) -> None:
        """Writes what has changed beside the tables, and commits."""
        transaction = self.transaction()
        items = [Item(fact_key("view"), encode(self.view))]
        items += [Item(fact_key("offsets", t), encode(self._offsets[t])) for t in self._moved if t in self._offsets]
        transaction.put(FACTS, items)
        if gone := [fact_key("offsets", topic) for topic in self._moved if topic not in self._offsets]:
            transaction.delete(FACTS, gone)
        self._moved.clear()
        self._news.write(transaction, self.view.lsn, self.view.commit_ts)
        reach("view.before_commit")
        self._transaction = None
        transaction.commit()
        reach("view.after_commit")

    def abort(self) -> None:
        """Aborts the open transaction. Afterwards only a new session knows what the store holds."""
        if self._transaction is not None:
            self._transaction.abort()
            self._transaction = None
        self._news.forget()

    def transaction(self) -> Transaction:
        """Returns the open transaction; begins one if there is none."""
        if self._transaction is None:
            self._transaction = self._store.begin()
        return self._transaction

    def _index(self, table: FilledTable, generation: int, indexes: Indexes) -> None:
        start, space = b"", table.facts.rows(generation)
        while True:
            items = self._page(space, start)
            if not items:
                return
            rows = [NewRow(item, indexes.orders(unpack(item.value).row, item.key.order)) for item in items]
            for place in range(len(indexes)):
                self.transaction().put(table.facts.index(place, generation), entries_of(rows, place))
            start = items[-1].key.order + b"\0"

    def _page(self, space: str, start: bytes) -> Sequence[Item]:
        return self._store.read(lambda snapshot: snapshot.scan(space, start, limit=_ROWS_AT_ONCE))
