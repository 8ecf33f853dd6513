"""Which records a repair writes: for each key, whatever bytes it has and wherever it was seen, beside a busy stream."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from cdc.base.lsn import LSN
from cdc.bridge.backfill.repair_part import Repaired
from cdc.bridge.backfill.repair_rows import RepairWriter
from cdc.bridge.backfill.rows import Ordinals
from cdc.bridge.backfill.stream_side import StreamSide
from cdc.bridge.capture.key_rows import KeyAnswer, KeyRows
from cdc.bridge.capture.reading import Moment
from cdc.bridge.encode import TableEncoder
from cdc.bridge.order.touched import Recording, TouchedKeys
from cdc.contract.change import Column, Relation, ReplicaIdentity
from cdc.contract.formats.key_text import key_texts
from cdc.contract.header import parse_header
from cdc.contract.partition import partition_of
from cdc.contract.record import RepairKey
from cdc.contract.snapshot import Snapshot
from tests.unit.bridge.backfill.stage import Stream, World

TOPIC = "shop.public.t"
PARTITIONS = 3
RELATION = Relation(
    7,
    "public",
    "t",
    ReplicaIdentity.DEFAULT,
    (Column("id", 23, -1, "pg_catalog.int4", True), Column("v", 25, -1, "pg_catalog.text", False)),
)
JSONB = Column("v", 3802, -1, "pg_catalog.jsonb", False)
KEY, ROW = b'{"id":1}', b'{"id":1,"v":"row"}'
ALIAS = b'{"id":"1"}'
ELSEWHERE = (partition_of(KEY, PARTITIONS) + 1) % PARTITIONS


class Written(World):
    """Records in order: key, value, partition when it was named."""

    def __init__(self) -> None:
        super().__init__(["t"])
        self.written: list[tuple[bytes, bytes | None, int | None]] = []
        self.headers: list[bytes] = []
        self.ordinals = Ordinals()
        self.recording = Recording(TOPIC, ())
        self.done = Repaired()

    def publish(
        self, keys: Sequence[RepairKey], present: Iterable[int] = (1,), unread: int = 0, cell: bytes = b"row"
    ) -> Written:
        """Repair these keys of a table with these rows, of which the last ones were too many to be read at once."""
        answers = []
        for each in keys:
            texts = key_texts(RELATION.columns[:1], each.key)
            is_there = texts is not None and int(texts[0]) in present
            answers.append(KeyAnswer(texts, (texts[0], cell) if texts is not None and is_there else None))
        answers[len(answers) - unread :] = [KeyAnswer(each.key, None, False) for each in answers[-unread:] if unread]
        moment = Moment(Snapshot(50, frozenset()), "50:50:", LSN(90), None)
        relation = replace(RELATION, columns=(RELATION.columns[0], JSONB)) if cell == b"null" else RELATION
        found = KeyRows(moment, relation, ("id",), tuple(answers))
        writer = RepairWriter(TOPIC, PARTITIONS, StreamSide(Stream(), TouchedKeys()), self.ordinals, self)
        writer.publish(keys, found, TableEncoder(relation, ("id",), TOPIC), self.recording, self.done)
        return self

    def produce(self, topic: str, key: bytes, value: bytes | None, header: bytes) -> None:
        assert topic == TOPIC
        self.written.append((key, value, None))
        self.headers.append(header)

    def bury(self, topic: str, partition: int, key: bytes, header: bytes) -> None:
        assert topic == TOPIC
        self.written.append((key, None, partition))
        self.headers.append(header)


def test_a_row_or_a_tombstone() -> None:
    written = Written().publish([RepairKey(KEY), RepairKey(b'{"id":2}')])
    assert written.written == [(KEY, ROW, None), (b'{"id":2}', None, None)]
    assert (written.done.rows, written.done.tombstones, written.done.touched) == (1, 1, 0)
    first, second = map(parse_header, written.headers)
    assert (first.op, first.lsn, first.seq, first.snap) == ("r", LSN(99), 1, "50:50:")
    assert (second.op, second.seq) == ("d", 2)


def test_ordinals_go_on_from_those_before() -> None:
    written = Written()
    written.ordinals.learn(TOPIC, 70)
    written.publish([RepairKey(KEY)])
    assert parse_header(written.headers[0]).seq == written.ordinals[TOPIC] == 71


def test_what_the_stream_touched_is_left_alone() -> None:
    written = Written()
    written.recording.keys[KEY] = 60
    written.publish([RepairKey(KEY)])
    assert written.written == []
    assert written.done.touched == 1
    assert written.done.again == []


def test_another_spelling_is_deleted_before_the_row_is_written() -> None:
    written = Written().publish([RepairKey(KEY), RepairKey(ALIAS)])
    assert written.written == [(KEY, ROW, None), (ALIAS, None, None), (KEY, ROW, None)]


def test_another_spelling_of_no_row() -> None:
    written = Written().publish([RepairKey(ALIAS)], present=())
    assert written.written == [(ALIAS, None, None), (KEY, None, None)]


def test_no_key_of_this_table() -> None:
    foreign = [b"", b"x", b'{"no":1}']
    assert Written().publish([*map(RepairKey, foreign)]).written == [(key, None, None) for key in foreign]


def test_a_record_elsewhere_is_buried_there_first() -> None:
    written = Written().publish([RepairKey(KEY, ELSEWHERE)])
    assert written.written == [(KEY, None, ELSEWHERE), (KEY, ROW, None)]


def test_where_it_belongs_or_nowhere_is_not_elsewhere() -> None:
    here = partition_of(KEY, PARTITIONS)
    written = Written().publish([RepairKey(KEY, here), RepairKey(KEY, PARTITIONS), RepairKey(KEY, -1)])
    assert written.written == [(KEY, ROW, None)]


def test_a_touched_row_is_looked_up_again_behind_its_tombstones() -> None:
    """The stream's record lies before them, and who knows rows by the key's values takes them for the row's."""
    for key in (RepairKey(ALIAS), RepairKey(KEY, ELSEWHERE)):
        written = Written()
        written.recording.keys[KEY] = 60
        written.publish([key])
        assert [value for _, value, _ in written.written] == [None]
        assert written.done.again == [RepairKey(KEY)]
        assert written.done.touched == 0


