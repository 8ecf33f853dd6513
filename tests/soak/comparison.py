"""Compares source, topics and replica at a fenced LSN, while nobody writes; what was read once is not read again."""

from __future__ import annotations

from contextlib import closing
from typing import Final, NamedTuple

import psycopg
from confluent_kafka import TopicPartition

from cdc.contract.ports import StoredRecord
from cdc.lab.proof.comparison import describe, difference, pinned, table_rows, topic_rows
from cdc.lab.proof.server_text import FormError
from cdc.lab.proof.topic_side import LiveRow, open_consumer, poll, read_header
from tests.soak.altering import ALTERED
from tests.soak.place import CAPTURED, SCHEMA, Place
from tests.soak.regression import EXCHANGED
from tests.support.topic_audit import TopicAudit, ends
from tests.support.waiting import within

_TABLES: Final = """
select nspname || '.' || relname from pg_class c join pg_namespace n on n.oid = relnamespace
where relkind in ('r', 'p') and not relispartition and relpersistence = 'p' and nspname = any(%s)
and exists (select from pg_index where indrelid = c.oid and (indisprimary or indisreplident)) order by 1
"""
"""Those with a key; docs/exceptions.md says which are left out. The rows of partitions are those of their root."""
_EXCHANGED: Final = tuple(f"{SCHEMA}.{name}" for name in (ALTERED, EXCHANGED))
_READ_IN_S: Final = 300.0
_BATCH: Final = 20_000
_SETTLES_IN_S: Final = 120.0


class Compared(NamedTuple):
    """How many tables and rows there are, and what differs."""

    tables: int
    rows: int
    differences: list[str]


class Fold:
    """The rows that a reader of the topics has, who began with the first record; and whether their order was right."""

    def __init__(self, bootstrap: str) -> None:
        self.audit = TopicAudit()
        self._bootstrap = bootstrap
        self._live: dict[str, dict[bytes, LiveRow]] = {}
        self._next: dict[tuple[str, int], int] = {}

    def read(self, topics: list[str]) -> None:
        """Read on to where these topics end now."""
        missing = {(topic, partition): end for topic, partition, end in ends(self._bootstrap, topics)}

        def is_read() -> bool:
            for read in poll(consumer, _BATCH):
                if isinstance(read, StoredRecord):
                    self._add(read)
                elif read.offset >= missing.get(read.partition, 0):
                    missing.pop(read.partition, None)
            return not missing

        with closing(open_consumer(self._bootstrap)) as consumer:
            places = [TopicPartition(*place, self._next.get(place, 0)) for place in missing]
            consumer.assign(places)
            assert within(is_read, _READ_IN_S), f"the end of {sorted(missing)} was not reached in {_READ_IN_S:g} s"

    def rows(self, topic: str) -> dict[bytes, LiveRow]:
        """The rows of a topic by key."""
        return self._live.setdefault(topic, {})

    def _add(self, record: StoredRecord) -> None:
        self.audit.add(record)
        self._next[record.topic, record.partition] = record.offset + 1
        rows, key = self.rows(record.topic), record.key or b""
        if record.value is None:
            rows.pop(key, None)
            return
        nulls = read_header(record.header)[2].get("json_null")
        rows[key] = LiveRow(record.value, frozenset(map(int, nulls.split(","))) if nulls else frozenset())


class Comparison:
    """Compares again and again; remembers the rows of the topics."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._fold = Fold(place.live.bootstrap)

    def begin_anew(self) -> None:
        """Forget what was read: the next comparison reads the topics as they are now, compacted."""
        self._fold = Fold(self._place.live.bootstrap)

    def tables(self) -> list[str]:
        """What is captured now."""
        return [table for (table,) in self._place.live.source.execute(_TABLES, (list(CAPTURED),))]

    def compare(self) -> Compared:
        """Compare all tables of the source; bridge and sink have caught up.

        A table that took another one's name is published again some seconds later (docs/exceptions.md): those that the
        load exchanges have time for that. All others are what they have to be at once.
        """
        faults = len(self._fold.audit.faults)
        tables = self.tables()
        altered = [table for table in tables if table.startswith(_EXCHANGED)]
        if not within(lambda: not self._absent(tables), _SETTLES_IN_S):
            return Compared(len(tables), 0, [f"not exact: {', '.join(self._absent(tables))}"])
        rows, found = self._look(sorted(set(tables) - set(altered)))
        within(lambda: not self._look(altered)[1], _SETTLES_IN_S)
        more, late = self._look(altered)
        return Compared(len(tables), rows + more, [*found, *late, *self._fold.audit.faults[faults:]])

    def _absent(self, tables: list[str]) -> list[str]:
        """Tables that the replica's cut does not hold, each with its state."""
        live = self._place.live
        states = dict(live.replica.execute("select topic, state from cdc.mirrored_table where name = %s", (live.name,)))
        found = {table: states.get(live.topic(table), "missing") for table in tables}
        return [f"{table} is {state}" for table, state in found.items() if state != "exact"]

    def _look(self, tables: list[str]) -> tuple[int, list[str]]:
        """How many rows these tables have, and what differs."""
        live, count, found = self._place.live, 0, list[str]()
        self._fold.read([live.topic(table) for table in tables])
        with pinned(live.source.dsn) as source, pinned(live.replica.dsn) as replica:
            for table in tables:
                shape = describe(source, table)
                rows = table_rows(source, shape)
                count += len(rows)
                try:
                    differences = (
                        difference("topic", rows, topic_rows(self._fold.rows(live.topic(table)), shape), shape),
                        difference("replica", rows, table_rows(replica, shape), shape),
                    )
                except (FormError, psycopg.errors.UndefinedColumn) as error:
                    found.append(f"{table}: {error}")
                else:
                    found += [f"{table}: {each}" for each in differences if each is not None]
        return count, found
