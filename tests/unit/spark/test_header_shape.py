"""What Spark's expressions take for a header of the bridge's: all that it writes, and nothing that they fail on."""

from __future__ import annotations

import re

import pytest

from cdc.base.lsn import LSN
from cdc.contract.header import HeaderStamp, newer, of_no_row, parse_header, with_null_documents
from cdc.spark.topic import HEADER_SHAPE

STREAMED = HeaderStamp(LSN(0x1_0192_5728), 734, 1795190486566123).header("u", 17, "3f2a91c05b7e6d14")
BACKFILLED = HeaderStamp(LSN(1), None, 1, "7:9:7,8").header("r", 1, "3f2a91c05b7e6d14")


@pytest.mark.parametrize(
    "header",
    [
        STREAMED,
        BACKFILLED,
        HeaderStamp(LSN(0xFFFFFFFF_FFFFFFFF), 2**59, 0).header("t", 0, "0" * 16),
        HeaderStamp(LSN(1), None, 1, "7:7:").header("d", 10**17, "0" * 16),
        newer(STREAMED),
        with_null_documents(STREAMED, (0, 12)),
        of_no_row(BACKFILLED),
        STREAMED + b";later=1",
    ],
)
def test_what_the_bridge_writes(header: bytes) -> None:
    assert re.fullmatch(HEADER_SHAPE, header.decode())
    parse_header(header)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"garbage",
        STREAMED + b"\n",
        STREAMED + b";xid=x",
        STREAMED + b";snap=7:9:",
        STREAMED.replace(b"v=1", b"v=2"),
        STREAMED.replace(b"xid=734", b"xid=" + b"9" * 30),
        STREAMED.replace(b"ts=", b"ts=" + b"9" * 18),
        STREAMED.replace(b"lsn=", b"lsn=" + b"F" * 40),
        BACKFILLED.replace(b"7:9:7,8", b"7:9"),
        BACKFILLED.replace(b"7:9:7,8", b"7:9:7,"),
    ],
)
def test_what_somebody_else_writes(header: bytes) -> None:
    assert not re.fullmatch(HEADER_SHAPE, header.decode())
