"""The one header, ``cdc``: ASCII ``key=value`` pairs joined by ``;`` that say what a record means and where it stands.

``v=1;op=u;lsn=0/1925728;seq=17;xid=734;ts=1795190486566123;schema=3f2a91c05b7e6d14``

One header because each costs more CPU in the producer than a row's encoding. Readers must ignore keys they do not know.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from cdc.base.errors import DecodeError
from cdc.base.lsn import LSN
from cdc.contract.record import Position

HEADER_NAME: Final = "cdc"

INSERT: Final = "c"
UPDATE: Final = "u"
DELETE: Final = "d"
BACKFILL: Final = "r"
TRUNCATE: Final = "t"
_OPS: Final = frozenset((INSERT, UPDATE, DELETE, BACKFILL, TRUNCATE))

NEWER: Final = "newer"
"""``toast``: a value left out by the stream was read later, and may be newer than the record's LSN says."""

_NO_ROW: Final = b";row=none"

_POSITION: Final = re.compile(rb"v=1;op=[cudrt];lsn=([0-9A-F]{1,8}/[0-9A-F]{1,8});seq=([0-9]{1,19})(?:;|$)")
_SCHEMA: Final = re.compile(rb";schema=([0-9a-f]+)")


@dataclass(frozen=True, slots=True)
class Header:
    """A parsed header.

    Attributes:
        op: c insert, u update, d delete, r backfill, t truncate.
        lsn: the transaction's commit LSN; of a backfill record the stream position at which it was published.
        seq: ordinal of the change in its transaction, from 1.
        xid: 64-bit transaction id; None for a backfill record.
        ts: commit time, µs since 1970.
        schema: the relation's fingerprint.
        toast: ``newer`` or None.
        snap: a backfill chunk's ``pg_current_snapshot()``; None for a streamed record.
        json_null: columns, by index in the schema, whose ``null`` is a JSON document and not NULL.
    """

    op: str
    lsn: LSN
    seq: int
    xid: int | None
    ts: int
    schema: str
    toast: str | None = None
    snap: str | None = None
    json_null: tuple[int, ...] = ()


class HeaderStamp:
    """Makes the headers of one transaction: what its records share is put together once.

    Args:
        lsn: commit LSN (``final_lsn`` of Begin).
        xid: 64-bit transaction id, None for a backfill chunk.
        ts: commit time, µs since 1970.
        snap: a backfill chunk's snapshot, else None.
    """

    __slots__ = ("_before_seq", "_behind_seq", "_templates")

    def __init__(self, lsn: LSN, xid: int | None, ts: int, snap: str | None = None) -> None:
        actor = f"xid={xid}" if xid is not None else f"snap={snap}"
        self._before_seq = f";lsn={lsn};seq=".encode()
        self._behind_seq = f";{actor};ts={ts};schema=".encode()
        self._templates: dict[tuple[str, str], bytes] = {}

    def header(self, op: str, seq: int, schema: str) -> bytes:
        """A record's header."""
        template = self._templates.get((op, schema))
        if template is None:
            before_op, before_seq, behind_seq = self.around(schema)
            self._templates[op, schema] = template = before_op + op.encode() + before_seq + b"%d" + behind_seq
        return template % seq

    def around(self, schema: str) -> tuple[bytes, bytes, bytes]:
        """What stands before ``op``, between it and ``seq``, and behind that: whoever has these makes headers."""
        return b"v=1;op=", self._before_seq, self._behind_seq + schema.encode()


def of_schema(header: bytes, schema: str) -> bytes:
    """A header as ``HeaderStamp`` makes it, with another fingerprint."""
    return header[: header.rindex(b"=") + 1] + schema.encode()


def schema_of(header: bytes) -> str:
    """Only the fingerprint; empty where there is none."""
    match = _SCHEMA.search(header)
    return "" if match is None else match[1].decode()


def newer(header: bytes) -> bytes:
    """The same header, saying that a value in the record may be newer than its LSN."""
    return header + b";toast=newer"


def with_null_documents(header: bytes, columns: Iterable[int]) -> bytes:
    """The same header, naming the json columns (from 0) whose ``null`` is the document and not NULL."""
    return header + b";json_null=" + b",".join(b"%d" % column for column in columns)


def of_no_row(header: bytes) -> bytes:
    """A tombstone's header, saying that only a record goes: its key is spelled, or placed, as the bridge never does."""
    return header + _NO_ROW


def is_of_no_row(header: bytes) -> bool:
    """Whether ``of_no_row`` made it: the row that a reader may take for the key's is still there."""
    return header.endswith(_NO_ROW)


def header_position(header: bytes) -> Position:
    """Only (lsn, seq): what a reader needs of every record.

    Raises:
        DecodeError: not a header of version 1.
    """
    match = _POSITION.match(header)
    if match is None:
        raise _malformed(header)
    lsn, seq = match.groups()
    return Position(_lsn(lsn), int(seq))


def parse_header(header: bytes) -> Header:
    """All of it.

    Raises:
        DecodeError: not a header of version 1.
    """
    try:
        pairs = dict(pair.split("=", 1) for pair in header.decode("ascii").split(";"))
        if pairs["v"] != "1" or pairs["op"] not in _OPS:
            raise ValueError("version or op")
        return Header(
            op=pairs["op"],
            lsn=LSN.parse(pairs["lsn"]),
            seq=int(pairs["seq"]),
            xid=int(pairs["xid"]) if "xid" in pairs else None,
            ts=int(pairs["ts"]),
            schema=pairs["schema"],
            toast=pairs.get("toast"),
            snap=pairs.get("snap"),
            json_null=tuple(map(int, pairs["json_null"].split(","))) if "json_null" in pairs else (),
        )
    except (KeyError, ValueError) as error:
        raise _malformed(header) from error


@lru_cache(maxsize=1024)
def _lsn(text: bytes) -> LSN:
    """Records of one transaction follow one another and share it."""
    return LSN.parse(text.decode())


def _malformed(header: bytes) -> DecodeError:
    return DecodeError(
        f"header {HEADER_NAME!r} is not of topic contract version 1: {header[:200]!r}",
        remedy="another program wrote into this topic, or a newer version of cdc did",
    )
