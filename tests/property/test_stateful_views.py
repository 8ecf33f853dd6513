"""A view under random steps: in Redis it answers as it does in memory, and as the fold of what was committed.

Redis gets a transaction in pieces of some hundred bytes, so that writers die with changes that are staged there.
``SEED=42`` replays a run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import msgspec
import orjson
import pytest
from hypothesis import strategies
from hypothesis.stateful import initialize, invariant, precondition, rule

from cdc.base.config import ViewConfig
from cdc.base.errors import StoreRefused
from cdc.base.lsn import LSN
from cdc.contract.header import DELETE, UPDATE, HeaderStamp
from cdc.contract.ports import CutStanding, StoredRecord
from cdc.contract.record import Progress, SchemaColumn, SourceIdentity, TableSchema
from cdc.lab.stack import Redis
from cdc.views.store import redis_transaction
from cdc.views.store.memory import MemoryStore
from cdc.views.store.port import Store
from cdc.views.table.answers import Range
from cdc.views.table.errors import NotLoaded, UnknownTable
from cdc.views.table.table_view import TableView
from cdc.views.table.writer import ViewReplica
from tests.integration.views.store.redis_place import Prefix
from tests.support.soak import times
from tests.support.stateful import Machine, run_machine
from tests.support.views import look
from tests.support.waiting import eventually

BLOCK_BYTES: Final = 500
TOPIC: Final = "x.public.items"
NAMES: Final = ("items", "renamed")
SOURCE: Final = SourceIdentity("7", 1, 5)
INDEXES: Final[tuple[tuple[str, ...], ...]] = (("color",), ("color", "id"))
COLUMNS: Final = (SchemaColumn("region", "text"), SchemaColumn("id", "int4"), SchemaColumn("color", "text"))

Row = dict[str, Any]
RowKey = tuple[str, int]

REGIONS: Final = ("a", "ab", "é\0", "")
IDS: Final = (-1, 0, 7)
COLORS: Final = ("red", "re", None, "r\0")

row_keys = strategies.tuples(strategies.sampled_from(REGIONS), strategies.sampled_from(IDS))
changes = strategies.lists(
    strategies.tuples(row_keys, strategies.sampled_from([*COLORS, "deleted", "no row"])), min_size=1, max_size=8
)


class MemoryPlace:
    """Where a memory is, for one store after the other."""

    def __init__(self) -> None:
        self._first = MemoryStore()

    def open(self, *, read_only: bool = False) -> Store:
        return MemoryStore(self._first.contents)

    def die(self, store: Store) -> None:
        """Its writer ends, and nobody closes anything."""
        self._first.contents.writer = None


class RedisPlace(Prefix):
    """Where a Redis is, for one store after the other."""

    def die(self, store: Store) -> None:
        """The lease of its writer ends, who believes to have the lock."""
        with self.raw() as client:
            client.delete(f"{self.prefix}:.lock")


@dataclass
class Side:
    """A place, the session that fills it, and who reads it."""

    place: MemoryPlace | RedisPlace
    reader: TableView = field(init=False)
    store: Store = field(init=False)
    replica: ViewReplica = field(init=False)
    dead: Store | None = None
    token: str = ""

    def __post_init__(self) -> None:
        self.read_from = self.place.open(read_only=True)
        self.reader = TableView(self.read_from)

    def start(self, tables: Sequence[str]) -> Any:
        """A session; what it is told of the last one."""
        self.store = self.place.open()
        index = {f"public.{name}": INDEXES for name in NAMES}
        self.replica = ViewReplica(self.store, "x", ViewConfig(store="memory", tables=tuple(tables), index=index))
        assert eventually(self._is_locked)
        return self.replica.restore()

    def _is_locked(self) -> bool:
        if self.dead is not None:  # again: it may have renewed its lease meanwhile, as nobody had taken over
            self.place.die(self.dead)
        return self.replica.lock()


class Twins(Machine):
    """Two views that are filled alike from one topic, and what readers must see.

    Attributes:
        log: the topic's records.
        position: up to where the session has read them.
        shown: rows as of the last cut in which the table took part; None while there is nothing to show.
    """

    def __init__(self, redis: Redis) -> None:
        super().__init__()
        self.sides = [Side(MemoryPlace()), Side(RedisPlace(redis.url))]
        self.log: list[StoredRecord] = []
        self.name, self.topic_id = NAMES[0], 0
        self.position = self.committed = self.seq = 0
        self.is_joined = False
        self.shown: dict[RowKey, bytes] | None = None

    @initialize()
    def first(self) -> None:
        self._start()

    @rule(some=changes)
    def publish(self, some: Sequence[tuple[RowKey, str | None]]) -> None:
        """Into the topic, which nobody has read so far."""
        for (region, number), color in some:
            self.seq += 1
            key = {"region": region, "id": number}
            is_deleted = color == "deleted"
            value = None if is_deleted else b"[]" if color == "no row" else orjson.dumps({**key, "color": color})
            header = HeaderStamp(LSN(100), None, 5).header(DELETE if is_deleted else UPDATE, self.seq, "0")
            self.log.append(StoredRecord(TOPIC, 0, len(self.log), orjson.dumps(key), value, header))

    @precondition(lambda self: self.position < len(self.log))
    @rule(most=strategies.integers(1, 12))
    def write(self, most: int) -> None:
        """Some more records, which readers must not see yet."""
        records = self.log[self.position : self.position + most]
        self.position += len(records)
        for side in self.sides:
            side.replica.write([side.replica.prepare(TOPIC, records)])

    @rule()
    def cut(self) -> None:
        """A commit. A table joins when its topic is read to the end."""
        joins = not self.is_joined and self.position == len(self.log)
        self.is_joined |= joins
        standing = self._standing(joins)
        for side in self.sides:
            progress = Progress(LSN(100 + self.seq), None, 5, SOURCE)
            side.replica.commit(progress, {(TOPIC, 0): self.position}, standing)
        self.committed = self.position
        if self.is_joined:
            self.shown = self._fold(self.log[: self.position])

    @rule(some=changes, pieces=strategies.integers(1, 3))
    def follow(self, some: Sequence[tuple[RowKey, str | None]], pieces: int) -> None:
        """All that there is, in so many pieces, and a cut: without it, most examples would see few rows."""
        self.publish(some)
        for left in range(pieces, 0, -1):
            if self.position < len(self.log):
                self.write(-(-(len(self.log) - self.position) // left))
        self.cut()

    @rule()
    def reopen(self) -> None:
        self._end()
        self._start()

    @rule(is_writing=strategies.booleans())
    def die(self, is_writing: bool) -> None:
        """The writer of a moment ago must not write any more, however much of its transaction is there already."""
        dead, standing = [(side.store, side.replica) for side in self.sides], self._standing(joins=False)
        if is_writing and self.position < len(self.log):
            self.write(12)
        for side in self.sides:
            side.dead = side.store
        self._start()
        for side in self.sides:
            side.dead = None
        (in_memory, _), (in_redis, session) = dead
        in_memory.close()
        with pytest.raises(StoreRefused, match="another writer"):
            session.commit(Progress(LSN(1), None, 5, SOURCE), {}, standing)
        in_redis.close()

    @rule()
    def make_the_topic_anew(self) -> None:
        """What it held is shown until the new one is read to its end."""
        self.log.clear()
        self.topic_id += 1
        self._end()
        self._start("the topic was made anew")

    @precondition(lambda self: self.position == self.committed)
    @rule()
    def rename(self) -> None:
        self.name = NAMES[1 - NAMES.index(self.name)]
        for side in self.sides:
            side.replica.learn([self._schema()])

    @rule()
    def take_it_out_for_a_session(self) -> None:
        """It comes back as another table, and is read from the beginning."""
        self._end()
        for side in self.sides:
            side.start(["other.*"])
            side.replica.learn([self._schema()])
            assert side.reader.tables() == {}
        self.shown, self.is_joined, self.committed = None, False, 0
        self._end()
        self._start()

    @invariant()
    def both_answer_alike(self) -> None:
        if not hasattr(self.sides[0], "store"):
            return
        told = [self._told(side) for side in self.sides]
        assert told[0] == told[1]
        rows = told[0]["rows"]
        if self.shown is None:
            assert rows == "NotLoaded"
        else:
            assert rows == [self.shown[key] for key in sorted(self.shown, key=lambda each: (each[0].encode(), each[1]))]
        for side in self.sides:
            assert look(side.read_from, f"public.{self.name}") is not None

    def close(self) -> None:
        for side in self.sides:
            if hasattr(side, "store"):
                side.store.close()
            side.read_from.close()

    def _start(self, why_anew: str = "") -> None:
        """A session on both sides, which goes on where the last one committed, or from the beginning."""
        began = []
        for side in self.sides:
            restored = side.start(["public.*"])
            side.replica.learn([self._schema()])
            offset = restored.offsets.get((TOPIC, 0))
            assert (offset or 0) == self.committed
            beginning = side.replica.begin(
                TOPIC, str(self.topic_id), ends=(len(self.log),), resumes=offset is not None, why_anew=why_anew,
                is_asked=False, now=1.0,
            )  # fmt: skip
            began.append((beginning, 0 if beginning == "anew" else offset))
        assert began[0] == began[1]
        beginning, offset = began[0]
        if beginning == "anew" and not self.shown:
            self.shown = None
        self.is_joined = beginning == "joined"
        self.position = self.committed = offset or 0

    def _standing(self, joins: bool) -> CutStanding:
        outside, joining = () if self.is_joined else (TOPIC,), (TOPIC,) if joins else ()
        return CutStanding(is_true=True, loading=(), outside=outside, joining=joining, caught_up_at=1.0)

    def _end(self) -> None:
        for side in self.sides:
            side.store.close()

    def _schema(self) -> TableSchema:
        number = NAMES.index(self.name)
        return TableSchema(f"{number:016x}", "public", self.name, TOPIC, ("region", "id"), COLUMNS)

    @staticmethod
    def _fold(records: Sequence[StoredRecord]) -> dict[RowKey, bytes]:
        rows: dict[RowKey, bytes] = {}
        for record in records:
            key = orjson.loads(record.key or b"")
            rows.pop((key["region"], key["id"]), None)
            if record.value not in (None, b"[]"):
                assert record.value is not None
                rows[key["region"], key["id"]] = record.value
        return rows

    def _told(self, side: Side) -> dict[str, Any]:
        """Everything that can be asked, without what differs between two stores of the same contents."""
        view, table = side.reader, f"public.{self.name}"
        facts = view.tables()
        keys = [(region, number) for region in REGIONS for number in IDS]
        asked: dict[str, Callable[[], Any]] = {
            "rows": lambda: self._pages(view, Range(limit=2)),
            "get": lambda: [view.get(table, key).row for key in keys],
            "many": lambda: [(each.row, each.unreadable) for each in view.get_many(table, keys).found],
            "count": lambda: view.count(table)[0],
            "evidence": lambda: view.count(table)[1]._replace(version=0, store_id=""),
            "unreadable": lambda: [each.key for each in view.unreadable(table)],
            "changes": lambda: self._changes(side, table),
            "other": lambda: view.count(f"public.{NAMES[1 - NAMES.index(self.name)]}"),
        }
        for region in REGIONS:
            asked[f"of {region}"] = partial(self._pages, view, Range(prefix=(region,), limit=2))
            asked[f"beginning {region}"] = partial(self._pages, view, Range(text=region, limit=2))
        for color in COLORS[:2]:
            asked[f"by {color}"] = partial(self._pages, view, Range(by={"color": color}, limit=2))
        told: dict[str, Any] = {"facts": {name: msgspec.structs.asdict(each) for name, each in facts.items()}}
        for what, ask in asked.items():
            try:
                told[what] = ask()
            except (NotLoaded, UnknownTable) as error:
                told[what] = type(error).__name__
        return told

    def _pages(self, view: TableView, wanted: Range) -> list[bytes]:
        rows: list[bytes] = []
        while True:
            page = view.scan(f"public.{self.name}", wanted)
            rows += [each.row for each in page.rows]
            if page.after is None:
                return rows
            wanted = wanted._replace(after=page.after)

    @staticmethod
    def _changes(side: Side, table: str) -> Any:
        """Since it was asked last."""
        found = side.reader.changes(side.token, (table,))
        side.token = found.token
        return sorted((each.key, each.row, each.unreadable) for each in found.changed), found.reset


@pytest.mark.soak
@pytest.mark.timeout(times(600, soak=7200))
def test_a_view_in_redis_answers_as_one_in_memory(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_transaction, "BLOCK_BYTES", BLOCK_BYTES)
    run_machine(lambda: Twins(redis), examples=times(12, soak=2000), steps=times(30, soak=100))
