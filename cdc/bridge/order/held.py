"""Changes that wait in line. From the first one whose row must be read again, everything is kept in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from cdc.base.lsn import LSN
from cdc.bridge.encode import TableEncoder
from cdc.bridge.order.needs import Answer, Filled, Rows, Unfilled
from cdc.contract.change import Row
from cdc.contract.header import newer, with_null_documents
from cdc.contract.record import Ready

MAX_HELD: Final = 2_000
MAX_HELD_BYTES: Final = 8 * 1024 * 1024
"""Limits of what is held: they bound memory, and how much must be read again at once."""


class StreamStanding(NamedTuple):
    """The position of the stream when a transaction began: everything before ``complete`` was taken."""

    complete: LSN
    commit_ts: int
    final_lsn: LSN


@dataclass(slots=True)
class _Change:
    """A record that waits, or, with ``table``, a row that must be read again first."""

    standing: StreamStanding
    seq: int
    record: Ready
    table: TableEncoder | None = None
    row: Row = ()
    xid: int = 0
    old_key: bytes | None = None
    answer: Answer | None = None

    @property
    def waits(self) -> bool:
        return self.table is not None and self.answer is None

    def records(self) -> Iterator[Ready]:
        """Yields what goes out: nothing for an unreadable row, and only the old key's tombstone for one that left."""
        table, answer = self.table, self.answer
        if table is None:
            yield self.record
            return
        if answer is Unfilled.UNREADABLE:
            return
        topic, key, _, header, old = self.record
        if self.old_key is not None:
            yield topic, self.old_key, None, header, old
        if isinstance(answer, Filled):
            if nulls := table.null_documents(answer.row):
                header = with_null_documents(header, nulls)
            yield topic, key, table.value(answer.row), newer(header) if answer.is_newer else header, old


class Held:
    """Holds back what waits, in order; empty most of the time."""

    def __init__(self) -> None:
        self._changes: deque[_Change] = deque()
        self._asked: list[_Change] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._changes)

    @property
    def is_full(self) -> bool:
        """Whether some of it must go out before more may be added."""
        return len(self._changes) >= MAX_HELD or self._bytes >= MAX_HELD_BYTES

    @property
    def first(self) -> tuple[StreamStanding, int]:
        """The stream's position before the transaction of the first held change, and that change's ordinal."""
        change = self._changes[0]
        return change.standing, change.seq

    def add(self, standing: StreamStanding, seq: int, record: Ready) -> None:
        """Add a record that only has to wait for those before it."""
        self._changes.append(_Change(standing, seq, record))
        self._bytes += len(record[2] or b"")

    def add_row(
        self,
        standing: StreamStanding,
        seq: int,
        record: Ready,
        *,
        table: TableEncoder,
        row: Row,
        xid: int,
        old_key: bytes | None,
    ) -> None:
        """Add a row that must be read again.

        Args:
            standing: where the stream stood before its transaction.
            seq: the change's ordinal.
            record: its record, still without a value.
            table: the table that the row belongs to.
            row: the row, as far as the stream sent it.
            xid: the 64-bit id of its transaction.
            old_key: the key that gets a tombstone at the same moment.
        """
        self._changes.append(_Change(standing, seq, record, table, row, xid, old_key))
        self._bytes += sum(len(cell) for cell in row if isinstance(cell, bytes))

    def rows(self) -> Rows | None:
        """Returns what to read again first: all held rows of the table that waits longest; None when none waits."""
        waiting = [change for change in self._changes if change.waits]
        if not waiting:
            return None
        table = waiting[0].table
        assert table is not None
        self._asked = asked = [change for change in waiting if change.table is table]
        return Rows(
            table,
            tuple(change.row for change in asked),
            tuple(change.xid for change in asked),
            tuple(_keys(change) for change in asked),
        )

    def answer(self, answers: Sequence[Answer]) -> None:
        """Note what became of the first rows that were asked for."""
        for change, answer in zip(self._asked, answers, strict=False):
            change.answer = answer
        self._asked = []

    def release(self) -> list[Ready]:
        """Returns what need not wait any more, in order."""
        ready: list[Ready] = []
        changes = self._changes
        while changes and not changes[0].waits:
            change = changes.popleft()
            self._bytes -= (
                len(change.record[2] or b"")
                if change.table is None
                else sum(len(cell) for cell in change.row if isinstance(cell, bytes))
            )
            ready += change.records()
        return ready


def _keys(change: _Change) -> tuple[bytes, ...]:
    key = change.record[1]
    return (key,) if change.old_key is None else (change.old_key, key)
