"""Lines of a chunk become records, except for those that the stream brought; a document null is not NULL."""

from __future__ import annotations

from cdc.base.lsn import LSN
from cdc.bridge.backfill.lines import Encoded, LineEncoder
from cdc.bridge.encode import TableEncoder
from cdc.bridge.order.touched import Recording
from cdc.contract.change import Column, Relation, ReplicaIdentity
from cdc.contract.header import HeaderStamp, parse_header
from tests.unit.bridge.backfill.stage import SNAPSHOT_TEXT, key

COLUMNS = (Column("id", 23, -1, "pg_catalog.int4", True), Column("v", 3802, -1, "pg_catalog.jsonb", False))
RELATION = Relation(7, "public", "t", ReplicaIdentity.DEFAULT, COLUMNS)


def encoded(*lines: bytes, touched: tuple[int, ...] = (), seq: int = 0) -> Encoded:
    recording = Recording("t", ())
    recording.keys.update(dict.fromkeys(map(key, touched), 60))
    stamp = HeaderStamp(LSN(99), None, 5, SNAPSHOT_TEXT)
    return LineEncoder(TableEncoder(RELATION, ("id",), "t")).encode(list(lines), recording, stamp, seq)


def test_a_document_null_is_told_from_null() -> None:
    lines = (b"1\tnull\n", b"2\t\\N\n", b'3\t{"a": null}\n', b"4\tnull\n")
    found = encoded(*lines, seq=6)
    headers = [parse_header(header) for _, _, _, header, _ in found.records]
    assert [each.json_null for each in headers] == [(1,), (), (), (1,)]
    assert [(each.op, each.seq, each.lsn, each.snap) for each in headers] == [
        ("r", seq, LSN(99), SNAPSHOT_TEXT) for seq in (7, 8, 9, 10)
    ]
    assert [value for _, _, value, _, _ in found.records] == [
        b'{"id":1,"v":null}',
        b'{"id":2,"v":null}',
        b'{"id":3,"v":{"a": null}}',
        b'{"id":4,"v":null}',
    ]


def test_what_the_stream_brought_is_left_out_and_takes_no_ordinal() -> None:
    found = encoded(b"1\t1\n", b"2\t2\n", b"3\t3\n", touched=(2,))
    assert [each[1] for each in found.records] == [key(1), key(3)]
    assert [parse_header(each[3]).seq for each in found.records] == [1, 2]
    assert found.size == sum(len(each[2] or b"") for each in found.records)
    assert encoded() == Encoded([], 0)
