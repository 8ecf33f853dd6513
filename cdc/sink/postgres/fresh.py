"""Tables that were empty when the session began to fill them: rows with keys that are new there need no upsert.

Such rows are copied straight into the table, at half of the server's work. Which keys are new is told by a filter of
fixed size, for all tables together: a bit for each key that was given out, found by the key's hash. Two keys may have
the same bit; then a new row goes by way of staging, which is never wrong. So the fuller the filter, the fewer rows go
straight, and nothing else changes.

Nothing rests on the filter, nor on the table being empty: the unique index refuses a key that is there (a person's row,
for instance), and then the whole batch goes by way of staging, as it does for whatever else a straight COPY stumbles
over. A transaction that is rolled back leaves keys in the filter that the table does not have; those are staged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import psycopg

from cdc.base.compiled import twin
from cdc.contract.ports import StoredRecord
from cdc.sink.postgres.naming import ReplicaName

_BITS: Final = 1 << 27
"""16 MiB: of ten million rows, one in thirty is staged without need."""

_WORTH_A_COPY: Final = 200
"""Fewer new rows than this go with those that are staged anyway: a statement of their own costs more than it spares."""

_IS_PLAIN: Final = """
SELECT relkind IN ('r', 'p') AND NOT relrowsecurity AND NOT relhasrules
FROM pg_catalog.pg_class WHERE oid = to_regclass(format('%%I.%%I', %s::text, %s::text))
"""
"""With row-level security COPY is refused, and rules do not see it."""


class FreshTables:
    """The tables of a session that were empty, by topic, and the keys that went into them since."""

    def __init__(self) -> None:
        self._topics: set[str] = set()
        self._bits = bytearray()
        self._split = split if (module := twin("cdc.sink.postgres._fresh")) is None else module.split

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    def add(self, topic: str) -> None:
        """Its table is empty."""
        self._topics.add(topic)
        self._bits = self._bits or bytearray(_BITS // 8)

    def discard(self, topic: str) -> None:
        """From now on, all rows of its table are staged."""
        self._topics.discard(topic)

    def split(
        self, topic: str, upserts: Sequence[StoredRecord]
    ) -> tuple[Sequence[StoredRecord], Sequence[StoredRecord]]:
        """Rows with keys that the table had not before, and the others; from now on it has them all.

        Args:
            topic: of the table.
            upserts: one for each key.
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
    """Records whose keys have no bit yet, which they get, and the others.

    Args:
        bits: as many as a power of two.
        salt: tells apart the keys of several tables.
        upserts: in the order of both results.
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
    """Whether a COPY into the replica table does what an INSERT does."""
    return session.execute(_IS_PLAIN, [*name]).fetchone() == (True,)
