"""Keys that are equal to PostgreSQL and printed differently: ``1`` and ``1.0`` of a ``numeric`` without a scale. Pure.

Each spelling is a key of its own to Kafka, and so it is in the store: a tombstone of one must not take the row of the
other away. But who asks for one of them means the value. The source has at most one row of it, under whichever
spelling, and that is looked for: in the order of texts the shortest spelling of a value is the first, and each longer
one is behind the one before.
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
    """Where the entry of an equal key stands.

    Args:
        snapshot: of the store.
        spaces: where to look, one after the other.
        readings: of the key's columns.
        key: a value for each of them.
        floats: which of them are floating point.

    Returns:
        None when there is none in any of the spaces.
    """
    for space in spaces:
        for values in _spelled(snapshot, space, readings, key, floats, ()):
            order = order_of(values, floats)
            if snapshot.scan(space, order, order + b"\0", 1):
                return Key(order, b"")
    return None


def is_spelled_otherwise(value: Value, reading: TypeReading) -> bool:
    """Whether an equal value may be printed differently."""
    if reading.identity is not Identity.VALUE:
        return False
    return isinstance(value, str) or value == 0


def first_of_equals(value: Value, reading: TypeReading) -> Value:
    """Of the equal values, the one whose key stands first."""
    if not is_spelled_otherwise(value, reading):
        return value
    return reading.normal(value) if isinstance(value, str) else -0.0


def last_of_equals(text: str, reading: TypeReading) -> str:
    """A text behind all spellings of a value that a key has room for, and before all other values that numbers have."""
    longest = reading.normal(text)
    for _ in range(_LONGEST):
        longest = reading.longer(longest)
    return longest


_LONGEST: Final = 200
"""Zeros behind the last digit that counts. PostgreSQL takes 16,383 of them, and nobody writes so many."""


def _spelled(
    snapshot: StoreSnapshot,
    space: str,
    readings: Sequence[TypeReading],
    key: Sequence[Value],
    floats: Sequence[bool],
    chosen: tuple[Value, ...],
) -> Iterator[tuple[Value, ...]]:
    """Keys that may be there, column by column: of each, only spellings that some key behind ``chosen`` has."""
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
                return  # every longer one begins with it, and so stands before this key, too
            wanted = reading.longer(wanted)
