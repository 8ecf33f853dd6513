"""Messages and answers in, records and needs out: order, skipping, key changes, rows made whole."""

from __future__ import annotations

from typing import NamedTuple
from unittest.mock import ANY

import pytest

from cdc.base.lsn import LSN
from cdc.bridge.encode import TableEncoder
from cdc.bridge.order.counts import CountsByTable
from cdc.bridge.order.engine import Engine
from cdc.bridge.order.held import MAX_HELD, MAX_HELD_BYTES
from cdc.bridge.order.needs import Answer, Definition, Empty, Filled, Need, Rows, Unfilled
from cdc.bridge.order.touched import TouchedKeys
from cdc.contract.change import (
    UNCHANGED_TOAST,
    Begin,
    Column,
    Commit,
    Delete,
    Insert,
    Relation,
    ReplicaIdentity,
    Row,
    Truncate,
    Update,
)
from cdc.contract.header import header_position, parse_header
from cdc.contract.record import EventParts, Position, Progress, SourceIdentity

SOURCE = SourceIdentity("7", 1, 5)
XIDS = ((3 << 32) + 501,)
DOCUMENT = Relation(
    1,
    "public",
    "document",
    ReplicaIdentity.DEFAULT,
    (
        Column("id", 20, -1, "pg_catalog.int8", True),
        Column("title", 25, -1, "pg_catalog.text", False),
        Column("body", 25, -1, "pg_catalog.text", False),
    ),
)


class Record(NamedTuple):
    """What a topic holds."""

    topic: str
    key: bytes
    value: bytes | None
    header: bytes


class Topic:
    """Everything that came out, in order, and an engine whose needs are answered at once.

    Args:
        resume: the stored progress.
        current: what the table has, by the first key cell: body and xmin.
        altered: the table cannot be read as the stream describes it.
        histories: see ``Engine``.
    """

    def __init__(
        self,
        resume: Progress | None = None,
        current: dict[bytes, tuple[bytes, int]] | None = None,
        *,
        histories: frozenset[str] = frozenset(),
    ) -> None:
        self.records: list[Record] = []
        self.old: list[bytes | None] = []
        self.needs: list[Need] = []
        self.progress: list[Progress] = []
        self.current = current or {}
        self.anew: set[str] = set()
        self.portion = MAX_HELD
        self.counts = CountsByTable()
        self.touched = TouchedKeys()
        self.engine = Engine(
            resume=resume or Progress(LSN(100), None, 0, SOURCE),
            xid=(3 << 32) + 500,
            counts=self.counts,
            touched=self.touched,
            histories=histories,
        )

    @property
    def rereads(self) -> list[int]:
        """How many rows were asked for each time."""
        return [len(need.rows) for need in self.needs if isinstance(need, Rows)]

    def answer(self, need: Need | None) -> None:
        """Whatever is needed, until nothing is."""
        while need is not None:
            self.take()
            self.needs.append(need)
            self.progress.append(self.engine.progress())
            match need:
                case Definition(relation):
                    name = relation.qualified_name
                    table = TableEncoder(relation, ("id",), f"t.{name}")
                    need = self.engine.table(table, begins_anew=name in self.anew)
                    self.anew.discard(name)
                case Rows(rows=rows, xids=xids):
                    asked = list(zip(rows, xids, strict=True))[: self.portion]
                    need = self.engine.rows([self.found(row, xid) for row, xid in asked])
                case Empty(table, header):
                    self.records.append(Record(table.topic, b"*", None, header))
                    self.old.append(None)
                    need = self.engine.emptied()

    def found(self, row: Row, xid: int) -> Answer:
        """A row as the table has it."""
        found = self.current.get(row[0])  # type: ignore[arg-type]  # cells of this table are bytes
        if found is None:
            return Unfilled.GONE
        whole = tuple(found[0] if cell is UNCHANGED_TOAST else cell for cell in row)
        return Filled(whole, found[1] != xid & 0xFFFFFFFF)

    def take(self) -> None:
        """What is ready."""
        for topic, key, value, header, old in self.engine.take():
            self.records.append(Record(topic, key, value, header))
            assert not isinstance(old, EventParts)
            self.old.append(old)

    def settle(self) -> None:
        """Everything that is held."""
        self.answer(self.engine.settle())
        self.take()

    def feed(self, *changes: object) -> None:
        """Changes of the transaction that was begun."""
        for change in changes:
            match change:
                case Insert():
                    self.answer(self.engine.insert(change))
                case Update():
                    self.answer(self.engine.update(change))
                case Delete():
                    self.answer(self.engine.delete(change))
                case Truncate():
                    self.answer(self.engine.truncate(change))
        self.take()

    def transaction(self, lsn: int, *changes: object, xid: int = 501) -> None:
        """One whole source transaction; its end LSN is ten bytes on."""
        self.engine.begin(Begin(LSN(lsn), 1_000, xid))
        self.feed(*changes)
        self.engine.commit(Commit(LSN(lsn), LSN(lsn + 10), 1_000))

    def seen(self) -> list[tuple[bytes, bytes | None, Position]]:
        return [(each.key, each.value, header_position(each.header)) for each in self.records]


