"""Bytes that no server should send: each a typed error that says which message and where."""

from __future__ import annotations

import struct

import pytest

from cdc.base.errors import DecodeError
from cdc.bridge.decode.pgoutput import PgOutputDecoder
from cdc.contract.change import LogicalMessage, Relation, StreamStart, StreamStop

INT4, TEXT = 23, 25


def string(text: str) -> bytes:
    return text.encode() + b"\0"


def relation(relation_id: int = 7, *, identity: bytes = b"d", oid: int = TEXT, flags: int = 0) -> bytes:
    columns = b"\x01" + string("id") + struct.pack(">Ii", INT4, -1)
    columns += bytes([flags]) + string("note") + struct.pack(">Ii", oid, -1)
    return b"R" + struct.pack(">I", relation_id) + string("public") + string("t") + identity + b"\0\x02" + columns


def row(*cells: bytes) -> bytes:
    return struct.pack(">H", len(cells)) + b"".join(cells)


def cell(text: bytes) -> bytes:
    return b"t" + struct.pack(">I", len(text)) + text


def insert(*cells: bytes, relation_id: int = 7) -> bytes:
    return b"I" + struct.pack(">I", relation_id) + b"N" + row(*cells)


@pytest.fixture
def decoder() -> PgOutputDecoder:
    decoder = PgOutputDecoder()
    decoder.decode(relation())
    return decoder


REFUSED = {
    "empty": (b"", "empty message, byte 0: truncated"),
    "unknown tag": (b"Zxyz", "unknown message, byte 0: tag 0x5a"),
    "begin prepare": (b"b" + bytes(30), "two-phase message, byte 0: tag b'b'"),
    "prepare": (b"P" + bytes(30), "two-phase"),
    "commit prepared": (b"K" + bytes(30), "two-phase"),
    "rollback prepared": (b"r" + bytes(30), "two-phase"),
    "stream prepare": (b"p" + bytes(30), "two-phase"),
    "unknown relation": (insert(cell(b"1"), cell(b"a"), relation_id=8), "Insert message, byte 1: unknown relation 8"),
    "insert of an old tuple": (b"I\0\0\0\x07K" + row(cell(b"1"), b"n"), "Insert message, byte 5: tuple tag 0x4b"),
    "delete of a new tuple": (b"D\0\0\0\x07N" + row(cell(b"1"), b"n"), "Delete message, byte 5: tuple tag 0x4e"),
    "update without a new tuple": (b"U\0\0\0\x07K" + row(cell(b"1"), b"n"), "Update message, byte 15: no new tuple"),
    "update of two keys": (
        b"U\0\0\0\x07K" + row(cell(b"1"), b"n") + b"K" + row(cell(b"1"), b"n"),
        "Update message, byte 15: unknown tuple tag 0x4b",
    ),
    "unknown cell": (insert(cell(b"1"), b"x"), "Insert message, byte 14: unknown kind of cell 0x78"),
    "binary cell": (insert(cell(b"1"), b"b\0\0\0\x01a"), "binary was not asked for"),
    "narrow row": (insert(cell(b"1")), "Insert message, byte 6: row of 1 columns, the relation has 2"),
    "wide row": (insert(cell(b"1"), b"n", b"n"), "row of 3 columns"),
    "short last cell": (insert(cell(b"1"), b"t\0\0\0\x05abcd"), "Insert message, byte 23: truncated: the last column"),
    "short first cell": (insert(b"t\0\0\1\0a", cell(b"b")), "Insert message, byte 269: truncated in column 2 of 2"),
    "endless cell": (insert(cell(b"1"), b"t\xff\xff\xff\xffabcd"), "truncated"),
    "bytes behind the row": (insert(cell(b"1"), b"n") + b"n", "Insert message, byte 15: 1 bytes too many"),
    "bytes behind begin": (b"B" + bytes(21), "Begin message, byte 21: 1 bytes too many"),
    "flags of commit": (b"C\x01" + bytes(24), "Commit message, byte 1: unknown flags 0x01"),
    "flags of message": (b"M\x02" + bytes(20), "Message message, byte 1: unknown flags 0x02"),
    "flags of truncate": (b"T\0\0\0\1\x04\0\0\0\x07", "Truncate message, byte 5: unknown flags 0x04"),
    "truncate of the unknown": (b"T\0\0\0\1\0\0\0\0\x09", "unknown relation 9"),
    "truncate of too many": (b"T\xff\xff\xff\xff\0\0\0\0\x07", "Truncate message, byte 6: truncated"),
    "flags of a column": (relation(flags=2), "unknown flags 0x02"),
    "replica identity": (relation(identity=b"q"), "Relation message, byte 14: unknown replica identity"),
    "type never announced": (relation(oid=99_999), "type 99999, which was not announced"),
    "name without end": (b"Y\0\0\0\1public", "Type message, byte 5: truncated: string without end"),
    "name not UTF-8": (b"Y\0\0\0\1\xff\0a\0", "Type message, byte 5: string is not UTF-8"),
    "stop without start": (b"E", "StreamStop message, byte 0: no streamed block is open"),
    "first segment": (b"S\0\0\0\1\x02", "StreamStart message, byte 5: unknown flags 0x02"),
    "parallel abort": (b"A" + bytes(24), "StreamAbort message, byte 9: 16 bytes too many"),
}


