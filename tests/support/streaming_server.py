"""A walsender in memory: random transactions with nested savepoints, sent as protocol 1 or in blocks as protocol 2.

What is sent depends on a history and on when memory is full. The history alone says what has to arrive.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from cdc.bridge.decode.walsender import silence

_HEADER = b"w" + bytes(24)
_XIDS = 1 << 32


def frame(message: bytes) -> bytes:
    """An XLogData frame."""
    return _HEADER + message


@dataclass
class Savepoint:
    """A subtransaction, or the transaction itself; its xid is given out when it first writes."""

    xid: int | None = None


@dataclass
class Transaction:
    """An open transaction: its savepoints from the outside in, and what was written and not rolled back."""

    nested: list[Savepoint] = field(default_factory=lambda: [Savepoint()])
    released: dict[int, list[int]] = field(default_factory=dict)  # by depth: xids that live and die with it
    changes: list[tuple[int, bytes]] = field(default_factory=list)
    unsent: list[tuple[int, bytes]] = field(default_factory=list)
    streamed: set[int] = field(default_factory=set)


class Server:
    """Runs a random history and sends it.

    Args:
        history: decides what happens in the database.
        blocks: decides when a transaction is sent while it runs; None for protocol 1.
        first_xid: xids count from here, over 2^32 back to 0.
    """

    def __init__(self, history: random.Random, blocks: random.Random | None, first_xid: int) -> None:
        self._history = history
        self._blocks = blocks
        self._xid = first_xid
        self._lsn = 1000
        self._open: list[Transaction] = []
        self.sent: list[bytes] = []
        """Frames as they come out of the socket."""
        self.expected: list[bytes] = []
        """Messages of protocol 1 that say the same."""

    def run(self, steps: int) -> None:
        """Do so many things, then commit what is open."""
        for _ in range(steps):
            if not self._open or (len(self._open) < 4 and self._history.random() < 0.2):
                self._open.append(Transaction())
            transaction = self._history.choice(self._open)
            self._step(transaction)
            if self._blocks is not None:
                if self._blocks.random() < 0.15:
                    self._send_block(self._blocks.choice(self._open) if self._open else Transaction())
                if self._blocks.random() < 0.1:
                    self.sent.append(silence())
        while self._open:
            self._commit(self._open[0])

    def _step(self, transaction: Transaction) -> None:
        steps: list[tuple[int, Callable[[Transaction], None]]] = [
            (60, self._write),
            (12, lambda each: each.nested.append(Savepoint())),
            (8, self._release),
            (8, self._roll_back),
            (4, self._commit),
            (1, self._abort),
        ]
        weights, actions = zip(*steps, strict=True)
        self._history.choices(actions, weights)[0](transaction)

    def _write(self, transaction: Transaction) -> None:
        for savepoint in transaction.nested:
            if savepoint.xid is None:
                savepoint.xid = self._xid
                self._xid = (self._xid + 1) % _XIDS
        self._lsn += 1
        # No logical messages: PostgreSQL does not say which savepoint they belong to
        tag = self._history.choice((b"I", b"U", b"D", b"T", b"R", b"Y"))
        message = tag + struct.pack(">Q", self._lsn) + bytes(self._history.choice((0, 5, 300)))
        xid = transaction.nested[-1].xid
        assert xid is not None
        transaction.changes.append((xid, message))
        transaction.unsent.append((xid, message))

    def _release(self, transaction: Transaction) -> None:
        if len(transaction.nested) > 1:
            xids = self._xids_within(transaction, len(transaction.nested) - 1)
            transaction.nested.pop()
            transaction.released.setdefault(len(transaction.nested) - 1, []).extend(xids)

    def _roll_back(self, transaction: Transaction) -> None:
        """To one of the savepoints: it and all within go, the innermost told first."""
        if len(transaction.nested) == 1:
            return
        depth = self._history.randrange(1, len(transaction.nested))
        for inner in range(len(transaction.nested) - 1, depth - 1, -1):
            self._forget(transaction, self._xids_within(transaction, inner))
            transaction.nested.pop()

    def _xids_within(self, transaction: Transaction, depth: int) -> list[int]:
        """Of the savepoint at a depth and of those released into it: these first, as an abort record names them."""
        own = transaction.nested[depth].xid
        return [*transaction.released.pop(depth, []), *([] if own is None else [own])]

    def _forget(self, transaction: Transaction, xids: list[int]) -> None:
        transaction.changes = [each for each in transaction.changes if each[0] not in xids]
        transaction.unsent = [each for each in transaction.unsent if each[0] not in xids]
        top = transaction.nested[0].xid
        if top is None or top not in transaction.streamed:
            return
        for xid in xids:
            # One of which nothing was sent may be told, too.
            if xid in transaction.streamed or (self._blocks is not None and self._blocks.random() < 0.5):
                self.sent.append(frame(b"A" + struct.pack(">II", top, xid)))

    def _send_block(self, transaction: Transaction) -> None:
        top = transaction.nested[0].xid
        if top is None:
            return
        self.sent.append(frame(b"S" + struct.pack(">IB", top, top not in transaction.streamed)))
        transaction.streamed.add(top)
        for xid, message in transaction.unsent:
            transaction.streamed.add(xid)
            self.sent.append(frame(message[:1] + struct.pack(">I", xid) + message[1:]))
            if self._blocks is not None and self._blocks.random() < 0.02:
                self.sent.append(silence())
        transaction.unsent.clear()
        self.sent.append(frame(b"E"))

    def _commit(self, transaction: Transaction) -> None:
        self._open.remove(transaction)
        top = transaction.nested[0].xid
        if top is None:
            return
        self._lsn += 1
        times = struct.pack(">q", self._lsn * 7)
        lsn, end = struct.pack(">Q", self._lsn), struct.pack(">Q", self._lsn + 1)
        whole = [
            b"B" + lsn + times + struct.pack(">I", top),
            *(message for _, message in transaction.changes),
            b"C\0" + lsn + end + times,
        ]
        self.expected += whole
        if top in transaction.streamed:
            self._send_block(transaction)
            self.sent.append(frame(b"c" + struct.pack(">I", top) + b"\0" + lsn + end + times))
        else:
            self.sent += map(frame, whole)

    def _abort(self, transaction: Transaction) -> None:
        self._open.remove(transaction)
        top = transaction.nested[0].xid
        if top is not None and top in transaction.streamed:
            for depth in range(len(transaction.nested) - 1, 0, -1):
                self._forget(transaction, self._xids_within(transaction, depth))
            self.sent.append(frame(b"A" + struct.pack(">II", top, top)))


def in_reads(frames: list[bytes], sizes: random.Random) -> Iterator[list[bytes]]:
    """The frames as a socket gives them: a few at a time, and sometimes none."""
    place = 0
    while place < len(frames):
        size = sizes.choice((0, 1, 1, 2, 7, 50))
        yield frames[place : place + size]
        place += size
