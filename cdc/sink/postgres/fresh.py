"""Copies rows with new keys straight into tables that were empty when the session began to fill them.

A straight COPY is half the work of staging and upserting. A filter of fixed size, shared by all tables, tells which
keys are new. It sets one bit for each key, found by the key's hash. Two keys may share a bit; then a new row is staged,
which is slower and always right. As the filter fills up, fewer rows are copied straight. Nothing else changes.

Correctness depends neither on the filter nor on the table being empty. The unique index rejects a key that exists
already, for instance in a row that a person inserted. The whole batch is then staged, as it is after any other error of
a straight COPY. A transaction that is rolled back leaves keys in the filter that the table does not have; the sink
stages their rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import psycopg

from cdc.base.compiled import twin
from cdc.contract.ports import StoredRecord
from cdc.sink.replica import ReplicaName

_BITS: Final = 1 << 27
"""16 MiB: of ten million new rows, one in thirty is staged needlessly."""

_WORTH_A_COPY: Final = 200
"""Fewer new rows than this are staged with the others: a COPY of their own would cost more than it saves."""

_IS_PLAIN: Final = """
SELECT relkind IN ('r', 'p') AND NOT relrowsecurity AND NOT relhasrules
FROM pg_catalog.pg_class WHERE oid = to_regclass(format('%%I.%%I', %s::text, %s::text))
"""
"""A table with row-level security refuses COPY, and rules do not apply to it."""


class FreshTables:
    """The tables that were empty when the session took them up, by topic, and the keys written to them since."""

    def __init__(self) -> None:
        self._topics: set[str] = set()
        self._bits = bytearray()
        self._split = split if (module := twin("cdc.sink.postgres._fresh")) is None else module.split

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    def add(self, topic: str) -> None:
        """Notes that a topic's table is empty."""
        self._topics.add(topic)
        self._bits = self._bits or bytearray(_BITS // 8)

    def discard(self, topic: str) -> None:
        """Stages all rows of a topic's table from now on."""
        self._topics.discard(topic)

    def split(
        self, topic: str, upserts: Sequence[StoredRecord]
    ) -> tuple[Sequence[StoredRecord], Sequence[StoredRecord]]:
        """Splits rows into those with new keys and the others, and notes that the table has all of these keys now.

        Args:
            topic: the table's topic.
            upserts: at most one per key.
        """
        if topic not in self._topics:
            return (), upserts
        new, others = self._split(self._bits, hash(topic), upserts)
        if others and len(new) < _WORTH_A_COPY:
            return (), upserts
        return new, others


def split(
    bits: bytearray, salt: int, upserts: Sequence[StoredRecord]
) -> tuple[Sequence[StoredRecord], Sequence[StoredRecord]]:
    """Splits records into those whose keys have no bit yet, and the others. Sets the missing bits.

    Args:
        bits: their number is a power of two.
        salt: keeps the keys of several tables apart.
        upserts: both results keep their order.
    """
    new, others, count = [], [], 8 * len(bits)
    for record in upserts:
        place = (hash(record.key) ^ salt) % count
        byte, bit = place >> 3, 1 << (place & 7)
        if bits[byte] & bit:
            others.append(record)
        else:
            bits[byte] |= bit
            new.append(record)
    return new, others


def is_plain(session: psycopg.Connection[Any], name: ReplicaName) -> bool:
    """Returns whether a COPY into the replica table does what an INSERT does."""
    return session.execute(_IS_PLAIN, [*name]).fetchone() == (True,)
