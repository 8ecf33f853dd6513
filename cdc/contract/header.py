"""The record header ``cdc``: ASCII ``key=value`` pairs, joined by ``;``, that say what a record means and its position.

``v=1;op=u;lsn=0/1925728;seq=17;xid=734;ts=1795190486566123;schema=3f2a91c05b7e6d14``

There is only one header, because each costs the producer more CPU than encoding a row. Readers must ignore keys that
they do not know.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

from cdc.base.errors import DecodeError
from cdc.base.lsn import LSN
from cdc.contract.record import Position

HEADER_NAME: Final = "cdc"

INSERT: Final = "c"
UPDATE: Final = "u"
DELETE: Final = "d"
BACKFILL: Final = "r"
TRUNCATE: Final = "t"

NEWER: Final = "newer"
"""The value of ``toast``: the stream left out a value, which was read later and may be newer than the record's LSN."""

_NO_ROW: Final = b";row=none"
_QUARANTINED: Final = b";row=quarantined"

_POSITION: Final = re.compile(rb"v=1;op=[cudrt];lsn=([0-9A-F]{1,8}/[0-9A-F]{1,8});seq=([0-9]{1,19})(?:;|$)")
_NUMBER: Final = re.compile("-?[0-9]{1,20}")
"""A number of 64 bits."""
_COLUMNS: Final = re.compile("[0-9]{1,4}(,[0-9]{1,4})*")
"""A table has at most 1,600 columns."""
_SCHEMA: Final = re.compile(rb";schema=([0-9a-f]+)")
_STAMP: Final = re.compile(
    rb"v=1;op=([cudrt]);lsn=([0-9A-F/]+);seq=([0-9]+);(?:xid=([0-9]+)|snap=[^;]*);ts=([0-9]+);schema=([0-9a-f]{16})"
)
_ENVELOPED: Final = b";envelope="
_ENVELOPE: Final = re.compile(_ENVELOPED + rb"([a-z0-9_.-]+)")

Stamp: TypeAlias = tuple[bytes, bytes, bytes, bytes | None, bytes, bytes]
"""What a header says of a record: op, lsn, seq, xid (None in a backfill record), ts and the fingerprint."""


@dataclass(frozen=True, slots=True)
class Header:
    """A parsed header.

    Attributes:
        op: c insert, u update, d delete, r backfill, t truncate.
        lsn: the transaction's commit LSN; for a backfill record, the stream position at which it was published.
        seq: ordinal of the change in its transaction, from 1.
        xid: 64-bit transaction id; None for a backfill record.
        ts: commit time, µs since 1970.
        schema: the relation's fingerprint.
        toast: ``newer`` or None.
        snap: a backfill chunk's ``pg_current_snapshot()``; None for a streamed record.
        json_null: indexes of the columns whose ``null`` is a JSON document and not NULL.
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

    def null_documents(self, names: Sequence[str] | None) -> list[str]:
        """Returns the columns whose ``null`` is a JSON document and not NULL.

        Args:
            names: the columns of the record's definition; None if the schemas topic does not have it.

        Raises:
            DecodeError: the header names a column that the definition does not have.
        """
        if self.json_null and (names is None or max(self.json_null) >= len(names)):
            raise DecodeError(
                f"json_null names columns of definition {self.schema}, which the schemas topic lacks",
                remedy="find out who wrote into this topic, or deleted records of the schemas topic",
            )
        return [names[column] for column in self.json_null] if names else []


class HeaderStamp:
    """Makes the headers of one transaction; builds what its records share only once.

    Args:
        lsn: commit LSN (``final_lsn`` of Begin).
        xid: 64-bit transaction id, None for a backfill chunk.
        ts: commit time, µs since 1970.
        snap: a backfill chunk's snapshot, else None.
    """

    __slots__ = ("_after_seq", "_before_seq", "_templates")

    def __init__(self, lsn: LSN, xid: int | None, ts: int, snap: str | None = None) -> None:
        actor = f"xid={xid}" if xid is not None else f"snap={snap}"
        self._before_seq = f";lsn={lsn};seq=".encode()
        self._after_seq = f";{actor};ts={ts};schema=".encode()
        self._templates: dict[tuple[str, str], bytes] = {}

    def header(self, op: str, seq: int, schema: str) -> bytes:
        """Returns a record's header."""
        template = self._templates.get((op, schema))
        if template is None:
            before_op, before_seq, after_seq = self.around(schema)
            self._templates[op, schema] = template = before_op + op.encode() + before_seq + b"%d" + after_seq
        return template % seq

    def around(self, schema: str) -> tuple[bytes, bytes, bytes]:
        """Returns the parts before ``op``, between ``op`` and ``seq``, and after ``seq``, to make headers from."""
        return b"v=1;op=", self._before_seq, self._after_seq + schema.encode()


