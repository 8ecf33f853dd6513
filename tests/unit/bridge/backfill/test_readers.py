"""The threads that read: which task comes when, what locks and lost connections cost, what a standby must show."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from cdc.base.errors import CdcError, SourceLocked, SourceRefused, SourceUnavailable
from cdc.base.lsn import LSN
from cdc.bridge.backfill import readers as subject
from cdc.bridge.backfill.intake import no_backfill
from cdc.bridge.backfill.pieces import Piece
from cdc.bridge.backfill.plan import Blocks
from cdc.bridge.backfill.readers import ChunkReaders, ReadingServers
from cdc.bridge.backfill.repair_part import RepairPart
from cdc.bridge.backfill.stream_side import StreamSide
from cdc.bridge.backfill.table import TableBackfill
from cdc.bridge.backfill.tasks import ChunkTask, KeysRead, KeysTask, News, Portion, ReadFailure, Task, Viewed, ViewTask
from cdc.bridge.capture.chunk import Chunk, ChunkedTable, ChunkView
from cdc.bridge.capture.standby import Sight
from cdc.bridge.order.touched import Recording, TouchedKeys
from cdc.contract.record import LeafProgress, RepairRequest
from cdc.contract.snapshot import Snapshot
from tests.support.waiting import eventually
from tests.unit.bridge.backfill.stage import Stream, relation, table_info

SOURCE, STANDBY = {"host": "source"}, {"host": "standby"}
BOTH = ("standby", "source")
OLD, NEW = Snapshot(50, frozenset()), Snapshot(70, frozenset())
VIEW = ChunkView(OLD, "50:50:", LSN(90), 1, relation("t"))


class Connection:
    """To one server.

    Attributes:
        is_standby, is_its_standby: what kind of server it is.
    """

    def __init__(self, host: str) -> None:
        self.host = host
        self.closed = False

    def close(self) -> None:
        self.closed = True


@dataclass(eq=False)
class Chunked:
    """What a chunk has: its views in turn, and its lines; ``None`` for a heap that is gone."""

    views: list[ChunkView | None]
    lines: list[bytes]


class Server:
    """A source with a standby, as far as readers ask them.

    Attributes:
        failures: what the next statements raise.
        chunks: by first block.
        opened: each connection.
        log: what happened, in order.
        is_standby: whether the source is a standby, which it must not be.
        locked_by: who holds a lock on every table, if somebody does.
        replayed: how far the standby is; more by one with each question.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.failures: list[CdcError] = []
        self.chunks: dict[int, Chunked] = {}
        self.opened: list[Connection] = []
        self.log: list[object] = []
        self.locked_by = ""
        self.is_standby = False
        self.is_its_standby = True
        self.replayed = 100
        self.found: list[Any] = []
        self.go_on = threading.Event()
        self.go_on.set()
        names: dict[str, Any] = {
            "open_chunk_reader": lambda conninfo, **_: self.connect(conninfo["host"]),
            "connect": lambda conninfo, **_: self.connect(conninfo["host"]),
            "refuse_standby": self.refuse_standby,
            "is_standby_of": lambda conn, primary: self.is_its_standby and (conn.host, primary.host) == BOTH,
            "naming_locks": lambda *_: nullcontext(),
            "view_table": self.view,
            "read_keys": self.read_keys,
            "sight": lambda conn: Sight(conn, "50:50:", LSN(103)),
            "has_replayed": self.has_replayed,
            "flush_wal": lambda conn: self.log.append(("flush", conn.host)),
            "ChunkReader": partial(Reader, self),
            "give_up": lambda is_over, _: is_over(60),
        }
        for name, stand_in in names.items():
            monkeypatch.setattr(subject, name, stand_in)

    def connect(self, host: str) -> Connection:
        self.opened.append(Connection(host))
        return self.opened[-1]

    def refuse_standby(self, conn: Connection) -> None:
        if self.is_standby:
            raise SourceRefused("it is a standby", remedy="name the primary")

    def fail(self) -> None:
        assert self.go_on.wait(10)
        if self.locked_by:
            raise SourceLocked(self.locked_by, remedy="end it")
        if self.failures:
            raise self.failures.pop(0)

    def view(self, conn: Connection, table: Any, publication: str, where: str | None, sight: object) -> ChunkedTable:
        self.fail()
        self.log.append(("view", conn.host, table.name, publication, where, sight is not None))
        return ChunkedTable((), 5, None, "50:50:")

    def read_keys(
        self,
        conn: Connection,
        table: Any,
        publication: str,
        texts: Any,
        suffices: Callable[[Snapshot], bool],
        sight: Any,
    ) -> Any:
        self.fail()
        self.log.append(("keys", texts(relation("t").columns[:1]), suffices(OLD), suffices(NEW)))
        return self.found.pop(0)

    def has_replayed(self, conn: Connection, lsn: LSN) -> bool:
        assert conn.host == "standby"
        self.replayed += 1
        return self.replayed >= lsn


