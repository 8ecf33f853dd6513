"""What a session begins with: tables that are new, that are not what they were, that left, and what was left undone."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from cdc.base.config import Config
from cdc.base.lsn import LSN
from cdc.bridge.backfill import start
from cdc.bridge.backfill.beside import BesideStream
from cdc.bridge.backfill.intake import NOT_CAPTURED, no_backfill
from cdc.bridge.backfill.start import BridgeSurroundings, start_backfill
from cdc.bridge.backfill.stream_side import StreamSide
from cdc.bridge.backfill.tasks import KeysTask, ViewTask
from cdc.bridge.encode import TableEncoder
from cdc.bridge.order.demand import Demand
from cdc.bridge.order.succession import Successions
from cdc.bridge.order.touched import TouchedKeys
from cdc.bridge.source.table import TableInfo
from cdc.contract.backfill import backfill_key, backfill_value, parse_backfill
from cdc.contract.record import (
    BackfillProgress,
    BackfillRequest,
    RepairKey,
    RepairOutcome,
    RepairRequest,
    TableSchema,
)
from cdc.contract.repair import repair_request_key
from cdc.kafka.replay.backfills import Published, StoredBackfill
from tests.unit.bridge.backfill.stage import Readers, Requests, Stream, World, relation, topic_of

BASE = {"name": "shop", "kafka": {"bootstrap": "k:1"}, "source": {"dsn": "postgresql://one/d", "publication": "pub"}}
CONFIG = Config.model_validate(BASE)
OID = 7
"""Of each table here."""


class Around(World):
    """The surroundings of a session.

    Attributes:
        demanded, backfills, outcomes, requests, repairs, definitions: what the session finds.
        made: how readers were made.
        boxes: how the box of requests was made.
    """

    progress_topic = "shop.__progress"
    admin = "admin"

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
        super().__init__(names)
        self.config = CONFIG
        self.stream = Stream()
        self.readers = Readers()
        self.backfills: list[BackfillProgress] = []
        self.outcomes: list[RepairOutcome] = []
        self.requests: list[BackfillRequest] = []
        self.repairs: list[RepairRequest] = []
        self.definitions: list[TableSchema] = []
        self.withheld: set[str] = set()
        self.made: list[tuple[Any, ...]] = []
        self.boxes: list[tuple[Any, ...]] = []
        monkeypatch.setattr(start, "topic_ends", lambda admin, topic: {(topic, 0): 5} if admin == "admin" else {})
        monkeypatch.setattr(start, "read_published", self.published)
        monkeypatch.setattr(start, "RequestBox", self.box)
        monkeypatch.setattr(start, "ChunkReaders", self.started)

    @property
    def registry(self) -> Any:
        return SimpleNamespace(
            successions=Successions(self.definitions),
            tables=[*self.infos.values()],
            rows=SimpleNamespace(withholds=lambda namespace, name, table: table in self.withheld),
        )

    def published(self, admin: str, topic: str, key: bytes) -> Published:
        assert (admin, topic, key) == ("admin", "shop.__progress", b'{"stream":"cdc_shop"}')
        backfills = {each.table: StoredBackfill(each, 0) for each in self.backfills}
        return Published(None, backfills, tuple(self.requests), tuple(self.repairs), tuple(self.outcomes))

    def box(self, *args: Any) -> Any:
        self.boxes.append(args)
        requests = Requests()
        requests.new = list(args[2])
        requests.repairs = {repair_request_key(each.request, each.part): each for each in args[3]}  # type: ignore[attr-defined]
        return requests

    def started(self, source: Any, standby: Any, **more: Any) -> Readers:
        self.made.append((source, standby, more))
        return self.readers

    def running(self) -> frozenset[int]:
        self.journal.append("running")
        return frozenset({33})

    def start(self, *demands: Demand) -> BesideStream:
        around: Any = self
        return start_backfill(around, StreamSide(self.stream, TouchedKeys()), demands)

    def put(self, *demands: Demand) -> dict[str, BackfillProgress]:
        """Start, and return what was written of each table then."""
        beside = self.start(*demands)
        beside.flush(LSN(100))
        return {each.table: each for each in self.progress}


@pytest.fixture
def around(monkeypatch: pytest.MonkeyPatch) -> Around:
    return Around(monkeypatch, "t")


def done(table: str = "t", **changes: Any) -> BackfillProgress:
    return replace(no_backfill(f"public.{table}", topic_of(table), LSN(1)), **{"whole": True, **changes})


def definition(table: str = "t", oid: int = OID, topic: str | None = None) -> TableSchema:
    return TableSchema("0" * 16, "public", table, topic or topic_of(table), ("id",), (), oid)


def test_a_table_without_a_backfill_gets_one(around: Around) -> None:
    (begun,) = around.put().values()
    assert (begun.table, begun.topic, begun.state, begun.cause) == ("public.t", topic_of("t"), "waiting", "initial")
    assert (begun.whole, begun.sweep) == (False, False)
    assert around.stream.unseen == {33}, "what runs now may have changed it before the stream has it"


def test_a_topic_that_was_written_before_is_swept(around: Around) -> None:
    around.definitions.append(definition())
    assert around.put()["public.t"].sweep


def test_a_table_that_is_done_is_left_alone(around: Around) -> None:
    around.backfills.append(done())
    around.definitions.append(definition())
    assert around.put() == {}
    assert "running" not in around.journal
    assert around.stream.unseen == set()


def test_a_table_that_is_withheld_is_read_by_something(around: Around) -> None:
    """Its changes are published from that reading on: a new one if none is under way."""
    around.definitions.append(definition())
    around.withheld.add("public.t")
    around.backfills.append(done(state="failed", reason="no right"))
    begun = around.put()["public.t"]
    assert (begun.state, begun.sweep) == ("waiting", True)
    around.backfills[:] = [begun]
    around.progress.clear()
    assert around.put() == {}


@pytest.mark.parametrize(
    ("changes", "oid", "is_new"),
    [
        ({"topic": "another"}, OID, True),
        ({"state": "failed", "reason": NOT_CAPTURED}, OID, True),
        ({"state": "failed", "reason": "no right"}, OID, False),
        ({}, OID + 1, True),
        ({}, 0, False),  # the definition of an old version does not know
        ({"state": "running"}, OID + 1, False),
    ],
)
def test_a_table_that_is_not_what_it_was_is_published_again(
    around: Around, changes: dict[str, Any], oid: int, is_new: bool
) -> None:
    around.backfills.append(done(**changes))
    around.definitions.append(definition(oid=oid))
    assert ("public.t" in around.put()) is is_new


def test_told_never_to_publish_what_is_there_it_does_not(around: Around) -> None:
    snapshot = CONFIG.snapshot.model_copy(update={"mode": "never"})
    around.config = CONFIG.model_copy(update={"snapshot": snapshot})
    assert around.put() == {}
    demanded = around.put(Demand("public.t", True, "a gap"))["public.t"]
    assert (demanded.cause, demanded.sweep, demanded.state) == ("gap", True, "waiting")
    assert around.stream.unseen == {33}


def test_tables_that_left_are_noted_once(around: Around) -> None:
    """If one comes back, its topic lacks what happened meanwhile."""
    gone = done("gone", state="failed", reason=NOT_CAPTURED)
    around.backfills += [done(), done("left"), gone]
    around.definitions += [definition("never"), definition("t"), definition("gone"), definition("x", topic="elsewhere")]
    around.start()
    noted = {key: parse_backfill(value or b"") for key, value in around.notes}
    assert set(noted) == {backfill_key(f"public.{each}") for each in ("left", "never", "x")}
    for each in noted.values():
        assert (each.state, each.whole, each.reason) == ("failed", False, NOT_CAPTURED)
    assert noted[backfill_key("public.never")].topic == topic_of("never")
    assert noted[backfill_key("public.never")].lsn == 100


def test_the_record_of_a_table_that_was_never_backfilled() -> None:
    made, other = no_backfill("public.t", "t", LSN(7)), no_backfill("public.u", "u", LSN(7))
    assert made.request != other.request
    assert made.started_at == made.updated_at > 1_700_000_000_000_000
    assert parse_backfill(backfill_value(made)) == made
    assert (made.state, made.cause, made.whole, made.sweep, made.lsn) == ("done", "initial", False, False, 7)
    assert (made.rows, made.swept, made.estimated_rows, made.seq) == (0, 0, 0, 0)


def test_what_was_left_undone_goes_on(around: Around) -> None:
    around.backfills.append(done(state="running", whole=False))
    beside = around.start()
    assert beside.is_active
    beside.step(lambda: None)
    assert isinstance(around.readers.tasks[0], ViewTask)


def test_requests_and_repairs_that_wait_are_taken_up(around: Around) -> None:
    around.backfills.append(done(seq=9))
    around.outcomes.append(RepairOutcome("public.t", topic_of("t"), "r", 0, 0, 0, 0, 12, LSN(1)))
    around.requests.append(BackfillRequest("b", "start", ("public.t",)))
    around.repairs.append(RepairRequest("r", 1, "public.t", (RepairKey(b"k"),)))
    beside = around.start()
    ((admin, ends, *_),) = around.boxes
    assert (admin, ends) == ("admin", {("shop.__progress", 0): 5}), "where it ended before it was read"
    beside.attend()
    beside.flush(LSN(100))
    assert around.progress[-1].request == "b"
    beside.step(lambda: None)
    assert isinstance(around.readers.tasks[0], KeysTask), "repairs first"
    assert beside.begin_anew(Demand("public.t", False, "emptied"), topic_of("t")) == 13, "after all that was written"


def test_readers_are_made_as_configured(around: Around) -> None:
    around.config = Config.model_validate({**BASE, "snapshot": {"parallel": 3}})
    around.repairs.append(RepairRequest("r", 1, "public.t", (RepairKey(b"k"),)))
    around.start().step(lambda: None)
    for (source, standby, more), count in zip(around.made, (3, 1), strict=True):
        assert "//one/" in source["conninfo"]
        assert standby is None
        assert more == {"application_name": "cdc shop backfill", "publication": "pub", "count": count}
    around.config = around.config.model_copy(
        update={"snapshot": Config.model_validate({**BASE, "snapshot": {"dsn": "postgresql://two/d"}}).snapshot}
    )
    around.start()
    assert "//two/" in around.made[-1][1]["conninfo"]


class Registry:
    """The session's tables.

    Attributes:
        is_another: whether the topic has to begin anew.
    """

    def __init__(self) -> None:
        self.tables: list[TableInfo] = list(World(["t"]).infos.values())
        self.encoder: TableEncoder | None = TableEncoder(relation("t"), ("id",), topic_of("t"))
        self.is_another = False
        self.described: list[tuple[TableEncoder, object]] = []

    def chunk_encoder(self, _relation: object) -> TableEncoder | None:
        return self.encoder

    def new_beginning(self, _table: object) -> object:
        return "why" if self.is_another else None

    def describe(self, table: TableEncoder, produce: object) -> None:
        self.described.append((table, produce))


class TestSurroundings:
    @pytest.fixture
    def registry(self) -> Registry:
        return Registry()

    @pytest.fixture
    def beginnings(self) -> list[TableEncoder]:
        return []

    @pytest.fixture
    def written(self) -> list[tuple[Any, ...]]:
        return []

    @pytest.fixture
    def made(
        self,
        registry: Any,
        beginnings: list[TableEncoder],
        written: list[tuple[Any, ...]],
        monkeypatch: pytest.MonkeyPatch,
    ) -> BridgeSurroundings:
        def produce(*record: Any) -> None:
            written.append(record)

        def ends(admin: object, topic: str) -> dict[tuple[str, int], int]:
            assert admin == {"admin of": "k:1"}
            return {(topic, 0): 5, (topic, 1): 6}

        monkeypatch.setattr(start, "BrokerAdmin", lambda options: {"admin of": options["bootstrap.servers"]})
        monkeypatch.setattr(start, "topic_ends", ends)
        monkeypatch.setattr(start, "Sweep", lambda *args: args)
        publisher: Any = SimpleNamespace(produce=produce, produce_all="all", bury="bury", quarantine=None)
        sql: Any = object()
        return BridgeSurroundings(CONFIG, sql, registry, publisher, beginnings, lambda _: None)

    def test_tables_are_those_of_the_registry_with_their_topics(
        self, made: BridgeSurroundings, registry: Registry
    ) -> None:
        assert made.tables() == {"public.t": (registry.tables[0], topic_of("t"))}
        assert made.tables() is made.tables()
        registry.tables = list(World(["u"]).infos.values())
        assert set(made.tables()) == {"public.u"}

    def test_rows_are_encoded_once_their_definition_is_published(
        self, made: BridgeSurroundings, registry: Registry, beginnings: list[TableEncoder]
    ) -> None:
        assert made.encoder(relation("t")) is registry.encoder
        assert registry.described == [(registry.encoder, made.produce)]
        registry.encoder = None
        assert made.encoder(relation("t")) is None
        assert beginnings == []

    def test_a_topic_that_has_to_begin_anew_is_emptied_first_one_after_the_other(
        self, made: BridgeSurroundings, registry: Registry, beginnings: list[TableEncoder]
    ) -> None:
        registry.is_another = True
        first = registry.encoder
        assert made.encoder(relation("t")) is None
        registry.encoder = TableEncoder(relation("t"), ("id",), "another")
        assert made.encoder(relation("t")) is None
        assert beginnings == [first]
        assert registry.described == []

    def test_notes_go_into_the_progress_topic(self, made: BridgeSurroundings, written: list[tuple[Any, ...]]) -> None:
        made.note(b"k", b"v")
        made.note(b"gone", None)
        assert written == [("shop.__progress", b"k", b"v", b""), ("shop.__progress", b"gone", None, b"")]

    def test_a_topic_is_asked_for_its_ends_and_its_ghosts(self, made: BridgeSurroundings) -> None:
        assert made.end_offsets("t") == (5, 6)
        assert made.ghosts("t", (1, 2)) == (made.admin, "t", (1, 2), ())  # type: ignore[comparison-overlap]  # a stand-in