def stamp_of(header: bytes) -> Stamp:
    """Returns the parts of a header that ``HeaderStamp`` made."""
    match = _STAMP.match(header)
    if match is None:
        raise AssertionError(f"not a header of this bridge: {header!r}")
    stamp: Stamp = match.groups()  # type: ignore[assignment]  # so many groups
    return stamp


def enveloped(header: bytes, modes: bytes) -> bytes:
    """Returns the header with the mark that the value is an envelope, and in which modes it was written."""
    return header + _ENVELOPED + modes


def envelope_of(header: bytes) -> bytes | None:
    """Returns the modes of ``enveloped``; None if the value is a row."""
    if _ENVELOPED not in header:  # which most headers pass at a fraction of what the search costs
        return None
    match = _ENVELOPE.search(header)
    return None if match is None else match[1]


def of_schema(header: bytes, schema: str) -> bytes:
    """Returns a header of ``HeaderStamp`` with another fingerprint."""
    return header[: header.rindex(b"=") + 1] + schema.encode()


def schema_of(header: bytes) -> str:
    """Returns only the fingerprint; empty if there is none."""
    match = _SCHEMA.search(header)
    return "" if match is None else match[1].decode()


def newer(header: bytes) -> bytes:
    """Returns the header with the mark that a value in the record may be newer than its LSN."""
    return header + b";toast=newer"


def with_null_documents(header: bytes, columns: Iterable[int]) -> bytes:
    """Returns the header with the indexes (from 0) of json columns whose ``null`` is a document and not NULL."""
    return header + b";json_null=" + b",".join(b"%d" % column for column in columns)


def of_no_row(header: bytes) -> bytes:
    """Returns a tombstone's header with the mark that it deletes a stray record, not a row.

    Such a record has a key in a spelling, or in a partition, that the bridge never uses.
    """
    return header + _NO_ROW


def quarantined(header: bytes) -> bytes:
    """Returns the header of the tombstone that stands in a topic for a row that cannot be carried.

    The row exists in the source, and has an entry in quarantine.
    """
    return bare(header, DELETE) + _QUARANTINED


def bare(header: bytes, op: str, schema: str = "") -> bytes:
    """Returns a header with another op, maybe another fingerprint, and without what follows the fingerprint."""
    match = _STAMP.match(header)
    if match is None:
        raise AssertionError(f"not a header of this bridge: {header!r}")
    whole = b"v=1;op=" + op.encode() + header[match.end(1) : match.end()]
    return of_schema(whole, schema) if schema else whole


def is_of_no_row(header: bytes) -> bool:
    """Whether ``of_no_row`` made the header: then the row that a reader may find by this key still exists."""
    return header.endswith(_NO_ROW)


def header_position(header: bytes) -> Position:
    """Returns only (lsn, seq), which readers need of every record.

    Raises:
        DecodeError: not a header of version 1.
    """
    match = _POSITION.match(header)
    if match is None:
        raise _malformed(header)
    lsn, seq = match.groups()
    return Position(_lsn(lsn), int(seq))


def parse_header(header: bytes) -> Header:
    """Parse a whole header.

    Raises:
        DecodeError: not a header of version 1.
    """
    lsn, seq = header_position(header)
    try:
        # The first of two pairs with one key counts, as in ``header_position``
        pairs = dict(pair.split("=", 1) for pair in reversed(header.decode("ascii").split(";")))
        return Header(
            op=pairs["op"],
            lsn=lsn,
            seq=seq,
            xid=int(_matched(_NUMBER, pairs["xid"])) if "xid" in pairs else None,
            ts=int(_matched(_NUMBER, pairs["ts"])),
            schema=pairs["schema"],
            toast=pairs.get("toast"),
            snap=pairs.get("snap"),
            json_null=tuple(map(int, _matched(_COLUMNS, pairs["json_null"]).split(",")))
            if "json_null" in pairs
            else (),
        )
    except (KeyError, ValueError) as error:
        raise _malformed(header) from error


def _matched(pattern: re.Pattern[str], text: str) -> str:
    """Returns the text if it is what the bridge writes: ``int`` would also take blanks, signs and underscores."""
    if pattern.fullmatch(text) is None:
        raise ValueError(text)
    return text


@lru_cache(maxsize=1024)
def _lsn(text: bytes) -> LSN:
    """Parse an LSN. The cache helps, because records of one transaction follow one another and share the LSN."""
    return LSN.parse(text.decode())


def _malformed(header: bytes) -> DecodeError:
    return DecodeError(
        f"header {HEADER_NAME!r} is not of topic contract version 1: {header[:200]!r}",
        remedy="find out who wrote into this topic: another program, or a newer version of cdc",
    )