def insert(key: int, body: bytes = b"text") -> Insert:
    return Insert(DOCUMENT, (b"%d" % key, b"title", body))


def test_a_transaction_becomes_records_in_order() -> None:
    topic = Topic()
    topic.transaction(
        200,
        insert(1),
        Update(DOCUMENT, None, False, (b"1", b"new", b"text")),
        Delete(DOCUMENT, (b"1", None, None), False),
    )
    assert topic.seen() == [
        (b'{"id":1}', b'{"id":1,"title":"title","body":"text"}', Position(LSN(200), 1)),
        (b'{"id":1}', b'{"id":1,"title":"new","body":"text"}', Position(LSN(200), 2)),
        (b'{"id":1}', None, Position(LSN(200), 3)),
    ]
    assert topic.engine.progress() == Progress(LSN(210), None, 1_000, SOURCE, XIDS)


def test_the_header_carries_the_64_bit_transaction_id() -> None:
    topic = Topic()
    topic.transaction(200, insert(1), xid=501)
    topic.transaction(300, insert(2), xid=0xFFFFFFFE)  # older than the epoch's turn, hence of the epoch before
    assert [parse_header(each.header).xid for each in topic.records] == [(3 << 32) + 501, (2 << 32) + 0xFFFFFFFE]


def test_a_key_change_is_a_tombstone_and_an_upsert_at_one_position() -> None:
    topic = Topic()
    topic.transaction(200, Update(DOCUMENT, (b"1", None, None), False, (b"2", b"title", b"text")))
    assert topic.seen() == [
        (b'{"id":1}', None, Position(LSN(200), 1)),
        (b'{"id":2}', b'{"id":2,"title":"title","body":"text"}', Position(LSN(200), 1)),
    ]


@pytest.mark.parametrize(
    ("resume", "expected"),
    [
        (Progress(LSN(210), None, 0, SOURCE), []),
        (Progress(LSN(100), Position(LSN(200), 2), 0, SOURCE), [b'{"id":3}']),
        (Progress(LSN(100), Position(LSN(200), 0), 0, SOURCE), [b'{"id":1}', b'{"id":2}', b'{"id":3}']),
        (Progress(LSN(200), None, 0, SOURCE), [b'{"id":1}', b'{"id":2}', b'{"id":3}']),
    ],
)
def test_a_replay_skips_exactly_what_is_published(resume: Progress, expected: list[bytes]) -> None:
    topic = Topic(resume)
    topic.transaction(200, insert(1), insert(2), insert(3))
    assert [each.key for each in topic.records] == expected