class Reader:
    """A chunk that is read."""

    def __init__(self, server: Server, conn: Connection, chunk: Chunk, publication: str) -> None:
        self.server = server
        self.chunk = chunk
        self.content = server.chunks[chunk.start]
        self.lines = list(self.content.lines)
        assert publication == "pub"

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.log.append("over")

    def begin(self, sight: object) -> ChunkView | None:
        self.server.fail()
        return self.content.views.pop(0)

    def end(self) -> None:
        self.server.log.append("ended")

    def copy(self) -> None:
        self.server.log.append("copy")

    @property
    def is_at_end(self) -> bool:
        return not self.lines

    def rows(self, most: int, size: int) -> list[bytes]:
        taken, self.lines = self.lines[:most], self.lines[most:]
        return taken


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    return Server(monkeypatch)


def readers(count: int = 1, standby: Mapping[str, str] | None = None) -> Any:
    return closing(ChunkReaders(SOURCE, standby, application_name="cdc", publication="pub", count=count))


def chunk(start: int = 0, *, table: str = "t", where: str | None = None, guard: tuple[int, ...] = ()) -> ChunkTask:
    backfill = TableBackfill(no_backfill(f"public.{table}", table, LSN(1)), StreamSide(Stream(), TouchedKeys()))
    leaf = LeafProgress("public", table, 1, 10)
    asked = Chunk(table_info(table), "public", table, start, None, where)
    return ChunkTask(backfill, Piece(leaf, Blocks(start, 10)), asked, frozenset(guard), 2)


def look(name: str = "t", where: str | None = None) -> ViewTask:
    return ViewTask(chunk(table=name).backfill, table_info(name), where)


def keys(*texts: bytes, guard: tuple[int, ...] = ()) -> KeysTask:
    part = RepairPart(RepairRequest("r", 0, "public.t", ()), (), Recording("t", ()))
    return KeysTask(part, table_info("t"), texts, frozenset(guard))


def brought(of: ChunkReaders, count: int = 1) -> list[News]:
    found: list[News] = []

    def are_there() -> bool:
        if (news := of.take()) is not None:
            found.append(news)
        return len(found) >= count

    eventually(are_there)
    return found


def test_a_chunk_comes_in_portions(server: Server) -> None:
    task = chunk()
    server.chunks[0] = Chunked([VIEW], [b"1", b"2", b"3"])
    with readers() as of:
        of.submit(task)
        assert brought(of, 2) == [Portion(task, VIEW, [b"1", b"2"], False), Portion(task, VIEW, [b"3"], True)]
    assert server.log == ["copy", "over"]
    assert all(each.closed for each in server.opened)


@pytest.mark.parametrize("view", [None, VIEW._replace(filenode=2)])
def test_a_heap_that_is_gone_or_was_rewritten_is_not_read(server: Server, view: ChunkView | None) -> None:
    task = chunk()
    server.chunks[0] = Chunked([view], [b"1"])
    with readers() as of:
        of.submit(task)
        assert brought(of) == [Portion(task, view, [], True)]
    assert "copy" not in server.log


def test_a_snapshot_that_does_not_see_what_was_published_is_taken_again(server: Server) -> None:
    task = chunk(guard=(40, 60))
    seeing = VIEW._replace(snapshot=NEW)
    server.chunks[0] = Chunked([VIEW, seeing], [b"1"])
    with readers() as of:
        of.submit(task)
        assert brought(of) == [Portion(task, seeing, [b"1"], True)]
        assert of.waits_for == ""
    assert server.log == ["ended", "copy", "over"], "no transaction stays open meanwhile"


def test_while_it_waits_for_one_it_says_so(server: Server) -> None:
    server.chunks[0] = Chunked([VIEW] * 10_000, [b"1"])
    with readers() as of:
        of.submit(chunk(guard=(60,)))
        eventually(lambda: "to become visible" in of.waits_for)
    assert "copy" not in server.log


def test_a_table_is_looked_at_and_keys_are_looked_up(server: Server) -> None:
    server.found += [None, found := SimpleNamespace(answers=())]
    looked, looked_up = look(where="id > 5"), keys(b'{"id":1}', b"x", guard=(60,))
    with readers() as of:
        of.submit(looked)
        of.submit(looked_up)
        viewed, read = brought(of, 2)
    assert viewed == Viewed(looked, ChunkedTable((), 5, None, "50:50:"))
    assert read == KeysRead(looked_up, found)  # type: ignore[arg-type]  # a stand-in
    assert server.log == [
        ("view", "source", "t", "pub", "id > 5", False),
        *[("keys", [(b"1",), None], False, True)] * 2,
    ]


def test_what_the_server_refuses_is_handed_on_and_the_next_task_is_done(server: Server) -> None:
    server.failures.append(error := SourceRefused("no right", remedy="grant it"))
    first, second = look("t"), look("u")
    with readers() as of:
        of.submit(first)
        of.submit(second)
        failure, viewed = brought(of, 2)
    assert failure == ReadFailure(first, error)
    assert isinstance(viewed, Viewed)
    assert viewed.task is second
    assert len(server.opened) == 2, "with a new connection"
    assert all(each.closed for each in server.opened)


