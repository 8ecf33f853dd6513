"""Rows that a replica table refuses: it goes on without them, and ``cdc.quarantined_row`` names them.

Theory of operation. Of a key, the replica table holds the row of its newest record, or the key is in quarantine, or it
was deleted. So when a record is put aside, the row of its key is deleted with it, or an older value would pass for the
newest. Whatever record of that key comes next, a row or a tombstone, ends the entry. All of that is part of the
transaction that applies the rows and moves the offsets. A table that is read from the first record again begins without
entries, since each of its records is judged again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from hashlib import sha256
from typing import Any, Final

import psycopg

from cdc.sink.rejections import RecordRejected, check_budget, tell_put_aside

_ENTER: Final = """
    INSERT INTO cdc.quarantined_row (name, topic, key_digest, key, partition, record_offset, reason)
    VALUES (%s, %s, %s, %s, %s, %s, %s)
"""
_LEAVE: Final = "DELETE FROM cdc.quarantined_row WHERE name = %s AND topic = %s AND key_digest = ANY(%s::bytea[])"
_CLEAR: Final = "DELETE FROM cdc.quarantined_row WHERE name = %s AND topic = %s"
_READ: Final = "SELECT topic, key FROM cdc.quarantined_row WHERE name = %s"


class ReplicaQuarantine:
    """Keeps ``cdc.quarantined_row`` for one sink, within the open transaction.

    Args:
        session: of the replica.
        name: the sink's name.
        budgets: how many keys of a table may be in quarantine, by ``namespace.table``; other tables have no quarantine.
    """

    def __init__(self, session: psycopg.Connection[Any], name: str, budgets: Mapping[str, int]) -> None:
        self._session = session
        self._name = name
        self._budgets = budgets
        self._kept: dict[str, set[bytes]] = {}
        for topic, key in session.execute(_READ, [name]).fetchall():
            self._kept.setdefault(topic, set()).add(key)

    @property
    def topics(self) -> Collection[str]:
        """The topics whose tables lack rows."""
        return self._kept.keys()

    def budget(self, table: str) -> int:
        """Returns how many keys of a table may be in quarantine; 0 if it has none."""
        return self._budgets.get(table, 0)

    def enter(self, table: str, key: bytes, refused: RecordRejected) -> None:
        """Put a record aside.

        Args:
            table: ``namespace.table``.
            key: the record's key in JSON.
            refused: why the replica table does not take it.

        Raises:
            RecordRejected: as many keys of the table are in quarantine as may be.
        """
        kept = self._kept.get(refused.topic, set())
        record = check_budget(refused, kept=len(kept), budget=self.budget(table))
        reason = refused.reason
        if self._session.info.parameter_status("server_encoding") != "UTF8":  # or naming the record fails as it did
            reason = reason.encode("ascii", "backslashreplace").decode()
        digest = sha256(key).digest()
        place = record.partition, record.offset
        self._session.execute(_ENTER, [self._name, refused.topic, digest, key, *place, reason.replace("\0", "\\0")])
        kept.add(key)
        self._kept[refused.topic] = kept
        tell_put_aside(table, key, refused, kept=len(kept))

    def leave(self, topic: str, keys: Iterable[bytes]) -> None:
        """Ends the entries of these keys, of those that have one: newer records of them are applied now."""
        kept = self._kept.get(topic)
        if kept is None or not (gone := kept.intersection(keys)):
            return
        self._session.execute(_LEAVE, [self._name, topic, [sha256(each).digest() for each in gone]])
        kept -= gone
        if not kept:
            del self._kept[topic]

    def clear(self, topic: str) -> None:
        """Ends all entries of a topic, whose records are read from the first one again."""
        if self._kept.pop(topic, None) is not None:
            self._session.execute(_CLEAR, [self._name, topic])
