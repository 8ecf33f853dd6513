"""Records → changes: the newest of each key, in order, and what is no row."""

from __future__ import annotations

import base64

import pytest

from cdc.base.lsn import LSN
from cdc.contract.header import DELETE, UPDATE, HeaderStamp
from cdc.contract.ports import StoredRecord
from cdc.views.table.exact_json import loads
from cdc.views.table.facts import KeyColumn, KeyKind, ValueKind, decode_unreadable
from cdc.views.table.forms import table_form, topic_form
from cdc.views.table.indexes import Indexes
from cdc.views.table.keys import order_of
from cdc.views.table.records import RecordForm, TableChanges, changes
from cdc.views.table.rows import unpack
from cdc.views.table.table_keys import TableKeys

KEY = (KeyColumn("a", "int4"), KeyColumn("b", "text"))
FORM = table_form(KEY, {("a",), ("b", "a")})
NONE = Indexes((), {})


def record(
    key: bytes | None, value: bytes | None, offset: int = 0, partition: int = 0, lsn: int = 5, seq: int = 1
) -> StoredRecord:
    header = HeaderStamp(LSN(lsn), 7, 1_700_000_000_000_000).header(DELETE if value is None else UPDATE, seq, "f")
    return StoredRecord("t", partition, offset, key, value, header)


def of(*records: StoredRecord, form: RecordForm = FORM) -> TableChanges:
    return changes("t", records, form, NONE)


def reasons(found: TableChanges) -> list[str]:
    return [decode_unreadable(each.text).reason for each in found.no_rows if each.text is not None]


def test_the_newest_record_of_each_key_counts_and_rows_are_in_order() -> None:
    found = of(
        record(b'{"a":2,"b":"x"}', b'{"a":2,"b":"x"}', 0),
        record(b'{"a":10,"b":"x"}', b'{"a":10,"b":"x"}', 1),
        record(b'{"a":1,"b":"x"}', b'{"a":1,"b":"x"}', 2),
        record(b'{"a":2,"b":"x"}', b'{"a":2,"b":"x","v":1}', 3),
        record(b'{"a":1,"b":"x"}', None, 4),
    )
    assert [each.row.key.order for each in found.rows] == [order_of([2, "x"]), order_of([10, "x"])]
    assert [each.row.key.text for each in found.rows] == [b'{"a":2,"b":"x"}', b'{"a":10,"b":"x"}']
    row = unpack(found.rows[0].row.value)
    assert (row.row, row.offset, row.lsn, row.ts) == (b'{"a":2,"b":"x","v":1}', 3, LSN(5), 1_700_000_000_000_000)
    assert [each.order for each in found.gone] == [order_of([1, "x"])]
    assert len(found) == 3


@pytest.mark.parametrize("is_turned", [False, True])
def test_of_two_partitions_the_position_decides(is_turned: bool) -> None:
    key = b'{"a":1,"b":"x"}'
    records = [record(key, b'{"v":1}', 9, 0, lsn=5, seq=2), record(key, None, 3, 1, lsn=6, seq=1)]
    assert of(*records[:: -1 if is_turned else 1]).rows == []


@pytest.mark.parametrize("is_turned", [False, True])
def test_a_tombstone_takes_away_only_what_was_written_under_its_key(is_turned: bool) -> None:
    """Minus zero and zero are one key to PostgreSQL, and two to Kafka, whose partitions come one after the other."""
    form = table_form((KeyColumn("a", "float8"),))
    changed = [record(b'{"a":-0}', None, 0, seq=1), record(b'{"a":0}', b'{"a":0}', 0, 1, seq=1)]
    found = of(*(reversed(changed) if is_turned else changed), form=form)
    assert [each.row.key.text for each in found.rows] == [b'{"a":0}']
    assert [each.text for each in found.gone] == [b'{"a":-0}']
    assert found.rows[0].row.key.order != found.gone[0].order


@pytest.mark.parametrize(
    "documents",
    [
        ["0.1", "0.10000000000000000001", "0.10"],
        ["18446744073709551616", "18446744073709551617"],
        ["9223372036854775807", "9223372036854775808", "9223372036854775808.0"],
        [f"1{'0' * 400}", f"1{'0' * 399}1", f"-1{'0' * 400}"],
        ['{"a": 0.1}', '{"a": 0.10000000000000000001}'],
        ["[0]", "[-0]", "[0.0]", "[-0.0]"],
    ],
)
def test_numbers_of_documents_are_what_they_are_written_like(documents: list[str]) -> None:
    """A double for several of them made one row of several: each hid the other. Beyond all doubles there was no row."""
    form = table_form((KeyColumn("doc", "jsonb"),))
    records = [record(b'{"doc":%b}' % each.encode(), b"{}", place) for place, each in enumerate(documents)]
    found = of(*records, form=form)
    assert len({each.row.key.order for each in found.rows}) == len(documents)
    assert found.no_rows == []
    keys = TableKeys("columns", (KeyColumn("doc", "jsonb"),))
    assert {keys.of_values([loads(each)]).order for each in documents} == {each.row.key.order for each in found.rows}
    assert {keys.of_record(each.key or b"").order for each in records} == {each.row.key.order for each in found.rows}


