"""Keeps the changes of one streamed transaction on disk until it ends: frames in, rollback to a savepoint, frames out.

Theory of operation. The file has no name: it is removed from its directory as soon as it is open. So nothing remains
however the process ends, and nobody else can read it. The file holds each frame's message without the xid that a
streamed block adds after the tag, so what comes out is what the server would have sent without streaming.

A rollback cuts the end of the file off. PostgreSQL gives out xids in order, to a parent before its children, and
subtransactions nest. So when a subtransaction is rolled back, its messages and those of its descendants are the ones at
the end of the file whose xid is not smaller than its own. Descriptions of relations and types among them are kept: the
server sends each one once for the whole transaction, however deep in it, and does not repeat it after a rollback.

For each xid that may be rolled back, the spill remembers where the part of the file begins that holds no smaller xid.
That takes at most twelve bytes for each subtransaction.
"""

from __future__ import annotations

import struct
import tempfile
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Final

from cdc.base.errors import SpillError
from cdc.bridge.decode.walsender import XLOG_DATA_HEADER_BYTES

_XID_AT: Final = XLOG_DATA_HEADER_BYTES + 1
_BODY_AT: Final = _XID_AT + 4

_unpack_xid = struct.Struct(">I").unpack_from
_LENGTH: Final = struct.Struct("=I")
_pack_head = struct.Struct("=IB").pack
"""Packs the head of a message in the file: the number of bytes that follow, and the message's tag."""

_BATCH_BYTES: Final = 256 * 1024
_DESCRIPTIONS: Final = frozenset(b"RY")


def _unnamed_file() -> IO[bytes]:
    return tempfile.TemporaryFile(prefix="cdc-")


class Spill:
    """The messages of one streamed transaction.

    Args:
        xid: the xid of the transaction itself.
        open_file: makes the file.

    Raises:
        SpillError: this machine's disk or limits do not allow it. All methods but ``close`` raise it, too.
    """

    def __init__(self, xid: int, open_file: Callable[[], IO[bytes]] = _unnamed_file) -> None:
        self._xid = xid
        self._size = 0
        self._ranks = array("I")
        self._starts = array("Q")
        with self._failing("opened"):
            self._file = open_file()

    @property
    def size(self) -> int:
        """The number of bytes on disk."""
        return self._size

    def extend(self, frames: Sequence[bytes]) -> None:
        """Take the next frames of a block: XLogData with a tag, an xid and a message."""
        parts: list[bytes] = []
        append, size, last = parts.append, self._size, -1
        for frame in frames:
            (xid,) = _unpack_xid(frame, _XID_AT)
            if xid != last:
                self._mark(xid, size)
                last = xid
            body = frame[_BODY_AT:]
            length = len(body) + 1
            append(_pack_head(length, frame[XLOG_DATA_HEADER_BYTES]))
            append(body)
            size += length + _LENGTH.size
        with self._failing("written"):
            self._file.write(b"".join(parts))
            self._file.flush()
        self._size = size

    def roll_back(self, xid: int) -> None:
        """Forget a subtransaction and everything inside it."""
        rank, end = self._rank(xid), self._size
        while self._ranks and self._ranks[-1] >= rank:
            self._ranks.pop()
            end = self._starts.pop()
        if end < self._size:
            with self._failing("cut off"):
                self._file.seek(end)
                kept = _descriptions(self._file.read())
                self._file.seek(end)
                self._file.truncate()
                self._file.write(kept)
                self._file.flush()
            self._size = end + len(kept)
            if kept and not self._ranks:
                self._mark(self._xid, end)

    def frames(self, header: bytes) -> Iterator[list[bytes]]:
        """Yields everything in order, in batches of bounded size, as frames without xid.

        Args:
            header: the header that each frame gets.
        """
        rest, wanted = b"", _BATCH_BYTES
        with self._failing("read"):
            self._file.seek(0)
        while True:
            with self._failing("read"):
                read = self._file.read(wanted)
            if not read:
                return
            data, place, batch, wanted = rest + read, 0, [], _BATCH_BYTES
            while place + _LENGTH.size <= len(data):
                start = place + _LENGTH.size
                end = start + _LENGTH.unpack_from(data, place)[0]
                if end > len(data):
                    wanted = max(wanted, end - len(data))
                    break
                batch.append(header + data[start:end])
                place = end
            rest = data[place:]
            if batch:
                yield batch

    def close(self) -> None:
        """Free the disk space."""
        with suppress(OSError):  # data that could not be written is not needed any more
            self._file.close()

    def _mark(self, xid: int, start: int) -> None:
        """Note that a message of ``xid`` begins at ``start``."""
        rank, ranks = self._rank(xid), self._ranks
        while ranks and ranks[-1] > rank:
            ranks.pop()
            start = self._starts.pop()
        if not ranks or ranks[-1] < rank:
            ranks.append(rank)
            self._starts.append(start)

    def _rank(self, xid: int) -> int:
        """Returns the rank of an xid in the order in which xids were given out; they start again at 0 after 2^32."""
        return (xid - self._xid) & 0xFFFFFFFF

    @contextmanager
    def _failing(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise SpillError(
                f"the file for changes of transaction {self._xid}, which is still running, cannot be {what} in "
                f"{tempfile.gettempdir()}: {error.strerror} ({self._size / 1e6:.0f} MB are in it)",
                remedy="make room there, or set TMPDIR to a directory with room for the largest transaction, "
                "or set source.streaming to false; then restart",
            ) from error


def _descriptions(data: bytes) -> bytes:
    """Returns those messages that describe relations and types, among whole ones as they are in the file."""
    kept, place = [], 0
    while place < len(data):
        end = place + _LENGTH.size + _LENGTH.unpack_from(data, place)[0]
        if data[place + _LENGTH.size] in _DESCRIPTIONS:
            kept.append(data[place:end])
        place = end
    return b"".join(kept)
