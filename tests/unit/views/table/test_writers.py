"""What the writers of a view leave in its store: tables that come, go and change their names; stops on the way."""

from __future__ import annotations

from typing import Any

import msgspec
import orjson
import pytest

from cdc.base.config import OtherTopic, ViewConfig
from cdc.base.lsn import LSN
from cdc.contract.header import DELETE, UPDATE, HeaderStamp, of_no_row
from cdc.contract.ports import CutStanding, StoredRecord
from cdc.contract.record import Progress, SchemaColumn, SourceIdentity, TableSchema
from cdc.contract.table_states import TableState
from cdc.views.query.evidence import row_headers
from cdc.views.store.memory import MemoryStore
from cdc.views.table.answers import Range
from cdc.views.table.facts import KeyColumn, TableFacts, encode, read_facts
from cdc.views.table.feed_facts import FeedTopic
from cdc.views.table.filled import FilledTable
from cdc.views.table.forms import table_form
from cdc.views.table.indexes import Indexes
from cdc.views.table.keys import is_respelled
from cdc.views.table.table_view import TableView
from cdc.views.table.topic_writer import TopicWriter
from cdc.views.table.writer import ViewReplica

TOPIC = "x.public.items"
SOURCE = SourceIdentity("7", 1, 5)
INDEX = {"public.items": (("color",),)}


class Deployment:
    """One store, and the sessions of its writer."""

    def __init__(self, **view: Any) -> None:
        self.store = MemoryStore()
        self.view = ViewConfig(store="memory", **{"tables": ("public.*",), **view})
        self.reader = TableView(MemoryStore(self.store.contents))
        self.start()

    def start(self) -> None:
        """Another session; what the last one had open is forgotten."""
        self.store.close()
        self.replica = ViewReplica(self.store, "x", self.view)
        assert self.replica.lock()
        self.restored = self.replica.restore()

    def begin(self, topic: str = TOPIC) -> str:
        resumes = any(name == topic for name, _ in self.restored.offsets)
        return self.replica.begin(
            topic, "id", ends=(9,), resumes=resumes, why_anew="", is_asked=False, now=1.0
        )  # fmt: skip

    def write(self, *rows: dict[str, Any], topic: str = TOPIC) -> None:
        header = b"v=1;op=c;lsn=0/64;seq=1;schema=0;ts=5"
        records = [
            StoredRecord(topic, 0, n, orjson.dumps({"id": row["id"]}), orjson.dumps(row), header)
            for n, row in enumerate(rows)
        ]
        self.replica.write([self.replica.prepare(topic, records)])

    def cut(self, topic: str = TOPIC) -> None:
        standing = CutStanding(is_true=True, loading=(), outside=(), joining=(topic,), caught_up_at=1.0)
        self.replica.commit(Progress(LSN(100), None, 5, SOURCE), {(topic, 0): 9}, standing)

    def table(self, name: str = "public.items") -> TableFacts:
        return self.store.read(read_facts).tables[name]

    def by_color(self, color: object, name: str = "public.items") -> list[int]:
        return [orjson.loads(row.row)["id"] for row in self.reader.scan(name, Range(by={"color": color})).rows]


def schema(name: str = "items", color: str = "text", topic: str = TOPIC) -> TableSchema:
    columns = (SchemaColumn("id", "int4"), SchemaColumn("color", color))
    return TableSchema(f"{hash((name, color)) & 0xFFFF:016x}", "public", name, topic, ("id",), columns)


def filled(*rows: dict[str, Any], **view: Any) -> Deployment:
    made = Deployment(**view)
    made.replica.learn([schema()])
    assert made.begin() == "anew"
    made.write(*rows)
    made.cut()
    return made


def test_a_table_that_takes_the_name_of_another_one_is_there_at_once() -> None:
    made = filled({"id": 1, "color": "red"}, index=INDEX)
    made.replica.learn([schema(topic="other")])  # the table is published to another topic, and has an index to be built
    assert set(made.store.read(read_facts).tables) == {"public.items"}
    assert made.table().topic == "other"


def test_a_table_without_rows_never_goes_on_at_offsets_of_before() -> None:
    made = filled({"id": 1, "color": "red"}, exclude=("public.hidden",))
    made.start()
    made.replica.learn([schema(), schema("hidden")])
    assert made.replica.active() == []
    made.replica.learn([schema("items")])
    assert (made.begin(), made.table().generation) == ("anew", 1)


def test_an_index_is_not_built_beside_rows_that_are_not_committed_yet() -> None:
    made = filled({"id": 1, "color": "red"}, index={"public.renamed": (("color",),)})
    made.write({"id": 1, "color": "blue"}, {"id": 2, "color": "blue"})
    made.replica.learn([schema(), schema("renamed")])
    assert made.replica.active() == []  # so the session ends, and with it what is open
    made.start()
    made.replica.learn([schema(), schema("renamed")])
    assert made.begin() == "joined"
    made.write({"id": 1, "color": "blue"}, {"id": 2, "color": "blue"})
    made.cut()
    assert [made.by_color(color, "public.renamed") for color in ("red", "blue")] == [[], [1, 2]]


def test_who_follows_a_name_is_told_that_it_is_another_tables() -> None:
    made = Deployment()
    made.replica.learn([schema(), schema("old", topic="y")])
    for topic in (TOPIC, "y"):
        made.begin(topic)
        made.write({"id": len(topic), "color": "red"}, topic=topic)
        made.cut(topic)
    token = made.reader.changes("", ("public.items",)).token
    made.replica.learn([schema("new"), schema("items", topic="y")])
    assert made.table().topic == "y"
    assert made.reader.changes(token, ("public.items",)).reset.keys() == {"public.items"}