def test_a_connection_that_is_lost_is_opened_again_and_the_task_repeated(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    wait = threading.Event.wait

    def no_pause(event: threading.Event, timeout: float | None = None) -> bool:
        if timeout is not None and 0.5 <= timeout < 20 and threading.current_thread().name.startswith("backfill"):
            pauses.append(timeout)
            return event.is_set()
        return wait(event, timeout)

    monkeypatch.setattr(threading.Event, "wait", no_pause)
    server.go_on = SimpleNamespace(wait=lambda _: True)  # type: ignore[assignment]  # nobody holds anything up
    server.failures += [SourceUnavailable("it is gone", remedy="wait") for _ in range(7)]
    with readers() as of:
        of.submit(task := look())
        (viewed,) = brought(of)
        assert isinstance(viewed, Viewed)
        assert viewed.task is task
        server.failures.append(SourceUnavailable("it is gone", remedy="wait"))
        of.submit(look())
        brought(of)
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0, 0.5], "from the beginning after a success"
    assert len(server.opened) == 9


def test_a_connection_that_the_server_has_closed_is_replaced(server: Server) -> None:
    with readers() as of:
        of.submit(look())
        brought(of)
        server.opened[0].closed = True
        of.submit(look())
        brought(of)
    assert len(server.opened) == 2


def test_a_condition_may_have_changed_the_settings_of_its_connection(server: Server) -> None:
    server.chunks[0] = Chunked([VIEW, VIEW], [])
    server.found.append(SimpleNamespace(answers=()))
    tasks: list[tuple[Task, int]] = [(look(), 1), (keys(), 1), (look(where="true"), 1), (look(), 2), (look(), 2)]
    with readers() as of:
        for task, connections in tasks:
            of.submit(task)
            brought(of)
            assert len(server.opened) == connections


def test_a_locked_table_is_tried_after_the_others_and_who_locks_it_is_told(server: Server) -> None:
    server.failures += [SourceLocked("held by 7", remedy="end 7"), SourceLocked("held by 8", remedy="end 8")]
    locked, other = look("t"), look("u")
    server.go_on.clear()
    with readers() as of:
        of.submit(locked)
        of.submit(other)
        server.go_on.set()
        viewed = brought(of, 2)
        assert [each.task.table.name for each in viewed if isinstance(each, Viewed)] in (["u", "t"], ["t", "u"])
        eventually(lambda: not of.locked)
    assert len(server.opened) == 1, "the connection is still good"


def test_while_a_table_is_locked_it_is_said_by_whom(server: Server) -> None:
    server.locked_by = "held by 7"
    with readers() as of:
        of.submit(look("t"))
        eventually(lambda: of.locked == {"public.t": "held by 7"})
        server.locked_by = ""
        brought(of)
        eventually(lambda: of.locked == {})


def test_a_closed_reader_ends_in_the_middle_of_a_chunk(server: Server) -> None:
    server.chunks[0] = Chunked([VIEW], [b"x" * 1_000_000] * 1_000)
    with readers() as of:
        of.submit(chunk())
        brought(of)
    assert server.log[-1] == "over"
    assert all(each.closed for each in server.opened)


class TestStandby:
    def test_rows_come_from_the_standby_once_it_shows_what_the_source_does(self, server: Server) -> None:
        with readers(standby=STANDBY) as of:
            of.submit(look())
            brought(of)
        assert [each.host for each in server.opened] == ["standby", "source"]
        assert server.log == [("view", "standby", "t", "pub", None, True)]
        assert server.replayed == 103
        assert all(each.closed for each in server.opened)

    def test_an_idle_source_is_made_to_write_out_what_the_standby_waits_for(self, server: Server) -> None:
        server.replayed = 95
        with readers(standby=STANDBY) as of:
            of.submit(look())
            brought(of)
        assert server.log[0] == ("flush", "source")
        assert len(server.log) == 2, "once"

    def test_while_it_waits_for_the_standby_it_says_so(self, server: Server) -> None:
        server.replayed = -1_000_000
        with readers(standby=STANDBY) as of:
            of.submit(look())
            eventually(lambda: "the standby" in of.waits_for)

    def test_what_is_no_standby_of_the_source_is_read_as_it_is(self, server: Server) -> None:
        """It may be the source under another name."""
        server.is_its_standby = False
        with readers(standby=STANDBY) as of:
            of.submit(look())
            brought(of)
        assert server.log == [("view", "standby", "t", "pub", None, False)]
        assert all(each.closed for each in server.opened)

    @pytest.mark.parametrize("standby", [None, STANDBY])
    def test_a_source_that_is_a_standby_is_refused(self, server: Server, standby: Mapping[str, str] | None) -> None:
        server.is_standby = True
        with pytest.raises(SourceRefused):
            ReadingServers.open(SOURCE, standby, "cdc")
        assert all(each.closed for each in server.opened)
        assert len(server.opened) == (1 if standby is None else 2)

    def test_the_connections_are_closed_if_one_of_them_is(self, server: Server) -> None:
        servers = ReadingServers.open(SOURCE, STANDBY, "cdc")
        assert not servers.are_closed
        server.opened[1].closed = True
        assert servers.are_closed
