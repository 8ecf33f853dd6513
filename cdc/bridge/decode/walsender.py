"""Frames of the copy-both stream: XLogData and keepalive in, standby status update out.

https://www.postgresql.org/docs/current/protocol-replication.html

The bridge's loop takes the short way: ``frame[0] == XLOG_DATA_TAG`` and then ``frame[XLOG_DATA_HEADER_BYTES:]``.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from cdc.base.lsn import LSN
from cdc.bridge.decode.buffer import KEEPALIVE, POSTGRES_EPOCH_US, STANDBY_STATUS, XLOG_DATA, decode_error

XLOG_DATA_TAG: Final = ord("w")
KEEPALIVE_TAG: Final = ord("k")
_STATUS_TAG: Final = ord("r")

XLOG_DATA_HEADER_BYTES: Final = 1 + XLOG_DATA.size
"""Tag, start LSN, end LSN and send time; the logical message begins after them."""


class Keepalive(NamedTuple):
    """The walsender has read the WAL up to ``end_lsn``, and may want an answer now. ``send_ts`` is µs since 1970."""

    end_lsn: LSN
    send_ts: int
    reply_requested: bool


def parse_keepalive(frame: bytes) -> Keepalive:
    """Returns a primary keepalive.

    Raises:
        DecodeError: it is another frame, or has a wrong length or an unknown flag.
    """
    if frame[:1] != b"k":
        raise decode_error("keepalive", 0, f"tag {frame[:1]!r}")
    if len(frame) != 1 + KEEPALIVE.size:
        raise decode_error("keepalive", len(frame), f"{len(frame)} bytes instead of {1 + KEEPALIVE.size}")
    end, sent, reply = KEEPALIVE.unpack_from(frame, 1)
    if reply > 1:
        raise decode_error("keepalive", KEEPALIVE.size, f"unknown flags 0x{reply:02x}")
    return Keepalive(LSN(end), sent + POSTGRES_EPOCH_US, reply == 1)


def sent_ts(frame: bytes) -> int:
    """Returns when the server sent an XLogData frame, in µs since 1970 by its clock."""
    _, _, sent = XLOG_DATA.unpack_from(frame, 1)
    return int(sent) + POSTGRES_EPOCH_US


def silence() -> bytes:
    """Returns a keepalive that says nothing: it is at position zero, and wants no answer."""
    return b"k" + KEEPALIVE.pack(0, 0, False)


def standby_status(written: LSN, flushed: LSN, applied: LSN, now_us: int, *, reply: bool = False) -> bytes:
    """Returns a standby status update. ``flushed`` is what lets the slot release WAL.

    Args:
        written: the position up to which we received.
        flushed: the position up to which it is durable, which becomes the slot's ``confirmed_flush_lsn``.
        applied: the position up to which it is visible, only shown in ``pg_stat_replication``.
        now_us: our clock, in µs since 1970.
        reply: whether the server should send a keepalive at once.
    """
    return STANDBY_STATUS.pack(_STATUS_TAG, written, flushed, applied, now_us - POSTGRES_EPOCH_US, reply)