def test_progress_inside_a_transaction_is_partial_and_never_goes_back() -> None:
    topic = Topic(Progress(LSN(100), Position(LSN(200), 2), 0, SOURCE))
    topic.engine.begin(Begin(LSN(200), 1_000, 501))
    topic.feed(insert(1))
    assert topic.engine.progress().partial == Position(LSN(200), 2)
    topic.feed(insert(2))
    topic.feed(insert(3))
    assert topic.engine.progress() == Progress(LSN(100), Position(LSN(200), 3), 0, SOURCE, XIDS)


def test_a_keepalive_advances_only_between_transactions() -> None:
    topic = Topic()
    topic.engine.begin(Begin(LSN(200), 1_000, 501))
    topic.engine.advance(LSN(190))
    assert topic.engine.complete_lsn == LSN(100)
    topic.engine.commit(Commit(LSN(200), LSN(210), 1_000))
    topic.engine.advance(LSN(250))
    assert topic.engine.progress() == Progress(LSN(250), None, 1_000, SOURCE, XIDS)


def test_unchanged_toast_holds_back_everything_behind_it_and_is_reread_once() -> None:
    topic = Topic(current={b"1": (b"long one", 501), b"2": (b"long two", 777)})
    topic.transaction(
        200,
        Update(DOCUMENT, None, False, (b"1", b"a", UNCHANGED_TOAST)),
        insert(3),
        Update(DOCUMENT, None, False, (b"2", b"b", UNCHANGED_TOAST)),
        Update(DOCUMENT, None, False, (b"9", b"c", UNCHANGED_TOAST)),
    )
    assert topic.records == []
    topic.settle()
    assert topic.seen() == [
        (b'{"id":1}', b'{"id":1,"title":"a","body":"long one"}', Position(LSN(200), 1)),
        (b'{"id":3}', b'{"id":3,"title":"title","body":"text"}', Position(LSN(200), 2)),
        (b'{"id":2}', b'{"id":2,"title":"b","body":"long two"}', Position(LSN(200), 3)),
    ], "key 9 is gone: its delete is on the way, so the older whole row stays"
    assert topic.rereads == [3]
    assert [parse_header(each.header).toast for each in topic.records] == [None, None, "newer"]


def test_unchanged_toast_is_filled_from_a_full_old_row_without_asking() -> None:
    topic = Topic()
    old: Row = (b"1", b"old", b"long")
    topic.transaction(200, Update(DOCUMENT, old, True, (b"2", b"new", UNCHANGED_TOAST)))
    assert topic.seen() == [
        (b'{"id":1}', None, Position(LSN(200), 1)),
        (b'{"id":2}', b'{"id":2,"title":"new","body":"long"}', Position(LSN(200), 1)),
    ]
    assert topic.rereads == []


def test_what_is_held_back_is_bounded() -> None:
    topic = Topic(current={b"1": (b"long", 501)})
    topic.transaction(
        200, Update(DOCUMENT, None, False, (b"1", b"a", UNCHANGED_TOAST)), *(insert(key) for key in range(MAX_HELD + 5))
    )
    assert len(topic.records) == MAX_HELD + 6
    assert topic.rereads == [1]


def test_a_truncate_comes_after_what_was_before_it_and_counts_as_one_change() -> None:
    topic = Topic()
    topic.transaction(200, insert(1), Truncate((DOCUMENT,), False, False), insert(2))
    assert [(key, position.seq) for key, _, position in topic.seen()] == [(b'{"id":1}', 1), (b"*", 2), (b'{"id":2}', 3)]
    assert topic.progress[-1].partial == Position(LSN(200), 1)


def test_the_json_document_null_is_not_sql_null() -> None:
    relation = Relation(
        2,
        "public",
        "document",
        ReplicaIdentity.DEFAULT,
        (Column("id", 20, -1, "pg_catalog.int8", True), Column("j", 3802, -1, "pg_catalog.jsonb", False)),
    )
    topic = Topic()
    topic.transaction(200, Insert(relation, (b"1", b"null")), Insert(relation, (b"2", None)))
    assert [each.value for each in topic.records] == [b'{"id":1,"j":null}', b'{"id":2,"j":null}']
    assert [parse_header(each.header).json_null for each in topic.records] == [(1,), ()]