def test_a_truncate_that_the_snapshot_does_not_see_touched_every_row() -> None:
    written = Written()
    written.recording.truncated.append(55)
    written.publish([RepairKey(KEY), RepairKey(b'{"id":2}')])
    assert written.written == [(b'{"id":2}', None, None)]
    assert written.done.touched == 1


def test_what_was_not_read_is_neither_a_row_nor_gone() -> None:
    written = Written().publish([RepairKey(KEY), RepairKey(b'{"id":2}', ELSEWHERE)], present=(1, 2), unread=1)
    assert written.written == [(KEY, ROW, None)]
    assert written.done.again == [RepairKey(b'{"id":2}', ELSEWHERE)]


def test_everything_that_was_not_read_is_asked_for_again() -> None:
    keys = [RepairKey(b'{"id":%d}' % number) for number in (1, 2, 3)]
    written = Written().publish(keys, present=(1, 2, 3), unread=2)
    assert written.done.again == keys[1:]


def test_tombstones_beside_the_row_say_that_they_belong_to_no_row() -> None:
    written = Written()
    keys = [RepairKey(ALIAS), RepairKey(ALIAS), RepairKey(KEY, ELSEWHERE), RepairKey(b"x", ELSEWHERE), RepairKey(b"y")]
    written.publish([*keys, RepairKey(b'{"id":2}'), RepairKey(b'{"id":3}')], present=(1, 2))
    assert written.written[:4] == [(ALIAS, None, None), (KEY, ROW, None), (KEY, None, ELSEWHERE), (KEY, ROW, None)]
    are_of_no_row = [header.endswith(b";row=none") for header in written.headers]
    expected = [value is None and key != b'{"id":3}' for key, value, _ in written.written]
    assert are_of_no_row == expected
    assert [parse_header(header).seq for header in written.headers] == [*range(1, len(written.headers) + 1)]
    counts = [value is None for _, value, _ in written.written]
    assert (written.done.tombstones, written.done.rows) == (counts.count(True), counts.count(False))
    size = sum(len(key if value is None else value) for key, value, number in written.written if number is None)
    assert written.done.bytes == size


def test_counts_go_on_from_those_before() -> None:
    written = Written()
    for _ in range(2):
        written.recording.keys[b'{"id":4}'] = 60
        keys = [RepairKey(b'{"id":%d}' % number) for number in (1, 2, 4)]
        written.publish([*keys, RepairKey(b"x"), RepairKey(KEY, ELSEWHERE)])
    done = written.done
    assert (done.rows, done.tombstones, done.touched) == (4, 6, 2)


def test_a_document_that_looks_like_null_is_told_from_it() -> None:
    (header,) = Written().publish([RepairKey(KEY)], cell=b"null").headers
    assert parse_header(header).json_null == (1,)
    (header,) = Written().publish([RepairKey(KEY)]).headers
    assert parse_header(header).json_null == ()


def test_the_first_partition_may_be_elsewhere_as_well() -> None:
    number, text = next(
        (number, b'{"id":%d}' % number) for number in range(9) if partition_of(b'{"id":%d}' % number, PARTITIONS)
    )
    written = Written().publish([RepairKey(text, 0)], present=(number,))
    assert written.written[0] == (text, None, 0)
