"""Frames around the messages, both directions."""

from __future__ import annotations

import struct

import pytest

from cdc.base.errors import DecodeError
from cdc.base.lsn import LSN
from cdc.bridge.decode.walsender import (
    KEEPALIVE_TAG,
    XLOG_DATA_HEADER_BYTES,
    XLOG_DATA_TAG,
    Keepalive,
    parse_keepalive,
    sent_ts,
    standby_status,
)

EPOCH_US = 946_684_800_000_000
DATA = b"w" + struct.pack(">QQq", 0x1925728, 0x1925800, -1) + b"payload"
KEEPALIVE = b"k" + struct.pack(">QqB", 0x16_B374D848, 5, 1)


def test_xlog_data() -> None:
    assert DATA[0] == XLOG_DATA_TAG
    assert DATA[XLOG_DATA_HEADER_BYTES:] == b"payload"
    assert sent_ts(DATA) == EPOCH_US - 1


def test_keepalive() -> None:
    assert KEEPALIVE[0] == KEEPALIVE_TAG
    assert parse_keepalive(KEEPALIVE) == Keepalive(LSN.parse("16/B374D848"), EPOCH_US + 5, True)
    assert not parse_keepalive(KEEPALIVE[:-1] + b"\0").reply_requested


@pytest.mark.parametrize(
    "frame", [KEEPALIVE[:cut] for cut in range(len(KEEPALIVE))] + [KEEPALIVE + b"\0", KEEPALIVE[:-1] + b"\2", DATA]
)
def test_damaged_keepalive(frame: bytes) -> None:
    with pytest.raises(DecodeError, match="keepalive"):
        parse_keepalive(frame)


def test_standby_status() -> None:
    status = standby_status(LSN(3), LSN(2), LSN(1), EPOCH_US + 7, reply=True)
    assert status == b"r" + struct.pack(">QQQqB", 3, 2, 1, 7, 1)
    assert standby_status(LSN(3), LSN(2), LSN(1), EPOCH_US)[-1] == 0
