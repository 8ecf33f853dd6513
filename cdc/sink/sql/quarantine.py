"""Rows that a replica table refuses: finds them in a batch, and keeps ``cdc_quarantined_row``, which names them.

The theory of operation is that of ``cdc.sink.postgres.quarantine``. What differs is how they are found. Not every
database has savepoints, so a trial is a transaction that is rolled back, and rows are applied in earnest only when it
is known which of their batch the table refuses.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from hashlib import sha256
from typing import Final, TypeAlias

import sqlalchemy as sa

from cdc.sink.rejections import RecordRejected, check_budget, tell_put_aside
from cdc.sink.sql.batch import RowBatch
from cdc.sink.sql.control import microseconds, quarantined_row
from cdc.sink.sql.dialect import SqlDialect

_KEYS_AT_ONCE: Final = 500

Trial: TypeAlias = Callable[[RowBatch], str | None]
"""Applies a batch and undoes it. Returns why the table refuses it; None if it does not."""


class SqlQuarantine:
    """Keeps ``cdc_quarantined_row`` for one sink, within the open transaction.

    Args:
        connection: a connection to the replica; the caller begins and commits.
        dialect: of the replica.
        name: the sink's name.
        budgets: how many keys of a table may be in quarantine, by ``namespace.table``; other tables have no quarantine.
    """

    def __init__(self, connection: sa.Connection, dialect: SqlDialect, name: str, budgets: Mapping[str, int]) -> None:
        self._connection = connection
        self._dialect = dialect
        self._name = name
        self._budgets = budgets
        self._kept: dict[str, set[str]] = {}
        self._enter = dialect.upsert(quarantined_row, ["name", "topic", "key_digest"])

    @property
    def topics(self) -> Collection[str]:
        """The topics whose tables lack rows."""
        return self._kept.keys()

    def budget(self, table: str) -> int:
        """Returns how many keys of a table may be in quarantine; 0 if it has none."""
        return self._budgets.get(table, 0)

    def read(self) -> None:
        """Reads what the replica has recorded: at the beginning, and after a rollback."""
        columns = quarantined_row.c
        found = self._connection.execute(
            sa.select(columns.topic, columns.key_digest).where(columns.name == self._name)
        ).all()
        self._kept.clear()
        for topic, digest in found:
            self._kept.setdefault(topic, set()).add(digest)

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
        place = record.partition, record.offset
        texts = _storable(key.decode(errors="replace")), *place, _storable(refused.reason), microseconds(time.time())
        digest = sha256(key).hexdigest()
        self._dialect.load(self._connection, self._enter, [(self._name, refused.topic, digest, *texts)])
        kept.add(digest)
        self._kept[refused.topic] = kept
        tell_put_aside(table, key, refused, kept=len(kept))

    def leave(self, topic: str, keys: Iterable[bytes]) -> None:
        """Ends the entries of these keys, of those that have one: newer records of them are applied now."""
        kept = self._kept.get(topic)
        if kept is None or not (gone := kept.intersection(sha256(each).hexdigest() for each in keys)):
            return
        digests = [*gone]
        for first in range(0, len(digests), _KEYS_AT_ONCE):
            self._delete(topic, quarantined_row.c.key_digest.in_(digests[first : first + _KEYS_AT_ONCE]))
        kept -= gone
        if not kept:
            del self._kept[topic]

    def clear(self, topic: str) -> None:
        """Ends all entries of a topic, whose records are read from the first one again, or whose table was emptied."""
        if self._kept.pop(topic, None) is not None:
            self._delete(topic)

    def _delete(self, topic: str, *which: sa.ColumnElement[bool]) -> None:
        columns = quarantined_row.c
        self._connection.execute(
            sa.delete(quarantined_row).where(columns.name == self._name, columns.topic == topic, *which)
        )


def refused_of(batch: RowBatch, most: int, trial: Trial) -> dict[int, str]:
    """Finds the records that the table refuses after those before them which it takes.

    Args:
        batch: applied in the order of its records.
        most: with one more than so many, it is enough.
        trial: applies a batch and undoes it.

    Returns:
        Why each is refused, by its place in the batch.
    """
    suspects = _refused_alone(batch, most, trial) if most else []
    reasons: dict[int, str] = {}
    low = 0
    while len(reasons) <= most and (found := _refused_first(batch, low, reasons, suspects, trial)) is not None:
        place, reason = found
        reasons[place] = reason
        low = place + 1
    return reasons


def _refused_first(
    batch: RowBatch, low: int, left_out: Collection[int], suspects: Iterable[int], trial: Trial
) -> tuple[int, str] | None:
    """Returns the place of the first record that is refused after those before it, and why; None if none is.

    Args:
        batch: applied without ``left_out``.
        low: so many records are taken.
        left_out: places.
        suspects: places to look at first, in ascending order: another record may be at fault, or none.
        trial: as for ``refused_of``.
    """

    def refusal(count: int) -> str | None:
        return trial(batch.only(place for place in range(count) if place not in left_out))

    high = len(batch)
    for place in suspects:
        if place < low:
            continue
        if (reason := refusal(place + 1)) is not None:
            if (earlier := refusal(place)) is None:
                return place, reason
            high, reason = place, earlier
            break
        low = place + 1
    else:
        if (reason := refusal(high)) is None:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        if (told := refusal(middle)) is None:
            low = middle
        else:
            high, reason = middle, told
    return high - 1, reason


def _refused_alone(batch: RowBatch, most: int, trial: Trial) -> list[int]:
    """Returns the places of records that the table refuses even alone; with more than ``most``, not of all of them."""
    found: list[int] = []
    ranges = [(0, len(batch))]
    while ranges and len(found) <= most:
        low, high = ranges.pop()
        if trial(batch.only(range(low, high))) is None:
            continue
        if high - low == 1:
            found.append(low)
        else:
            middle = (low + high) // 2
            ranges += [(middle, high), (low, middle)]
    return found


def _storable(text: str) -> str:
    """Returns a text as every database takes it."""
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\0")