def test_a_truncate_of_two_tables_of_which_the_second_begins_anew_is_counted_when_it_is_over() -> None:
    """Nothing that is committed on the way covers it, nor less than what came before it."""
    second = Relation(2, "public", "second", ReplicaIdentity.DEFAULT, DOCUMENT.columns)
    topic = Topic()
    topic.anew.add("public.second")
    topic.transaction(200, insert(1), Truncate((DOCUMENT, second), False, False), insert(2))
    emptied = [
        (need.table.topic, need.is_truncate, progress.partial)
        for need, progress in zip(topic.needs, topic.progress, strict=True)
        if isinstance(need, Empty)
    ]
    assert emptied == [
        ("t.public.document", True, Position(LSN(200), 1)),
        ("t.public.second", False, Position(LSN(200), 1)),
        ("t.public.second", True, Position(LSN(200), 1)),
    ]
    assert [position.seq for _, _, position in topic.seen()] == [1, 2, 2, 2, 3]


def test_progress_ends_before_the_first_change_that_is_held() -> None:
    topic = Topic(current={b"1": (b"long", 501)})
    topic.transaction(200, insert(3), Update(DOCUMENT, None, False, (b"1", b"a", UNCHANGED_TOAST)))
    topic.transaction(300, insert(4))
    assert (topic.engine.progress().lsn, topic.engine.progress().partial) == (LSN(100), Position(LSN(200), 1))
    assert (topic.engine.settled_lsn, topic.engine.complete_lsn) == (LSN(100), LSN(310))
    topic.settle()
    assert (topic.engine.progress().lsn, topic.engine.progress().partial) == (LSN(310), None)


def test_a_changed_key_goes_with_its_row_or_not_at_all() -> None:
    moved = Update(DOCUMENT, (b"1", None, None), False, (b"2", b"t", UNCHANGED_TOAST))
    topic = Topic(current={b"2": (b"long", 501)})
    topic.transaction(200, moved)
    assert topic.records == [], "the old key keeps the row while the new one waits"
    topic.settle()
    assert [key for key, _, _ in topic.seen()] == [b'{"id":1}', b'{"id":2}']
    assert topic.needs[-1] == Rows(ANY, ANY, ANY, ((b'{"id":1}', b'{"id":2}'),))


def test_a_row_that_cannot_be_read_leaves_both_of_its_keys_as_they_are() -> None:
    topic = Topic()
    topic.found = lambda row, xid: Unfilled.UNREADABLE  # type: ignore[method-assign]  # replaced on purpose
    topic.transaction(200, Update(DOCUMENT, (b"1", None, None), False, (b"2", b"t", UNCHANGED_TOAST)), insert(3))
    topic.settle()
    assert [key for key, _, _ in topic.seen()] == [b'{"id":3}']