@pytest.mark.parametrize(("data", "text"), REFUSED.values(), ids=REFUSED)
def test_refused(decoder: PgOutputDecoder, data: bytes, text: str) -> None:
    with pytest.raises(DecodeError) as raised:
        decoder.decode(data)
    assert text in raised.value.message
    assert raised.value.remedy


@pytest.mark.parametrize(
    "data", [b"B" + bytes(20), b"C" + bytes(25), b"S\0\0\0\2\1", b"c" + bytes(29), b"A" + bytes(8)]
)
def test_boundaries_inside_a_streamed_block_are_refused(decoder: PgOutputDecoder, data: bytes) -> None:
    decoder.decode(b"S\0\0\0\1\1")
    with pytest.raises(DecodeError, match="inside a streamed block"):
        decoder.decode(data)


def test_streamed_relations_are_forgotten_with_their_transaction(decoder: PgOutputDecoder) -> None:
    streamed_relation = b"R\0\0\0\x02" + relation(8)[1:]
    assert decoder.decode(b"S\0\0\0\1\1") == StreamStart(1, True)
    assert isinstance(decoder.decode(streamed_relation), Relation)
    assert decoder.stream_xid == 2
    assert decoder.decode(b"E") == StreamStop()
    with pytest.raises(DecodeError, match="unknown relation 8"):
        decoder.decode(insert(cell(b"1"), b"n", relation_id=8))
    decoder.decode(b"A\0\0\0\1\0\0\0\1")
    decoder.decode(b"S\0\0\0\1\1")
    with pytest.raises(DecodeError, match="unknown relation 8"):
        decoder.decode(b"I\0\0\0\1" + insert(cell(b"1"), b"n", relation_id=8)[1:])


def test_a_rolled_back_savepoint_keeps_the_streamed_relations(decoder: PgOutputDecoder) -> None:
    decoder.decode(b"S\0\0\0\1\1")
    decoder.decode(b"R\0\0\0\1" + relation(8)[1:])
    decoder.decode(b"E")
    decoder.decode(b"A\0\0\0\1\0\0\0\2")
    decoder.decode(b"c\0\0\0\1" + bytes(25))
    decoder.decode(insert(cell(b"1"), b"n", relation_id=8))


def test_pg_catalog_is_sent_as_an_empty_name(decoder: PgOutputDecoder) -> None:
    assert decoder.decode(b"Y\0\0\x27\x10\0numeric\0") == (10_000, "pg_catalog", "numeric")
    domain = decoder.decode(relation(9, oid=10_000))
    assert isinstance(domain, Relation)
    assert domain.columns[1].type_name == "pg_catalog.numeric"


def test_empty_content_and_prefix(decoder: PgOutputDecoder) -> None:
    message = decoder.decode(b"M\0" + bytes(8) + b"\0" + bytes(4))
    assert message == LogicalMessage(False, 0, "", b"")  # type: ignore[arg-type]  # an LSN equals its number
