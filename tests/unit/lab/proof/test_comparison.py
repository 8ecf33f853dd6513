"""The proof itself: it must read the contract right, and see every way in which a copy can be wrong."""

from __future__ import annotations

import pytest

from cdc.contract.ports import StoredRecord
from cdc.lab.proof.comparison import Rows, TableShape, difference, topic_rows
from cdc.lab.proof.server_text import ColumnShape, FormError, TypeForm, server_text
from cdc.lab.proof.topic_side import LiveRow, TopicCopy, topic_name


@pytest.mark.parametrize(
    ("raw", "form", "delimiter", "text"),
    [
        (b"null", TypeForm.TEXT, None, None),
        (b"true", TypeForm.BOOL, None, b"t"),
        (b"-0", TypeForm.NUMBER, None, b"-0"),
        (b"9223372036854775807", TypeForm.NUMBER, None, b"9223372036854775807"),
        (b"1e+20", TypeForm.NUMBER, None, b"1e+20"),
        (b'"NaN"', TypeForm.NUMBER, None, b"NaN"),
        (b'"1.10"', TypeForm.TEXT, None, b"1.10"),
        (b'"\\u00e9\\n\\"\\ud83e\\uddf5"', TypeForm.TEXT, None, 'é\n"🧵'.encode()),
        (b'{"a" : 1.0e5}', TypeForm.DOCUMENT, None, b'{"a" : 1.0e5}'),
        (b"[]", TypeForm.NUMBER, b",", b"{}"),
        (b"[1,null,-3]", TypeForm.NUMBER, b",", b"{1,NULL,-3}"),
        (b"[[1,2],[3,4]]", TypeForm.NUMBER, b",", b"{{1,2},{3,4}}"),
        (b'"[0:1]={1,2}"', TypeForm.NUMBER, b",", b"[0:1]={1,2}"),
        (b'["","NULL","null","a,b"," x","q\\"","b\\\\","{}","plain","\\u00e9"]', TypeForm.TEXT, b",", None),
        (b'["(1,1),(0,0)","(2,2),(1,1)"]', TypeForm.TEXT, b";", b"{(1,1),(0,0);(2,2),(1,1)}"),
        (b'[{"a": 1},7]', TypeForm.DOCUMENT, b",", b'{"{\\"a\\": 1}",7}'),
    ],
)
def test_topic_values_become_the_servers_text_again(raw, form, delimiter, text):
    if b"plain" in raw:
        text = '{"","NULL","null","a,b"," x","q\\"","b\\\\","{}",plain,é}'.encode()
    assert server_text(raw, ColumnShape("c", form, delimiter)) == text


@pytest.mark.parametrize(
    ("raw", "form"), [(b'"1"', TypeForm.NUMBER), (b"1", TypeForm.TEXT), (b'"t"', TypeForm.BOOL), (b"1", TypeForm.BOOL)]
)
def test_a_value_in_another_form_than_the_contracts_is_refused(raw, form):
    with pytest.raises(FormError):
        server_text(raw, ColumnShape("c", form, None))


def record(offset: int, lsn: str, seq: int, key: bytes = b'{"id":1}', value: bytes | None = b"{}") -> StoredRecord:
    header = f"v=1;op=u;lsn={lsn};seq={seq};xid=1;ts=1;schema=0000000000000000".encode()
    return StoredRecord("t", 0, offset, key, value, header)


def test_a_copy_folds_to_the_last_record_of_each_key():
    copy = TopicCopy()
    for one in (record(0, "0/1", 1), record(2, "0/1", 2, b'{"id":2}'), record(5, "0/2", 1, value=None)):
        copy.add(one)
    assert copy.live == {b'{"id":2}': LiveRow(b"{}")}
    assert (copy.records, copy.tombstones, copy.backward, copy.duplicates) == (3, 1, [], [])


@pytest.mark.parametrize(("lsn", "seq"), [("0/1", 9), ("0/2", 1)])
def test_a_record_that_goes_back_is_seen(lsn, seq):
    copy = TopicCopy()
    copy.add(record(0, "0/2", 2))
    copy.add(record(1, lsn, seq))
    assert len(copy.backward) == 1
    assert "t[0]@1" in copy.backward[0]


def test_a_record_that_comes_twice_is_seen():
    copy = TopicCopy()
    copy.add(record(0, "0/2", 2))
    copy.add(record(1, "0/2", 2))
    assert len(copy.duplicates) == 1
    assert not copy.backward


@pytest.mark.parametrize(("operations", "duplicates"), [("td", 0), ("dd", 1), ("tt", 1)])
def test_a_delete_that_shows_that_a_table_is_another_one_is_no_duplicate(operations, duplicates):
    """The tombstones that empty its topic have the position of that delete."""
    copy = TopicCopy()
    for offset, operation in enumerate(operations):
        header = f"v=1;op={operation};lsn=0/2;seq=1;xid=1;ts=1;schema=0000000000000000".encode()
        copy.add(StoredRecord("t", 0, offset, b'{"id":1}', None, header))
    assert len(copy.duplicates) == duplicates


SHAPE = TableShape(
    "public.t", (ColumnShape("id", TypeForm.NUMBER, None), ColumnShape("v", TypeForm.TEXT, None)), ("id",)
)


def test_topic_rows_are_keyed_by_the_records_key():
    assert topic_rows({b'{"id":1}': LiveRow(b'{"id":1,"v":null}')}, SHAPE) == {(b"1",): (b"1", None)}


def test_the_header_tells_a_null_document_from_null():
    copy = TopicCopy()
    one = record(0, "0/1", 1, value=b'{"id":1,"v":null}')
    copy.add(one._replace(header=one.header + b";json_null=1"))
    assert topic_rows(copy.live, SHAPE) == {(b"1",): (b"1", b"null")}


@pytest.mark.parametrize(
    "live",
    [{b'{"id":2}': b'{"id":1,"v":null}'}, {b'{"v":null}': b'{"id":1,"v":null}'}, {b'{"id":1}': b'{"v":"","id":1}'}],
)
def test_a_record_that_contradicts_its_key_or_columns_is_refused(live):
    with pytest.raises(FormError):
        topic_rows({key: LiveRow(value) for key, value in live.items()}, SHAPE)


def test_a_difference_names_missing_extra_and_different_keys():
    source: Rows = {(b"1",): (b"1", b"a"), (b"2",): (b"2", b"b")}
    copy: Rows = {(b"1",): (b"1", None), (b"3",): (b"3", b"c")}
    found = difference("replica", source, copy, SHAPE)
    assert found is not None
    assert (found.missing, found.extra) == (((b"2",),), ((b"3",),))
    assert found.different == (((b"1",), "v: 'a' in the source, NULL here"),)
    assert "1 missing" in str(found)
    assert difference("replica", source, dict(source), SHAPE) is None


def test_topic_names_escape_what_kafka_or_a_reader_could_misread():
    assert topic_name("shop", "public.order_lines") == "shop.public.order_lines"
    assert topic_name("shop", "public.dot.ted-ü") == "shop.public.dot-2Eted-2D-C3-BC"
