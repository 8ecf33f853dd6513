"""A view's rows and facts, written into a store as its feed would: for tests of what reads a view."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import orjson

from cdc.base.lsn import LSN
from cdc.views.store.port import Item, Key, Store
from cdc.views.table import journal
from cdc.views.table.facts import FACTS, KeyColumn, TableFacts, Unreadable, ViewFacts, encode, fact_key
from cdc.views.table.keys import KeyForm, index_order, pointer, raw_order
from cdc.views.table.rows import pack

Row = Mapping[str, Any]

USERS = "public.users"
STOCK = "public.stock"
EVENTS = "events"
SOURCE = "7301,1,16384"


def users(**facts: Any) -> TableFacts:
    """Key ``id``; an index on ``city``."""
    columns = (KeyColumn("id", "int8"), KeyColumn("name", "text"), KeyColumn("city", "text"))
    return TableFacts(
        **{
            "number": 1,
            "name": USERS,
            "topic": "shop.public.users",
            "key": columns[:1],
            "columns": columns,
            "indexes": (("city",),),
            "state": "exact",
            "generation": 1,
            **facts,
        }
    )


def stock(**facts: Any) -> TableFacts:
    """Key ``region``, ``item``."""
    columns = (KeyColumn("region", "text"), KeyColumn("item", "int4"), KeyColumn("amount", "numeric"))
    key = columns[:2]
    named = {"number": 2, "name": STOCK, "topic": "shop.public.stock", "key": key, "columns": columns}
    return TableFacts(**{**named, "state": "exact", "generation": 1, **facts})


def events(**facts: Any) -> TableFacts:
    """A topic of another program, with text as keys."""
    return TableFacts(
        **{
            "number": 3,
            "name": EVENTS,
            "topic": EVENTS,
            "key_kind": "string",
            "state": "exact",
            "generation": 1,
            **facts,
        }
    )


class PlantedView:
    """Writes into a store, which it locks.

    Args:
        store: an empty one.
        tables: that the view has.
        facts: of the view, beside the usual ones.
    """

    def __init__(self, store: Store, tables: Iterable[TableFacts] = (), **facts: Any) -> None:
        assert store.lock()
        self.store = store
        self.tables: dict[str, TableFacts] = {}
        self.lsn = 0x1000
        self._offset = 0
        usual = {"name": "shop", "feed": "deployment", "store_id": uuid.uuid4().hex, "lsn": self.lsn, "source": SOURCE}
        self.facts = ViewFacts(**{**usual, "caught_up_at": time.time(), **facts})
        with_tables = list(tables)
        self.say(*with_tables)

    def say(self, *tables: TableFacts, **view: Any) -> int:
        """Change facts; returns the version."""
        self.facts = msgspec.structs.replace(self.facts, **view)
        self.tables |= {each.name: each for each in tables}
        transaction = self.store.begin()
        transaction.put(FACTS, [Item(fact_key("view"), encode(self.facts))])
        transaction.put(FACTS, [Item(fact_key("table", each.name), encode(each)) for each in self.tables.values()])
        return transaction.commit()

    def put(self, table: str, *rows: Row) -> int:
        """Write rows, in one commit with an LSN of its own; returns the version."""
        return self._commit(table, [(self.key(table, row), orjson.dumps(row), row) for row in rows])

    def delete(self, table: str, *rows: Row) -> int:
        """Delete rows."""
        return self._commit(table, [(self.key(table, row), None, row) for row in rows])

    def put_raw(self, table: str, key: bytes, value: bytes) -> int:
        """Write any record as a row; of tables without key columns."""
        return self._commit(table, [(Key(raw_order(key), key), value, {})])

    def mark_unreadable(self, table: str, row: Row, reason: str) -> int:
        """The newest record of this key is no row."""
        facts = self.tables[table]
        key = self.key(table, row)
        transaction = self.store.begin()
        facts = self.tables[table] = msgspec.structs.replace(facts, unreadable=facts.unreadable + 1)
        transaction.put(FACTS, [Item(fact_key("table", table), encode(facts))])
        record = Unreadable(1, 4711, key.text.decode(), reason)
        transaction.delete(facts.rows(), [key])
        transaction.put(facts.no_rows(), [Item(key, encode(record))])
        journal.write(transaction, journal.JournalEntry(self.lsn, 0, {table: [journal.Changed(key.order, key.text)]}))
        return transaction.commit()

    def reset(self, table: str) -> int:
        """Tell followers that the table's rows come anew."""
        transaction = self.store.begin()
        journal.write(transaction, journal.JournalEntry(self.lsn, 0, {}, (table,)))
        return transaction.commit()

    def key(self, table: str, row: Row) -> Key:
        """Where a row stands."""
        facts = self.tables[table]
        names = [column.name for column in facts.key]
        text = orjson.dumps({name: row[name] for name in names})
        return Key(KeyForm([(column.name, column.sql_type) for column in facts.key]).order(text), text)

    def _commit(self, table: str, changes: Sequence[tuple[Key, bytes | None, Row]]) -> int:
        facts = self.tables[table]
        self.lsn += 0x10
        self.facts = msgspec.structs.replace(self.facts, lsn=self.lsn, caught_up_at=time.time())
        transaction = self.store.begin()
        for key, value, row in changes:
            self._offset += 1
            places = [
                (
                    facts.index(place),
                    Key(index_order([row.get(name) for name in columns], key.order), b"%d" % place + key.text),
                )
                for place, columns in enumerate(facts.indexes)
            ]
            if value is None:
                transaction.delete(facts.rows(), [key])
            else:
                lsn = b'"%b"' % str(LSN(self.lsn)).encode()
                key_text = key.text if facts.key_kind == "columns" else orjson.dumps(key.text.decode())
                transaction.put(
                    facts.rows(), [Item(key, pack(key_text, value, 0, self._offset, lsn, 1_795_190_486_566_123))]
                )
                for space, entry in places:
                    transaction.put(space, [Item(entry, pointer(key))])
        keys = [journal.Changed(key.order, key.text) for key, _, _ in changes]
        journal.write(transaction, journal.JournalEntry(self.lsn, 0, {table: keys}))
        transaction.put(FACTS, [Item(fact_key("view"), encode(self.facts))])
        return transaction.commit()
