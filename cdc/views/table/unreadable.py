"""Records that are not rows: looked up for certain keys, or listed for a table. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cdc.views.store.port import Item, Key, StoreSnapshot
from cdc.views.table.answers import ChangedRow
from cdc.views.table.facts import SHOWN_KEY, TableFacts, Unreadable, decode_unreadable
from cdc.views.table.keys import END_OF_KEYS
from cdc.views.table.table_keys import TableKeys


def unreadable_of(
    snapshot: StoreSnapshot, table: TableFacts, places: Sequence[Key], stored: Sequence[bytes | None]
) -> Mapping[bytes, Unreadable]:
    """The records that are not rows, of those keys that have no row; by order."""
    if not table.unreadable:
        return {}
    missing = [place for place, value in zip(places, stored, strict=True) if value is None]
    found = entries(snapshot, table.no_rows(), missing) if missing else []
    return {place.order: decode_unreadable(raw) for place, raw in zip(missing, found, strict=True) if raw is not None}


def unreadable_keys(
    snapshot: StoreSnapshot, table: TableFacts, keys: TableKeys, bounds: tuple[bytes, bytes], limit: int
) -> list[ChangedRow]:
    """The keys between two orders whose newest record is not a row, in order."""
    low, high = bounds
    if not table.unreadable:
        return []
    found = snapshot.scan(table.no_rows(), low, min(high, END_OF_KEYS), limit)
    return [_told(table, keys, each) for each in found]


def _told(table: TableFacts, keys: TableKeys, item: Item) -> ChangedRow:
    record = decode_unreadable(item.value)
    text = item.key.text
    if not text and len(record.key) < SHOWN_KEY and "\ufffd" not in record.key:  # otherwise it is not the whole key
        text = record.key.encode()
    return ChangedRow(table.name, keys.as_json(text) if text else b"null", None, item.key.order, record)


def entries(snapshot: StoreSnapshot, space: str, places: Sequence[Key]) -> Sequence[bytes | None]:
    """Reads entries. A key whose text is not known is looked up by its order, which every store can scan."""
    for place in places:
        if not place.text:
            break
    else:
        return snapshot.get(space, places)
    found = [snapshot.scan(space, place.order, place.order + b"\0", 1) for place in places]
    return [items[0].value if items else None for items in found]