@pytest.mark.parametrize("number", ["1e99999999999999999999", "[" * 100_000])
def test_a_number_or_a_nesting_without_end_is_no_key(number: str) -> None:
    form = table_form((KeyColumn("doc", "jsonb"),))
    found = of(record(b'{"doc":%b}' % number.encode(), b"{}"), form=form)
    assert (len(found.rows), len(found.no_rows)) == (0, 1)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (b'{"a":1,"b":"x"}', b"7", "its value is not a JSON object"),
        (b'{"a":1,"b":"x"}', b'{"a":NaN}', "its value is not JSON: NaN is not a JSON value"),
        (b'{"a":1,"b":"x"}', b"\xff", "its value is not JSON: 'utf-8'"),
        (b'{"a":1,"b":"x"}', b'{"a":"\xff"}', "'utf-8'"),
        (b'{"a":1}1', b"{}", ""),
        (b'{"a":1,"c":"x"}', b"{}", "its key is not a key of (a, b)"),
        (None, b"{}", "it has no key"),
    ],
)
def test_what_is_no_row(key: bytes | None, value: bytes, reason: str) -> None:
    found = of(record(key, value))
    assert (found.rows, found.gone) == ([], [])
    assert reasons(found)[0].startswith(reason)
    assert found.no_rows[0].is_key == (key is not None and key.endswith(b'"x"}') and b'"b"' in key)


def test_a_record_without_the_header_is_no_row() -> None:
    plain = record(b'{"a":1,"b":"x"}', b"{}")._replace(header=b"")
    other = plain._replace(key=b'{"a":2,"b":"x"}', header=b"v=2;op=u")
    assert reasons(of(plain, other)) == [
        "it has no header `cdc` of version 1: another program wrote it",
        "its header `cdc` is not of version 1: v=2;op=u",
    ]


def test_records_under_former_keys_do_not_count() -> None:
    found = of(record(b'{"a":1}', b"{}"), record(b'{"b":"x","a":1}', None), record(b'{"a":1,"b":"x"}', b"{}"))
    assert [each.row.key.text for each in found.rows] == [b'{"a":1,"b":"x"}']
    assert (found.gone, found.no_rows) == ([], [])


def test_a_tombstone_takes_away_what_was_no_row() -> None:
    found = of(record(b"garbage", b"{}", 0), record(b"garbage", None, 1))
    assert [(each.is_key, each.text) for each in found.no_rows] == [(False, None)]


@pytest.mark.parametrize(
    ("kinds", "key", "value", "expected"),
    [
        (("string", "json"), "é".encode(), b"[1, 2]", ('"é"'.encode(), b"[1, 2]")),
        (("json", "string"), b'{"id": 7}', "ü".encode(), (b'{"id": 7}', '"ü"'.encode())),
        (("bytes", "bytes"), b"\xff\0", b"\x01", (b'"%b"' % base64.b64encode(b"\xff\0"), b'"AQ=="')),
        (("string", "json"), b"", b"null", (b'""', b"null")),
    ],
)
def test_topics_of_other_programs(
    kinds: tuple[KeyKind, ValueKind], key: bytes, value: bytes, expected: tuple[bytes, bytes]
) -> None:
    found = of(StoredRecord("t", 1, 2, key, value, b""), form=topic_form(*kinds))
    row = unpack(found.rows[0].row.value)
    assert (row.key, row.row, row.lsn, row.partition, row.offset) == (*expected, None, 1, 2)
    assert found.rows[0].row.key.text == key


def test_json_keys_sort_as_their_values_and_spellings_differ() -> None:
    form = topic_form("json", "json")
    keys = [b"10", b"9", b'"a"', b'{"a":1}', b'{"a": 1}']
    others = [b'{"a":1,"b":2}', b'{"b":2,"a":1}', b"0.0", b"-0.0"]
    found = of(*(StoredRecord("t", 0, n, key, b"1", b"") for n, key in enumerate(keys)), form=form)
    assert [each.row.key.text for each in found.rows] == [b"9", b"10", b'"a"', b'{"a":1}', b'{"a": 1}']
    assert len(of(*(StoredRecord("t", 0, n, key, b"1", b"") for n, key in enumerate(others)), form=form).rows) == 4


@pytest.mark.parametrize(
    ("kinds", "key", "value", "reason"),
    [
        (("string", "json"), b"\xff", b"1", "its key is not UTF-8 text"),
        (("json", "json"), b"{", b"1", "its key is not JSON"),
        (("json", "json"), b"[" * 300 + b"]" * 300, b"1", "the value cannot be sorted"),
        (("string", "string"), b"k", b"\xff", "its value is not UTF-8 text"),
        (("string", "json"), b"k", b"{", "its value is not JSON"),
    ],
)
def test_poison_in_topics_of_other_programs(
    kinds: tuple[KeyKind, ValueKind], key: bytes, value: bytes, reason: str
) -> None:
    found = of(StoredRecord("t", 0, 0, key, value, b""), form=topic_form(*kinds))
    assert found.rows == []
    assert reasons(found)[0].startswith(reason)
