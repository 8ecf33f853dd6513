"""Keys that PostgreSQL calls equal and prints differently: ``1`` and ``1.0`` of a ``numeric`` without a scale. Pure.

Each spelling is a key of its own in Kafka and so in the store: a tombstone for one must not delete the row of the
other. But a person who asks for one spelling means the value. The source has at most one row with that value, so the
lookup tries its spellings. As texts, the shortest spelling sorts first, and each longer one after all shorter ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from cdc.contract.formats.canonical import Identity, TypeReading
from cdc.views.store.port import Key, StoreSnapshot
from cdc.views.table.keys import Value, order_of


def equal_place(
    snapshot: StoreSnapshot,
    spaces: Sequence[str],
    readings: Sequence[TypeReading],
    key: Sequence[Value],
    floats: Sequence[bool],
) -> Key | None:
    """Finds the entry of an equal key.

    Args:
        snapshot: of the store.
        spaces: where to look, one after the other.
        readings: how the types of the key's columns are read.
        key: a value for each of them.
        floats: which of them are floating point.

    Returns:
        The key of the entry; None when none of the spaces has one.
    """
    for space in spaces:
        for values in _spelled(snapshot, space, readings, key, floats, ()):
            order = order_of(values, floats)
            if snapshot.scan(space, order, order + b"\0", 1):
                return Key(order, b"")
    return None


def is_spelled_otherwise(value: Value, reading: TypeReading) -> bool:
    """Whether PostgreSQL may print an equal value differently."""
    if reading.identity is not Identity.VALUE:
        return False
    return isinstance(value, str) or value == 0


def first_of_equals(value: Value, reading: TypeReading) -> Value:
    """The one of a value's spellings that sorts first."""
    if not is_spelled_otherwise(value, reading):
        return value
    return reading.normal(value) if isinstance(value, str) else -0.0


def last_of_equals(text: str, reading: TypeReading) -> str:
    """A text that sorts after all spellings of a value that a key has room for, and before all other numbers."""
    longest = reading.normal(text)
    for _ in range(_LONGEST):
        longest = reading.longer(longest)
    return longest


_LONGEST: Final = 200
"""How many zeros may follow the last significant digit. PostgreSQL accepts 16,383, but nobody writes so many."""


def _spelled(
    snapshot: StoreSnapshot,
    space: str,
    readings: Sequence[TypeReading],
    key: Sequence[Value],
    floats: Sequence[bool],
    chosen: tuple[Value, ...],
) -> Iterator[tuple[Value, ...]]:
    """Yields keys that may exist, column by column. A spelling is tried only if some key has it after ``chosen``."""
    place = len(chosen)
    if place == len(key):
        yield chosen
        return
    value, reading = key[place], readings[place]
    if not is_spelled_otherwise(value, reading):
        found: Iterator[Value] = iter((value,))
    elif isinstance(value, str):
        found = _texts(snapshot, space, reading, value, floats, chosen)
    else:
        found = iter((0.0, -0.0))
    for each in found:
        yield from _spelled(snapshot, space, readings, key, floats, (*chosen, each))


def _texts(
    snapshot: StoreSnapshot,
    space: str,
    reading: TypeReading,
    value: str,
    floats: Sequence[bool],
    chosen: tuple[Value, ...],
) -> Iterator[str]:
    head = order_of(chosen, floats)
    wanted = reading.normal(value)
    while True:
        start = order_of((*chosen, wanted), floats)
        items = snapshot.scan(space, start, limit=1)
        tag = start[len(head) : len(head) + 1]
        if not items or not items[0].key.order.startswith(head + tag):
            return
        there = items[0].key.order[len(head) + 1 :].partition(b"\0")[0]
        if there == wanted.encode():
            yield wanted
            wanted = reading.longer(wanted)
            continue
        while wanted.encode() < there:
            if len(wanted) > len(there):
                return  # every longer spelling begins with this one, so it sorts before the key as well
            wanted = reading.longer(wanted)
