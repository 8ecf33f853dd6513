"""Values of history topics: spliced, told from the header, read back with every number as it was spelt."""

from __future__ import annotations

import json

import pytest

from cdc.base.errors import ConfigError, DecodeError
from cdc.base.lsn import LSN
from cdc.bridge.encode import TableEncoder
from cdc.contract.change import Column, Relation, ReplicaIdentity
from cdc.contract.header import HeaderStamp, newer
from cdc.contract.history import HistoryEncoder, parse_history
from cdc.contract.json_members import member_texts
from cdc.contract.naming import history_topic
from cdc.contract.record import Position

COLUMNS = (
    Column("id", 20, -1, "pg_catalog.int8", True),
    Column("n", 1700, -1, "pg_catalog.numeric", False),
    Column("doc", 114, -1, "pg_catalog.json", False),
)
TABLE = TableEncoder(Relation(1, "public", "t", ReplicaIdentity.DEFAULT, COLUMNS), ("id",), "x.public.t")
STAMP = HeaderStamp(LSN(0x1925728), 734, 1_000)
HEAD = '{"v":1,"op":"%s","lsn":"0/1925728","seq":%d,"xid":%s,"ts":1000,"schema":"' + TABLE.fingerprint + '",'
ROW = (b"1", b"1.10", b' {"a": 1.50}')


def encoder() -> HistoryEncoder:
    return HistoryEncoder({"x.public.t": "x.public.t.history"}, lambda value, _: value)


def header(op: str, seq: int = 1) -> bytes:
    return STAMP.header(op, seq, TABLE.fingerprint)


def test_new_is_the_state_value_byte_for_byte() -> None:
    value = encoder().value(b'{"id":1,"doc": {"a": 1.50}}', header("c"), None)
    assert value.decode() == HEAD % ("c", 1, "734") + '"new":{"id":1,"doc": {"a": 1.50}},"old":null}'


def test_the_whole_old_row_and_only_the_identity() -> None:
    whole = encoder().value(b"{}", header("u"), TABLE.old(ROW, True))
    assert whole.endswith(b'"new":{},"old":{"id":1,"n":"1.10","doc": {"a": 1.50}}}')
    identity = TABLE.old((b"1", None, None), False)
    assert encoder().value(None, header("d", 2), identity).endswith(b'"new":null,"old":{"id":1}}')


def test_a_changed_key_deletes_one_and_inserts_the_other() -> None:
    made, old = encoder(), TABLE.old((b"1", None, None), False)
    records = [made.value(value, header("u"), old) for value in (None, b'{"id":2}')]
    assert [parse_history(each).op for each in records] == ["d", "c"]
    assert [parse_history(each).old for each in records] == [{"id": "1"}, {"id": "1"}]


def test_a_value_read_later_is_marked() -> None:
    value = encoder().value(b"{}", newer(header("u")), None)
    assert json.loads(value)["toast"] == "newer"
    assert parse_history(value).is_newer
    assert not parse_history(encoder().value(b"{}", header("u"), None)).is_newer


def test_backfill_and_truncate() -> None:
    read = HeaderStamp(LSN(0x1925728), None, 1_000, "10:20:10,14").header("r", 5, TABLE.fingerprint)
    assert encoder().value(b"{}", read, None).decode() == HEAD % ("r", 5, "null") + '"new":{},"old":null}'
    assert encoder().value(None, header("t"), None).decode() == HEAD % ("t", 1, "734") + '"new":null,"old":null}'


def test_read_back() -> None:
    value = encoder().value(TABLE.value((b"1", None, b"1.0")), header("u"), TABLE.old(ROW, True))
    record = parse_history(value)
    assert (record.op, record.position, record.xid, record.ts) == ("u", Position(LSN(0x1925728), 1), 734, 1_000)
    assert record.schema == TABLE.fingerprint
    assert record.new == {"id": "1", "n": "null", "doc": "1.0"}
    assert record.old == {"id": "1", "n": '"1.10"', "doc": '{"a": 1.50}'}


@pytest.mark.parametrize("value", [b"", b"null", b"[]", b'{"v":2}', b'{"v":1}', b"\xff"])
def test_what_is_no_history(value: bytes) -> None:
    with pytest.raises(DecodeError, match="history record is not of topic contract version 1"):
        parse_history(value)


def test_members_keep_their_spelling() -> None:
    text = '{"a": 1.50 , "b\\"":"x,}","c":{"d":[1,{"e":null}]},"f":' + "9" * 5000 + "}"
    assert member_texts(text) == {"a": "1.50", 'b"': '"x,}"', "c": '{"d":[1,{"e":null}]}', "f": "9" * 5000}
    assert member_texts(" {} ") == {}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a"}', '{"a":}', '{"a":1 "b":2}', '{"a":1}x', "{1:2}x"])
def test_what_is_no_object(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        member_texts(text)


def test_a_topic_name_that_leaves_no_room() -> None:
    assert history_topic("x" * 241) == "x" * 241 + ".history"
    with pytest.raises(ConfigError, match="250 characters, Kafka allows 249"):
        history_topic("x" * 242)
