"""A view that a test fills by hand, as the feed does."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import orjson
from msgspec.structs import replace

from cdc.views.store.port import Item, Key, Store, Transaction
from cdc.views.table import journal
from cdc.views.table.facts import KeyColumn, TableFacts, Unreadable, ViewFacts, encode, fact_key
from cdc.views.table.journal import Changed, JournalEntry
from cdc.views.table.keys import index_order, order_of, pointer
from cdc.views.table.rows import pack

ITEMS = TableFacts(
    number=1,
    name="public.items",
    topic="x.public.items",
    key=(KeyColumn("region", "text"), KeyColumn("id", "int4")),
    columns=(KeyColumn("region", "text"), KeyColumn("id", "int4"), KeyColumn("color", "text")),
    indexes=(("color",), ("color", "id")),
    state="exact",
    generation=1,
)
NAMES = TableFacts(
    number=2, name="names", topic="names", key_kind="string", state="exact", generation=1
)  # of another program
NOW = time.time() + 3600  # or a slow run would find the view behind
VIEW = ViewFacts(name="shop", feed="deployment", store_id="first", lsn=100, source="7,1,5", caught_up_at=NOW)


class Filled:
    """Writes a store."""

    def __init__(self, store: Store, *tables: TableFacts, view: ViewFacts = VIEW) -> None:
        self.store = store
        self.tables = {table.name: table for table in tables or (ITEMS,)}
        self.view = view
        assert store.lock()

    def put(self, *rows: Mapping[str, Any], table: TableFacts = ITEMS, **facts: Any) -> int:
        """Rows; ``facts`` of the view change with them."""
        return self._commit(table, {_key(table, row): row for row in rows}, **facts)

    def delete(self, *keys: Mapping[str, Any], table: TableFacts = ITEMS) -> int:
        return self._commit(table, dict.fromkeys((_key(table, key) for key in keys), None))

    def put_as(self, key: bytes, table: TableFacts) -> int:
        """A row whose record has this key."""
        order = order_of([*orjson.loads(key).values()], _floats(table))
        transaction = self.store.begin()
        transaction.put(table.rows(), [Item(Key(order, key), pack(key, key, 0, 0, b"null", 0))])
        return self._end(transaction)

    def reset(self, table: TableFacts = ITEMS) -> int:
        """The table was read anew, and has no rows any more."""
        transaction = self.store.begin()
        old = self.tables[table.name]
        transaction.drop(old.rows())
        self.tables[table.name] = replace(old, generation=old.generation + 1)
        journal.write(transaction, JournalEntry(reset=(table.name,)))
        return self._end(transaction)

    def cannot_read(self, key: Mapping[str, Any], reason: str) -> int:
        transaction = self.store.begin()
        self.tables[ITEMS.name] = replace(self.tables[ITEMS.name], unreadable=1, state="degraded", reason="1 record")
        place = _key(ITEMS, key)
        transaction.delete(ITEMS.rows(), [place])
        transaction.put(ITEMS.no_rows(), [Item(place, encode(Unreadable(3, 17, place.text.decode(), reason)))])
        return self._end(transaction)

    def know(self, table: TableFacts | None = None, **facts: Any) -> int:
        """Facts change, and no row."""
        if table is not None:
            self.tables[table.name] = table
        self.view = replace(self.view, **facts)
        return self._end(self.store.begin())

    def _commit(self, table: TableFacts, rows: Mapping[Key, Mapping[str, Any] | None], **facts: Any) -> int:
        self.view = replace(self.view, **facts)
        known = self.tables[table.name]
        transaction = self.store.begin()
        for key, row in rows.items():
            for place, columns in enumerate(known.indexes):
                self._index(transaction, known, place, columns, key, row)
            if row is None:
                transaction.delete(known.rows(), [key])
            else:
                stored = pack(_json_key(known, key), orjson.dumps(row), 3, 17, b'"0/64"', 5)
                transaction.put(known.rows(), [Item(key, stored)])
        journal.write(transaction, JournalEntry(keys={table.name: [Changed(key.order, key.text) for key in rows]}))
        return self._end(transaction)

    def _index(
        self,
        transaction: Transaction,
        table: TableFacts,
        place: int,
        columns: tuple[str, ...],
        key: Key,
        row: Mapping[str, Any] | None,
    ) -> None:
        """Rows of these tests keep their colors."""
        if row is not None:
            order = index_order([row[name] for name in columns], key.order)
            transaction.put(table.index(place), [Item(Key(order, order), pointer(key))])

    def _end(self, transaction: Transaction) -> int:
        transaction.put("facts", [Item(fact_key("view"), encode(self.view))])
        transaction.put("facts", [Item(fact_key("table", name), encode(each)) for name, each in self.tables.items()])
        transaction.put("facts", [Item(fact_key("offsets", ITEMS.topic), encode((5, 7)))])
        return transaction.commit()


def row(region: str, number: int, color: str = "red") -> dict[str, Any]:
    return {"region": region, "id": number, "color": color}


def _key(table: TableFacts, row: Mapping[str, Any]) -> Key:
    if table.key_kind == "string":
        return Key(order_of([row["key"]]), row["key"].encode())
    values = {column.name: row[column.name] for column in table.key}
    return Key(order_of([*values.values()], _floats(table)), orjson.dumps(values))


def _floats(table: TableFacts) -> list[bool]:
    return [column.sql_type == "float8" for column in table.key]


def _json_key(table: TableFacts, key: Key) -> bytes:
    return orjson.dumps(key.text.decode()) if table.key_kind == "string" else key.text
