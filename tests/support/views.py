"""A view as tests look at it: everything a store holds of a table, checked against itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import orjson

from cdc.base.lsn import LSN
from cdc.views.store.port import Store, StoreSnapshot
from cdc.views.table.facts import Facts, TableFacts, Unreadable, decode_unreadable, read_facts
from cdc.views.table.keys import index_prefix, pointed
from cdc.views.table.rows import StoredRow, unpack

_PAGE: Final = 10_000


@dataclass(frozen=True)
class Seen:
    """A table as one commit left it.

    Attributes:
        facts: of all tables.
        table: this one's.
        rows: by key text.
        unreadable: what is no row, by its order.
    """

    facts: Facts
    table: TableFacts
    rows: dict[bytes, StoredRow]
    unreadable: dict[bytes, Unreadable]

    @property
    def lsn(self) -> LSN:
        """At which exact tables are what the source held."""
        assert self.facts.view is not None
        return self.facts.view.position

    def values(self) -> list[dict[str, Any]]:
        """The rows, in the order of their keys."""
        return [orjson.loads(row.row) for row in self.rows.values()]


def look(store: Store, table: str) -> Seen | None:
    """A table, whose spaces agree with one another; None when the view does not know it."""
    return store.read(lambda snapshot: _look(snapshot, table))


def facts_of(store: Store) -> Facts:
    """All facts."""
    return store.read(read_facts)


def state_of(store: Store, table: str) -> str:
    """What its answers are worth; empty when it is not known."""
    found = facts_of(store).tables.get(table)
    return "" if found is None else found.state


def _look(snapshot: StoreSnapshot, name: str) -> Seen | None:
    facts = read_facts(snapshot)
    table = facts.tables.get(name)
    if table is None:
        return None
    items = _all(snapshot, table.rows())
    rows = {row.key: row for row in (unpack(value) for _, value in items)}
    assert len(rows) == len(items) == snapshot.count(table.rows()), f"{name}: keys are there twice"
    _check_indexes(snapshot, table, dict(items))
    found = {order: decode_unreadable(value) for order, value in _all(snapshot, table.no_rows())}
    assert len(found) == table.unreadable, f"{name}: {len(found)} records are no rows, facts say {table.unreadable}"
    return Seen(facts, table, rows, found)


def _check_indexes(snapshot: StoreSnapshot, table: TableFacts, rows: dict[bytes, bytes]) -> None:
    """Each row has its entry in each index, which leads to it, and there are no others: by brute force."""
    types = {column.name: column.sql_type for column in table.columns}
    for place, columns in enumerate(table.indexes):
        entries = _all(snapshot, table.index(place))
        assert len(entries) == snapshot.count(table.index(place))
        assert sorted(pointed(value).order for _, value in entries) == sorted(rows), f"{table.name} by {columns}"
        for order, value in entries:
            row = orjson.loads(unpack(rows[pointed(value).order]).row)
            floats = [types.get(column, "") in ("float4", "float8", "real", "double precision") for column in columns]
            values = [row.get(column) for column in columns]
            assert order.startswith(index_prefix(values, floats)), (columns, row)


def _all(snapshot: StoreSnapshot, space: str) -> list[tuple[bytes, bytes]]:
    found: list[tuple[bytes, bytes]] = []
    start = b""
    while page := snapshot.scan(space, start, limit=_PAGE):
        found += [(item.key.order, item.value) for item in page]
        start = page[-1].key.order + b"\0"
    return found
