"""The ``cdc`` header: golden vectors, both directions."""

from __future__ import annotations

import re
from typing import Any

import pytest

from cdc.base.errors import DecodeError
from cdc.base.lsn import LSN
from cdc.contract.header import (
    Header,
    HeaderStamp,
    header_position,
    is_of_no_row,
    newer,
    of_no_row,
    of_schema,
    parse_header,
    schema_of,
    with_null_documents,
)
from cdc.contract.record import Position
from tests.golden.files import vectors

VECTORS = vectors("headers")


def fields(vector: dict[str, Any]) -> Header:
    return Header(**{**vector, "lsn": LSN.parse(vector["lsn"])})


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["op"])
def test_vector(vector: dict[str, Any]) -> None:
    text, header = vector["header"].encode(), fields({k: v for k, v in vector.items() if k != "header"})
    made = HeaderStamp(header.lsn, header.xid, header.ts, header.snap).header(header.op, header.seq, header.schema)
    assert (newer(made) if header.toast else made) == text
    assert parse_header(text) == header
    assert header_position(text) == Position(header.lsn, header.seq)


def test_a_header_has_one_position() -> None:
    """One function took the first of two pairs, the other the second, so that a reader saw two positions."""
    text = VECTORS[0]["header"].encode() + b";seq=99;lsn=0/7;op=d"
    assert parse_header(text) == parse_header(VECTORS[0]["header"].encode())
    assert header_position(text) == (parse_header(text).lsn, parse_header(text).seq)


def test_keys_of_a_later_version_are_ignored() -> None:
    text = VECTORS[0]["header"].encode()
    assert parse_header(text + b";later=1") == parse_header(text)
    assert header_position(text + b";later=1") == header_position(text)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"v=2;op=u;lsn=0/1;seq=1;xid=1;ts=0;schema=00",
        b"v=1;op=x;lsn=0/1;seq=1;xid=1;ts=0;schema=00",
        b"v=1;op=u;lsn=0-1;seq=1;xid=1;ts=0;schema=00",
        b"v=1;op=u;lsn=0/1;seq=;xid=1;ts=0;schema=00",
        b"v=1;op=u;lsn=0/1;seq=1x;xid=1;ts=0;schema=00",
        b"v=1;op=u;seq=1;lsn",
        b"\xff",
    ],
)
def test_foreign_headers(text: bytes) -> None:
    with pytest.raises(DecodeError, match=re.escape("not of topic contract version 1")):
        parse_header(text)
    with pytest.raises(DecodeError):
        header_position(text)


@pytest.mark.parametrize("pair", ["json_null=-1", "json_null=", "json_null=1,", "json_null= 1", "ts=1_0", "xid=+7"])
def test_numbers_are_written_in_one_way(pair: str) -> None:
    """Python's ``int`` takes more, and an index of -1 would be the last column."""
    name = pair.partition("=")[0]
    written = {"xid": "7", "ts": "10", "schema": "ab", "json_null": "1"} | {name: pair.partition("=")[2]}
    text = "v=1;op=u;lsn=0/1;seq=1;" + ";".join(f"{key}={value}" for key, value in written.items())
    with pytest.raises(DecodeError):
        parse_header(text.encode())


def test_null_documents_are_columns_of_the_definition() -> None:
    header = parse_header(b"v=1;op=u;lsn=0/1;seq=1;xid=7;ts=10;schema=ab;json_null=0,2")
    assert header.null_documents(["a", "b", "c"]) == ["a", "c"]
    for names in (["a", "b"], [], None):
        with pytest.raises(DecodeError, match="definition ab"):
            header.null_documents(names)
    assert parse_header(b"v=1;op=u;lsn=0/1;seq=1;xid=7;ts=10;schema=ab").null_documents(None) == []


def test_whole_header_needs_its_keys() -> None:
    with pytest.raises(DecodeError):
        parse_header(b"v=1;op=u;lsn=0/1;seq=1")


MADE = HeaderStamp(LSN(0x1925728), 734, 1_000).header("u", 17, "0123456789abcdef")


def test_only_the_definition_is_exchanged() -> None:
    other = of_schema(MADE, "f" * 16)
    assert other == HeaderStamp(LSN(0x1925728), 734, 1_000).header("u", 17, "f" * 16)
    assert (schema_of(MADE), schema_of(other)) == ("0123456789abcdef", "f" * 16)
    assert schema_of(newer(MADE)) == "0123456789abcdef"
    assert schema_of(b"v=1;op=u;lsn=0/1;seq=1") == ""


def test_a_tombstone_of_no_row_is_told_from_one_of_a_row() -> None:
    assert is_of_no_row(of_no_row(MADE))
    assert not is_of_no_row(MADE)
    assert parse_header(of_no_row(MADE)) == parse_header(MADE), "readers that do not know the mark ignore it"


def test_a_stamp_makes_headers_of_many_definitions() -> None:
    stamp = HeaderStamp(LSN(9), None, 5, "10:20:")
    made = [stamp.header(op, seq, schema) for seq, op, schema in ((1, "r", "a"), (2, "d", "a"), (3, "r", "b"))]
    assert [(each.op, each.seq, each.schema) for each in map(parse_header, made)] == [
        ("r", 1, "a"),
        ("d", 2, "a"),
        ("r", 3, "b"),
    ]
    before_op, before_seq, after_seq = stamp.around("a")
    assert made[0] == before_op + b"r" + before_seq + b"1" + after_seq


def test_columns_with_null_documents_come_back() -> None:
    assert parse_header(with_null_documents(MADE, (0, 12))).json_null == (0, 12)
    assert parse_header(newer(with_null_documents(MADE, [3]))).json_null == (3,)
