"""Turns protocol 2 into protocol 1: transactions that the server sends while they run become ordinary ones.

Theory of operation. The server sends a large transaction in blocks (StreamStart … StreamStop) while it runs, with small
ones and blocks of others in between. What is inside a block goes to the transaction's spill, unread. StreamAbort cuts
the spill off. At StreamCommit the spill is played back as Begin, its messages and Commit, and whatever followed comes
after that. So the reader sees whole transactions in commit order, each once, and without what was rolled back: the same
messages as without streaming, whatever the blocks were. Everything that counts on that (ordinals, positions, what a
restart repeats) need not know about streaming.

A description of a relation holds for what the server sends after it. When an older description is played back, it would
come after a newer one from an ordinary transaction, which the server need not repeat. So the newer one is repeated
after the commit.

A logical message in a block names the transaction, and never the subtransaction that it belongs to. If one of these is
rolled back after messages came, nobody can tell which of them are gone. Then the session ends, and the next one has
transactions sent when they end, without what was rolled back.

A keepalive between blocks may be confirmed as it stands: it says that everything that *committed* before it was sent. A
transaction that is still running commits after it, and the server sends all of it again after a restart.

https://www.postgresql.org/docs/current/protocol-logical-replication.html
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final

from cdc.base.errors import SourceUndecodable
from cdc.bridge.capture.spill import Spill
from cdc.bridge.decode.buffer import decode_error
from cdc.bridge.decode.pgoutput import PgOutputDecoder
from cdc.bridge.decode.walsender import XLOG_DATA_HEADER_BYTES, XLOG_DATA_TAG, silence
from cdc.contract.change import StreamAbort, StreamCommit, StreamStart, StreamStop

_TAG_AT: Final = XLOG_DATA_HEADER_BYTES
_BOUNDARIES: Final = frozenset(b"SEcA")
_CHANGES: Final = frozenset(b"IUDTMRY")
_ORIGIN: Final = ord("O")
_RELATION: Final = ord("R")
_MESSAGE: Final = ord("M")
_RELATION_ID: Final = struct.Struct(">I")
_SHORTEST_CHANGE: Final = _TAG_AT + 5

_SILENCE: Final = [silence()]
"""Tells the reader that bytes came, but none for it. Without it the stream would look drained."""


class StreamedTransactions:
    """Puts the frames of a stream with ``streaming`` on into commit order.

    Args:
        source: returns frames that have arrived, at most this many; none when the socket is drained.
        sign_of_life: called between batches while a spill is played back, because nothing is read from the server then.
        new_spill: makes the spill of a transaction with this xid.
    """

    def __init__(
        self,
        source: Callable[[int], list[bytes]],
        sign_of_life: Callable[[], None],
        new_spill: Callable[[int], Spill] = Spill,
    ) -> None:
        self._source = source
        self._sign_of_life = sign_of_life
        self._new_spill = new_spill
        self._spills: dict[int, Spill] = {}
        self._with_messages: set[Spill] = set()
        self._block: Spill | None = None
        self._arrived = 0
        self._described = _Described()
        self._described_in: dict[int, _Described] = {}
        self._block_described = self._described
        self._boundaries = PgOutputDecoder()
        self._ahead: Iterator[list[bytes]] = iter(())

    def read(self, max_frames: int) -> list[bytes]:
        """Returns the next frames of whole transactions; none when the socket is drained.

        Args:
            max_frames: the most frames to take from the source at once; a spill comes in batches of its own size.

        Raises:
            SourceUnavailable: the stream ended or broke.
            SourceUndecodable: a savepoint was rolled back that may have messages.
            DecodeError: the boundaries contradict each other.
            SpillError: this machine's disk cannot hold the transaction.
        """
        batch = next(self._ahead, None)
        if batch is None:
            frames = self._source(max_frames)
            if not frames:
                return frames
            self._ahead = self._in_order(frames)
            batch = next(self._ahead)
        return batch

    def close(self) -> None:
        """Free the disk space. The server sends unfinished transactions again."""
        for spill in self._spills.values():
            spill.close()
        self._spills.clear()

    def _in_order(self, frames: list[bytes]) -> Iterator[list[bytes]]:
        """Yields the frames in commit order: at least one batch, none of them empty."""
        passed: list[bytes] = []
        block: list[bytes] = []
        for frame in frames:
            tag = frame[_TAG_AT] if len(frame) > _TAG_AT and frame[0] == XLOG_DATA_TAG else -1
            if tag in _BOUNDARIES:
                self._spill(block)
                committed = self._boundary(frame)
                if committed is not None:
                    if passed:
                        yield passed
                        passed = []
                    yield from self._play(frame, committed)
            elif self._block is None or tag < 0:
                passed.append(frame)
                if tag == _RELATION:
                    self._described.add(self._next(), frame[_TAG_AT:])
                else:
                    self._described.end_group()
            elif tag in _CHANGES and len(frame) >= _SHORTEST_CHANGE:
                block.append(frame)
                if tag == _RELATION:
                    message = frame[_TAG_AT : _TAG_AT + 1] + frame[_SHORTEST_CHANGE:]
                    self._block_described.add(self._next(), message)
                else:
                    self._block_described.end_group()
                    if tag == _MESSAGE:
                        self._with_messages.add(self._block)
            elif tag != _ORIGIN:
                raise decode_error("streamed", 0, f"tag {frame[_TAG_AT:][:1]!r}, truncated or inside a streamed block")
        self._spill(block)
        yield passed or _SILENCE

    def _spill(self, block: list[bytes]) -> None:
        if block:
            assert self._block is not None
            self._block.extend(block)
            block.clear()

    def _boundary(self, frame: bytes) -> StreamCommit | None:
        """Open, close or drop a transaction; a commit is returned for the caller to play back."""
        match message := self._boundaries.decode(frame[_TAG_AT:]):
            case StreamStart(xid):
                if xid not in self._spills:
                    self._spills[xid] = self._new_spill(xid)
                self._block = self._spills[xid]
                self._block_described = self._described_in.setdefault(xid, _Described())
            case StreamStop():
                self._block = None
            case StreamAbort(xid, subxid) if xid == subxid:
                self._described_in.pop(xid, None)
                if (spill := self._spills.pop(xid, None)) is not None:
                    self._with_messages.discard(spill)
                    spill.close()
            case StreamAbort(xid, subxid):
                if (spill := self._spills.get(xid)) in self._with_messages:
                    raise SourceUndecodable(
                        f"transaction {xid} rolled back a savepoint after logical messages that were sent while it "
                        "runs, and PostgreSQL does not say which of them are gone",
                        is_of_streaming=True,
                    )
                if spill is not None:
                    spill.roll_back(subxid)
            case StreamCommit():
                return message
        return None

    def _play(self, frame: bytes, committed: StreamCommit) -> Iterator[list[bytes]]:
        """Yields a committed transaction as an ordinary one."""
        header, message = frame[:_TAG_AT], frame[_TAG_AT:]
        xid, flags, commit_lsn, end_lsn, commit_ts = (
            message[start:end] for start, end in ((1, 5), (5, 6), (6, 14), (14, 22), (22, 30))
        )
        yield [header + b"B" + commit_lsn + commit_ts + xid]
        spill = self._spills.get(committed.xid)
        if spill is not None:
            for batch in spill.frames(header):
                self._sign_of_life()
                yield batch
            del self._spills[committed.xid]
            self._with_messages.discard(spill)
            spill.close()
        newer = self._described.merge(self._described_in.pop(committed.xid, _Described()))
        yield [header + b"C" + flags + commit_lsn + end_lsn + commit_ts, *(header + message for message in newer)]

    def _next(self) -> int:
        self._arrived += 1
        return self._arrived


class _Described:
    """Keeps the newest Relation message of each relation, when it arrived, and its neighbours.

    A partition's message follows its root's directly. A root's that is repeated alone would be taken to belong to
    whatever is described next, so the whole group is repeated.
    """

    def __init__(self) -> None:
        self._newest: dict[int, tuple[int, list[bytes]]] = {}
        self._group: list[bytes] = []

    def add(self, number: int, message: bytes) -> None:
        """Note the ``number``-th message, which describes a relation; it belongs to those directly before it."""
        self._group.append(message)
        (relation,) = _RELATION_ID.unpack_from(message, 1)
        self._newest[relation] = number, self._group

    def end_group(self) -> None:
        """Note that something other than a description arrived."""
        if self._group:
            self._group = []

    def merge(self, played: _Described) -> list[bytes]:
        """Take what was just played back as known. Returns the messages that arrived later, which must be repeated."""
        newer: list[bytes] = []
        for relation, (number, group) in played._newest.items():
            known, since = self._newest.get(relation, (0, group))
            if known > number:
                newer += (message for message in since if message not in newer)
            else:
                self._newest[relation] = number, group
        return newer