def test_what_is_held_is_bounded_by_bytes_and_let_go_in_portions() -> None:
    """Every answer lets what is whole go, so that no more of it is in memory than was asked for at once."""
    topic = Topic(current={b"%d" % key: (b"long", 501) for key in range(8)})
    topic.portion = 3
    title = b"x" * (MAX_HELD_BYTES // 8)
    held = [Update(DOCUMENT, None, False, (b"%d" % key, title, UNCHANGED_TOAST)) for key in range(8)]
    topic.transaction(200, *held)
    assert topic.rereads == [8, 5, 2]
    assert [progress.partial for progress in topic.progress[1:]] == [
        None,
        Position(LSN(200), 3),
        Position(LSN(200), 6),
    ]
    assert len(topic.records) == 8


def test_what_happened_is_counted_for_each_table() -> None:
    topic = Topic(current={b"1": (b"long", 501)})
    short = Update(DOCUMENT, None, False, (b"1", b"a", UNCHANGED_TOAST))
    whole = Update(DOCUMENT, None, False, (b"1", b"a", b"text"))
    removed = Delete(DOCUMENT, (b"1", None, None), False)
    truncate = Truncate((DOCUMENT,), False, False)
    topic.transaction(200, insert(1), insert(2), whole, short, short, removed, removed, truncate, truncate)
    counts = topic.counts["public.document"]
    assert (counts.changes, counts.toast_rereads, counts.truncates) == (7, 2, 2)


def test_a_replay_skips_a_truncate_that_is_published() -> None:
    topic = Topic(Progress(LSN(100), Position(LSN(200), 3), 0, SOURCE))
    truncate = Truncate((DOCUMENT,), False, False)
    topic.transaction(200, insert(1), truncate, truncate, truncate, insert(2))
    assert [(key, position.seq) for key, _, position in topic.seen()] == [(b"*", 4), (b'{"id":2}', 5)]


def test_a_watched_topic_has_every_key_with_the_transaction_that_touched_it_last() -> None:
    other = Relation(2, "public", "other", ReplicaIdentity.DEFAULT, DOCUMENT.columns)
    topic = Topic(current={b"6": (b"long", 501), b"8": (b"long", 501)})
    recording = topic.touched.watch("t.public.document", ())
    elsewhere = topic.touched.watch("t.public.other", ())
    topic.transaction(
        200,
        insert(1),
        Update(DOCUMENT, (b"2", None, None), False, (b"3", b"t", b"text")),
        Delete(DOCUMENT, (b"4", None, None), False),
        Insert(other, (b"1", b"t", b"text")),
        Update(DOCUMENT, (b"5", None, None), False, (b"6", b"t", UNCHANGED_TOAST)),
        insert(7),  # waits, as all that follows
        Update(DOCUMENT, None, False, (b"8", b"t", UNCHANGED_TOAST)),
    )
    xid = (3 << 32) + 501
    assert recording.keys == {b'{"id":%d}' % key: xid for key in range(1, 9)}
    assert elsewhere.keys == {b'{"id":1}': xid}
    topic.transaction(300, insert(1), Truncate((DOCUMENT,), False, False), xid=502)
    assert recording.keys[b'{"id":1}'] == xid + 1
    assert recording.truncated == [xid + 1]
    assert elsewhere.truncated == []


def test_what_was_ready_stays_before_what_is_let_go() -> None:
    topic = Topic()
    engine = topic.engine
    engine.begin(Begin(LSN(200), 1_000, 501))
    topic.answer(engine.insert(insert(1)))
    engine.insert(insert(2))
    engine.update(Update(DOCUMENT, None, False, (b"3", b"a", UNCHANGED_TOAST)))
    engine.insert(insert(4))
    engine.update(Update(DOCUMENT, None, False, (b"5", b"a", UNCHANGED_TOAST)))
    engine.settle()
    engine.rows([Filled((b"3", b"a", b"long"), False)])
    engine.rows([Filled((b"5", b"a", b"long"), False)])
    engine.insert(insert(6))
    assert [key for _, key, *_ in engine.take()] == [b'{"id":%d}' % key for key in (1, 2, 3, 4, 5, 6)]


def test_the_json_document_null_of_an_update() -> None:
    columns = (*DOCUMENT.columns, Column("j", 3802, -1, "pg_catalog.jsonb", False))
    relation = Relation(2, "public", "document", ReplicaIdentity.DEFAULT, columns)
    topic = Topic(current={b"3": (b"long", 501)})
    topic.transaction(
        200,
        Update(relation, None, False, (b"1", b"t", b"text", b"null")),
        Update(relation, None, False, (b"2", b"t", b"text", None)),
        Update(relation, None, False, (b"3", b"t", UNCHANGED_TOAST, b"null")),
    )
    topic.settle()
    assert [parse_header(each.header).json_null for each in topic.records] == [(3,), (), (3,)]


def test_only_topics_with_a_history_have_old_rows() -> None:
    """Building the old row costs as much as the new one."""
    changes = (
        Update(DOCUMENT, (b"1", b"old", b"long"), True, (b"1", b"new", b"long")),
        Delete(DOCUMENT, (b"1", b"new", b"long"), True),
    )
    plain, kept = Topic(), Topic(histories=frozenset({"t.public.document"}))
    for topic in (plain, kept):
        topic.transaction(200, *changes)
    assert plain.old == [None, None]
    assert kept.old == [b'{"id":1,"title":"old","body":"long"}', b'{"id":1,"title":"new","body":"long"}']


def test_transactions_that_snapshots_may_not_see() -> None:
    topic = Topic()
    topic.engine.distrust([7, 8])
    topic.transaction(200, insert(1))
    assert topic.engine.unseen == {7, 8, *XIDS}
    topic.engine.saw(lambda xid: xid < 8)
    assert topic.engine.unseen == {8, *XIDS}


def test_progress_inside_the_first_transaction_after_the_stored_progress() -> None:
    topic = Topic(Progress(LSN(200), None, 0, SOURCE))
    assert topic.engine.unpublished_since == 0
    topic.engine.begin(Begin(LSN(200), 1_000, 501))
    topic.feed(insert(1))
    assert topic.engine.progress().partial == Position(LSN(200), 1)
    assert topic.engine.unpublished_since == 1_000


def test_a_definition_is_asked_for_with_the_transaction_that_needs_it() -> None:
    topic = Topic()
    topic.transaction(200, insert(1))
    assert topic.needs == [Definition(DOCUMENT, (3 << 32) + 501)]


def test_rows_of_two_tables_are_read_again_one_table_after_the_other() -> None:
    other = Relation(2, "public", "other", ReplicaIdentity.DEFAULT, DOCUMENT.columns)
    topic = Topic(current={b"%d" % key: (b"long", 501) for key in (1, 2, 3)})
    topic.transaction(
        200,
        Update(DOCUMENT, None, False, (b"1", b"a", UNCHANGED_TOAST)),
        Update(other, None, False, (b"2", b"a", UNCHANGED_TOAST)),
        Update(DOCUMENT, None, False, (b"3", b"a", UNCHANGED_TOAST)),
    )
    topic.settle()
    asked = [(need.table.topic, [row[0] for row in need.rows]) for need in topic.needs if isinstance(need, Rows)]
    assert asked == [("t.public.document", [b"1", b"3"]), ("t.public.other", [b"2"])]
    assert [each.topic for each in topic.records] == ["t.public.document", "t.public.other", "t.public.document"]


def test_what_was_let_go_counts_no_more_for_the_bounds() -> None:
    """Neither the bytes of rows nor those of records that only waited."""
    topic = Topic(current={b"1": (b"long", 501)})
    title = b"x" * (MAX_HELD_BYTES // 4)
    for lsn in range(200, 1_000, 100):
        topic.transaction(
            lsn, Update(DOCUMENT, None, False, (b"1", title, UNCHANGED_TOAST)), insert(2, title), insert(3, title)
        )
        assert topic.engine.holds_records, lsn
        topic.settle()
    assert topic.rereads == [1] * 8
    topic.transaction(2_000, Update(DOCUMENT, None, False, (b"1", title, UNCHANGED_TOAST)), *[insert(2, title)] * 3)
    assert not topic.engine.holds_records, "a fourth of the limit, four times"


def test_progress_ends_before_a_record_that_only_waits() -> None:
    """The first one that is held need not be the row that is read again: that one may have been answered."""
    topic = Topic()
    engine = topic.engine
    topic.transaction(200, insert(1), Update(DOCUMENT, None, False, (b"3", b"a", UNCHANGED_TOAST)), insert(4))
    topic.transaction(300, insert(5), Update(DOCUMENT, None, False, (b"6", b"a", UNCHANGED_TOAST)), insert(7))
    engine.settle()
    engine.rows([Filled((b"3", b"a", b"long"), False)])
    assert (engine.progress().lsn, engine.progress().partial) == (LSN(210), Position(LSN(300), 1))
