"""Engine and history encoder together: which old row each record's history gets, held back or not."""

from __future__ import annotations

from dataclasses import replace

from cdc.bridge.encode import TableEncoder
from cdc.contract.change import UNCHANGED_TOAST, Delete, Insert, Relation, ReplicaIdentity, Update
from cdc.contract.header import parse_header
from cdc.contract.history import HistoryEncoder, HistoryRecord, parse_history
from tests.unit.bridge.order.test_engine import DOCUMENT, Topic

HISTORIES = {"t.public.document": "t.public.document.history"}
WHOLE = {"id": "1", "title": '"t"', "body": '"b"'}


def history(topic: Topic, *changes: object) -> list[HistoryRecord]:
    """What the history holds after one transaction of these changes."""
    encoder = HistoryEncoder(HISTORIES, lambda value, _: value)
    topic.transaction(200, *changes)
    topic.settle()
    pairs = zip(topic.records, topic.old, strict=True)
    return [parse_history(encoder.value(each.value, each.header, old)) for each, old in pairs]


def test_old_rows_as_far_as_the_stream_has_them() -> None:
    full = (b"1", b"t", b"b")
    records = history(
        Topic(histories=frozenset(HISTORIES)),
        Insert(DOCUMENT, full),
        Update(DOCUMENT, None, False, (b"1", b"u", b"b")),
        Update(DOCUMENT, full, True, (b"1", b"v", b"b")),
        Update(DOCUMENT, (b"1", None, None), False, (b"2", b"v", b"b")),
        Delete(DOCUMENT, (b"2", None, None), False),
        Delete(DOCUMENT, full, True),
    )
    assert [(each.op, each.position.seq) for each in records] == [
        ("c", 1),
        ("u", 2),
        ("u", 3),
        ("d", 4),
        ("c", 4),
        ("d", 5),
        ("d", 6),
    ]
    assert [each.old for each in records] == [None, None, WHOLE, {"id": "1"}, {"id": "1"}, {"id": "2"}, WHOLE]


def test_rows_held_back_for_their_long_values() -> None:
    topic = Topic(current={b"2": (b"long", 501), b"3": (b"newer", 999)}, histories=frozenset(HISTORIES))
    records = history(
        topic,
        Update(DOCUMENT, (b"1", None, None), False, (b"2", b"t", UNCHANGED_TOAST)),
        Update(DOCUMENT, (b"1", b"t", b"b"), True, (b"1", b"u", UNCHANGED_TOAST)),
        Update(DOCUMENT, None, False, (b"3", b"t", UNCHANGED_TOAST)),
        Update(DOCUMENT, None, False, (b"4", b"t", UNCHANGED_TOAST)),  # gone meanwhile
        Delete(DOCUMENT, (b"4", None, None), False),
    )
    assert [(each.op, each.old) for each in records] == [
        ("d", {"id": "1"}),
        ("c", {"id": "1"}),
        ("u", WHOLE),
        ("u", None),
        ("d", {"id": "4"}),
    ]
    assert [each.is_newer for each in records] == [False, False, False, True, False]
    assert [parse_header(each.header).toast for each in topic.records] == [None, None, None, "newer", None]
    assert records[1].new == {"id": "2", "title": '"t"', "body": '"long"'}


def test_an_identity_that_is_not_the_key() -> None:
    columns = tuple(replace(each, in_identity=each.name != "body") for each in DOCUMENT.columns)
    relation = Relation(2, "public", "document", ReplicaIdentity.INDEX, columns)
    table = TableEncoder(relation, ("id",), "t.public.document")
    assert table.old((b"1", b"t", None), False) == b'{"id":1,"title":"t"}'
