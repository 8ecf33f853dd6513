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


class RowPlace(NamedTuple):
    """A change's place in its transaction: its ordinal, and how many logical messages are out before it."""

    seq: int
    messages: int


@dataclass(slots=True)
class _UnreadRow:
    """A row that must be read again, with its record, which has no value yet."""

    standing: StreamStanding
    place: RowPlace
    record: Ready
    table: TableEncoder
    row: Row
    xid: int
    old_key: bytes | None
    answer: Answer | None = None

    def records(self) -> Iterator[Ready]:
        """Yields what goes out: nothing for an unreadable row, and only the old key's tombstone for one that left."""
        table, answer = self.table, self.answer
        if answer is Unfilled.UNREADABLE:
            return
        topic, key, _, header, old = self.record
        if self.old_key is not None:
            yield topic, self.old_key, None, header, old
        if isinstance(answer, Filled):
            if nulls := table.null_documents(answer.row):
                header = with_null_documents(header, nulls)
            yield topic, key, table.value(answer.row), newer(header) if answer.is_newer else header, old

    @property
    def keys(self) -> tuple[bytes, ...]:
        key = self.record[1]
        return (key,) if self.old_key is None else (self.old_key, key)


class Held:
    """Holds back rows that must be read again, and the records after them, in order; empty most of the time."""

    def __init__(self) -> None:
        self._held: deque[_UnreadRow | Ready] = deque()
        self._asked: list[_UnreadRow] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._held)

    @property
    def is_full(self) -> bool:
        """Whether some of it must go out before more may be added."""
        return len(self._held) >= MAX_HELD or self._bytes >= MAX_HELD_BYTES

    @property
    def first(self) -> tuple[StreamStanding, RowPlace]:
        """The stream's position before the transaction of the first row that is held, and that row's place in it."""
        first = self._held[0]
        assert isinstance(first, _UnreadRow)  # a record waits only for those before it
        return first.standing, first.place

    def add(self, record: Ready) -> None:
        """Add a record that only has to wait for those before it: there are some."""
        self._held.append(record)
        self._bytes += _size(record)

    def add_row(
        self,
        standing: StreamStanding,
        place: RowPlace,
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
            place: the change's place in the transaction.
            record: its record, still without a value.
            table: the table that the row belongs to.
            row: the row, as far as the stream sent it.
            xid: the 64-bit id of its transaction.
            old_key: the key that gets a tombstone at the same moment.
        """
        held = _UnreadRow(standing, place, record, table, row, xid, old_key)
        self._held.append(held)
        self._bytes += _size(held)

    def rows(self) -> Rows | None:
        """Returns what to read again first: all held rows of the table that waits longest; None when none waits."""
        unread = [each for each in self._held if isinstance(each, _UnreadRow) and each.answer is None]
        if not unread:
            return None
        table = unread[0].table
        self._asked = asked = [each for each in unread if each.table is table]
        return Rows(
            table,
            tuple(each.row for each in asked),
            tuple(each.xid for each in asked),
            tuple(each.keys for each in asked),
        )

    def answer(self, answers: Sequence[Answer]) -> None:
        """Note what became of the first rows that were asked for."""
        for each, answer in zip(self._asked, answers, strict=False):
            each.answer = answer
        self._asked = []

    def release(self) -> list[Ready]:
        """Returns what need not wait any more, in order."""
        ready: list[Ready] = []
        held = self._held
        while held:
            first = held[0]
            if isinstance(first, _UnreadRow):
                if first.answer is None:
                    break
                ready += first.records()
            else:
                ready.append(first)
            self._bytes -= _size(held.popleft())
        return ready


def _size(held: _UnreadRow | Ready) -> int:
    """Returns roughly how many bytes are held: of the value, or of the cells that the stream sent."""
    if isinstance(held, _UnreadRow):
        return sum(len(cell) for cell in held.row if isinstance(cell, bytes))
    return len(held[2] or b"")
