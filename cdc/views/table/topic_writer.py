"""Topics of other programs as tables in a store: each batch that was read is a transaction, with its offsets.

Such topics have no LSN. A table is exact as of the moment for which its topic is known to have been read to the end:
the topic held nothing then that the table does not show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final

import structlog
from msgspec.structs import replace

from cdc.base.config import OtherTopic
from cdc.contract.ports import Partition, StoredRecord
from cdc.contract.table_states import TableEvent, TableState
from cdc.views.store.port import Store
from cdc.views.table.facts import TableFacts
from cdc.views.table.feed_facts import FeedTopic
from cdc.views.table.filled import INTERRUPTED, FilledTable
from cdc.views.table.filling import Filling
from cdc.views.table.forms import topic_form
from cdc.views.table.indexes import Indexes

OTHER_KIND: Final = "its keys and values are read in another way"

_NO_INDEXES: Final = Indexes((), {})
_topic_of: Final = attrgetter("topic")

log = structlog.get_logger("cdc.view")


class TopicWriter:
    """One session of the writer. After every error, a new one is made.

    Args:
        store: the store; ``close`` closes it.
        name: the name of the view.
        topics: what each topic holds, by name.
    """

    def __init__(self, store: Store, name: str, topics: Mapping[str, OtherTopic]) -> None:
        self._store = store
        self._topics = topics
        self._filling = Filling(store, name, "topics")
        self._tables: dict[str, FilledTable] = {}
        self._gone: list[FilledTable] = []
        self._number = 0

    def lock(self) -> bool:
        """Becomes the only writer until ``close``; returns False while another process is."""
        return self._store.lock()

    def close(self) -> None:
        """Closes the store and forgets the open transaction."""
        self._store.close()

    def restore(self) -> None:
        """Reads what the store holds. Tables that the configuration no longer names are removed."""
        facts, feed = self._filling.restore()
        self._number = self._filling.view.retired
        for table in facts.tables.values():
            filled = FilledTable(table, feed.topics.get(table.topic, FeedTopic()))
            self._number = max(self._number, table.number)
            if table.topic in self._topics:
                self._tables[table.topic] = filled
            else:
                self._gone.append(filled)
                self._filling.forget_offsets(table.topic)
        for topic in self._topics:
            if topic not in self._tables:
                self._number += 1
                new = TableFacts(number=self._number, name=topic, topic=topic)
                self._tables[topic] = FilledTable(new, FeedTopic(state=TableState.LOADING), is_new=True)

    def offsets(self, topic: str) -> dict[int, int]:
        """Returns where to read on, by partition; empty at the first start."""
        return {number: at for (name, number), at in self._filling.offsets.items() if name == topic}

    def topic_id(self, topic: str) -> str:
        """Returns Kafka's id of the topic that the offsets belong to."""
        return self._tables[topic].feed.topic_id

    def read_since(self, topic: str) -> float:
        """Returns the moment for which the topic is known to be read to its end, in seconds since 1970."""
        return self._tables[topic].feed.read_since or 0.0

    def state(self, topic: str) -> str:
        """Returns what answers about the topic's table are worth."""
        return self._tables[topic].facts.state

    def take_up(self, topic: str, topic_id: str, ends: Sequence[int], why_anew: str, now: float) -> dict[int, int]:
        """Takes up a topic; returns where to begin, by partition. Partitions that are not named begin at 0."""
        table, kinds = self._tables[topic], self._topics[topic]
        is_other_kind = (table.facts.key_kind, table.facts.value_kind) != (kinds.key, kinds.value)
        table.set_kinds(kinds.key, kinds.value)
        table.describe(topic_form(kinds.key, kinds.value), (), (), _NO_INDEXES)
        table.begin()
        starts = self.offsets(topic)
        holds_rows = self._filling.holds_rows(table)
        is_new = bool(why_anew or is_other_kind or not starts)
        self._filling.aim(topic, ends, now, is_new=is_new)
        if is_new:
            why = why_anew or (OTHER_KIND if is_other_kind and starts else "")
            if not why and table.facts.filling:
                why = table.feed.reason or INTERRUPTED
            # Rows of another kind cannot be served meanwhile: their keys and values are spelled in another way.
            table.begin_anew(why, now, holds_rows=holds_rows and not is_other_kind)
            self._filling.forget_offsets(topic)
            starts = {}
            if why:
                log.warning(
                    "reading a table anew from its topic",
                    table=topic,
                    reason=why,
                    remedy="wait: until it is read, answers are 503; /v1/tables says how far",
                )
        else:
            table.move(TableEvent.LEFT_OUT)
        table.resume()
        table.change_feed(topic_id=topic_id)
        return starts

    def stop(self, topic: str, reason: str) -> None:
        """Stops reading a topic, for the given reason."""
        if self._tables[topic].feed.state != TableState.STOPPED:
            log.error(
                "a topic is not read",
                topic=topic,
                reason=reason,
                remedy="correct what the reason names, then start the process again",
            )
        self._tables[topic].stop(reason)

    def write(self, records: Sequence[StoredRecord]) -> Mapping[str, int]:
        """Applies records in the order in which they were read; returns the number of changed rows by topic."""
        counts: dict[str, int] = {}
        for topic, of_topic in groupby(sorted(records, key=_topic_of), key=_topic_of):
            table = self._tables[topic]
            batch = table.read([*of_topic])
            self._filling.apply(table, batch)
            counts[topic] = len(batch)
        return counts

    def reached(self, topic: str, at: float) -> bool:
        """Records that everything in the topic at that moment is written; returns whether the table's state changed."""
        table = self._tables[topic]
        was_filling, before = table.is_filling, table.facts.state
        if table.facts.filling:
            table.swap()
        table.move(TableEvent.JOINED, TableEvent.PROVEN, reason="", read_since=at)
        if was_filling:
            self._filling.tell_anew([table])
        return table.facts.state != before

    def commit(self, positions: Mapping[Partition, int]) -> None:
        """Records where to go on, and commits."""
        transaction = self._filling.transaction()
        for table in self._gone:
            self._filling.remove(table)
        self._gone.clear()
        for table in self._tables.values():
            table.flush(transaction)
        self._filling.move(positions)
        tables = [table for table in self._tables.values() if table.takes_rows and not table.is_filling]
        read_since = [table.feed.read_since or 0.0 for table in tables]
        self._filling.view = replace(self._filling.view, caught_up_at=min(read_since, default=0.0))
        self._filling.commit()