def test_the_row_of_another_table_is_another_version_wherever_it_lies() -> None:
    """Whoever asks by name, and sends the version that it knows, would be told that nothing changed."""
    made = Deployment()
    made.replica.learn([schema(), schema("old", topic="y")])
    for topic in (TOPIC, "y"):
        made.begin(topic)
        made.write({"id": 1, "color": topic}, topic=topic)
        made.cut(topic)
    before = made.reader.get("public.items", [1])
    made.replica.learn([schema("new"), schema("items", topic="y")])
    after = made.reader.get("public.items", [1])
    assert before.row is not None
    assert after.row is not None
    assert (before.row.row, before.row.offset) == (b'{"id":1,"color":"x.public.items"}', after.row.offset)
    tag, _ = row_headers(before.row, before.evidence, 0.0)
    assert tag != row_headers(after.row, after.evidence, 0.0)[0]


def test_a_table_that_comes_back_is_another_one() -> None:
    made = filled({"id": 1, "color": "red"})
    seen = [made.table().number]
    for tables in (("other.*",), ("public.*",)):
        made.view = made.view.model_copy(update={"tables": tables})
        made.start()
        made.replica.learn([schema()])
    made.begin()
    seen.append(made.table().number)
    assert len({*seen}) == 2


def test_values_of_a_former_type_stop_nothing() -> None:
    made = filled({"id": 1, "color": "red"}, {"id": 2, "color": {"deep": []}}, index=INDEX)
    made.start()
    made.replica.learn([schema(), schema(color="float8")])
    assert made.begin() == "joined"
    made.write({"id": 1, "color": 1})
    made.cut()
    assert made.by_color(1) == [1]
    assert made.table().state == "exact"


def test_a_tombstone_of_another_spelling_takes_its_own_record_only() -> None:
    """A repair writes one for a key that another program spelled with a blank; it took the row of the key."""
    made = filled({"id": 1, "color": "red"}, {"id": 2, "color": "blue"}, index=INDEX)
    stamp, spelled = HeaderStamp(LSN(100), None, 5), [b'{"id": 1}', b'{"id": 2}']
    forged = StoredRecord(TOPIC, 0, 5, spelled[1], b'{"id":2,"color":"forged"}', stamp.header(UPDATE, 1, "0"))
    made.replica.write([made.replica.prepare(TOPIC, [forged])])
    header = of_no_row(stamp.header(DELETE, 2, "0"))
    tombstones = [StoredRecord(TOPIC, 0, 6 + n, key, None, header) for n, key in enumerate(spelled)]
    made.replica.write([made.replica.prepare(TOPIC, tombstones)])
    made.cut()
    assert [made.by_color(color) for color in ("red", "blue", "forged")] == [[1], [], []]
    assert [row.row for row in made.reader.scan("public.items", Range()).rows] == [b'{"id":1,"color":"red"}']


def test_a_stopped_table_takes_what_it_aimed_at_with_it() -> None:
    made = Deployment()
    made.replica.learn([schema()])
    made.begin()
    made.view = made.view.model_copy(update={"tables": ("other.*",)})
    made.start()
    made.replica.learn([schema()])
    facts = made.store.read(read_facts)
    assert facts.view is not None
    assert (facts.tables, dict(facts.view.targets)) == ({}, {})


class Other:
    """A topic of another program; ``take`` is what a session does at its beginning."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.reader = TableView(MemoryStore(self.store.contents))
        self.start()

    def start(self) -> None:
        self.store.close()
        self.writer = TopicWriter(self.store, "x", {"names": OtherTopic()})
        assert self.writer.lock()
        self.writer.restore()

    def take(self) -> None:
        self.writer.take_up("names", "id", (9,), "", 1.0)

    def write(self, *keys: bytes) -> None:
        self.writer.write([StoredRecord("names", 0, n, key, b"1", b"") for n, key in enumerate(keys)])
        self.writer.commit({("names", 0): len(keys)})

    def caught_up_at(self) -> float:
        facts = self.store.read(read_facts).view
        assert facts is not None
        return facts.caught_up_at


def test_followers_learn_what_a_table_took_before_it_was_stopped() -> None:
    other = Other()
    other.take()
    other.write(b"a")
    token = other.reader.changes("", ("names",)).token
    other.write(b"b")
    assert other.reader.changes(token, ("names",)).changed == []  # it loads, and tells at its end
    other.writer.stop("names", "it is not compacted")
    other.writer.commit({})
    other.start()
    other.take()
    assert other.writer.reached("names", 2.0)
    other.writer.commit({})
    assert other.reader.changes(token, ("names",)).reset.keys() == {"names"}


def test_a_topic_that_loads_says_nothing_of_its_age() -> None:
    other = Other()
    other.take()
    other.write(b"a")
    assert other.caught_up_at() == 0
    other.writer.reached("names", 2.0)
    other.writer.commit({})
    assert other.caught_up_at() == 2.0


@pytest.mark.parametrize(
    ("sql_type", "is_other"), [("float8", True), ("jsonb", True), ("float4[]", True), ("int8", False), ("text", False)]
)
def test_a_store_of_before_is_read_anew_where_keys_are_kept_otherwise(sql_type: str, is_other: bool) -> None:
    """It took 0 and -0 for one key, and numbers of a document that one double stands for."""
    held = TableFacts(number=1, name="t", topic="t", key=(KeyColumn("id", sql_type),), generation=1)
    table = FilledTable(
        msgspec.json.decode(encode(held).replace(b",false]", b"]"), type=TableFacts), FeedTopic(state=TableState.EXACT)
    )
    key = [KeyColumn("id", sql_type, is_exact=is_respelled(sql_type))]
    table.describe(table_form(key), key, key, Indexes((), {}))
    assert table.has_other_key == is_other
