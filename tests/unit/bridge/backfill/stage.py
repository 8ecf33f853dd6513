"""Stands where the rest of the bridge is: a stream, readers, people and topics that do what a test says."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from cdc.base.errors import CdcError
from cdc.base.lsn import LSN
from cdc.bridge.backfill.plan import CHUNK_BLOCKS
from cdc.bridge.backfill.rows import BackfillRowWriter, Ordinals
from cdc.bridge.backfill.stream_side import StreamSide
from cdc.bridge.backfill.tasks import ChunkTask, News, Portion, ReadFailure, Task, Viewed, ViewTask
from cdc.bridge.backfill.work import Backfill
from cdc.bridge.capture.chunk import ChunkedTable, ChunkView, Heap
from cdc.bridge.encode import TableEncoder
from cdc.bridge.order.touched import TouchedKeys
from cdc.bridge.source.table import TableInfo
from cdc.contract.backfill import parse_backfill
from cdc.contract.change import Column, Relation, ReplicaIdentity
from cdc.contract.record import BackfillCommand, BackfillOptions, BackfillProgress, BackfillRequest, Ready
from cdc.contract.snapshot import Snapshot

COLUMNS = (Column("id", 23, -1, "pg_catalog.int4", True), Column("v", 25, -1, "pg_catalog.text", False))
SNAPSHOT = Snapshot(50, frozenset())
SNAPSHOT_TEXT = "50:50:"
HEAP = ("t", 1, 10)
TWO_CHUNKS = ("t", 1, 2 * CHUNK_BLOCKS)
NO_OPTIONS = BackfillOptions()


def relation(name: str) -> Relation:
    return Relation(7, "public", name, ReplicaIdentity.DEFAULT, COLUMNS)


def table_info(name: str) -> TableInfo:
    return TableInfo(
        namespace="public",
        name=name,
        kind="r",
        replica_identity=ReplicaIdentity.DEFAULT,
        key=("id",),
        key_source="primary key",
        toastable=(),
        estimated_rows=0,
        columns=("id", "v"),
        primary_key=None,
        unique_indexes=(),
        key_is_enforced=True,
        leaves=(),
        unlike_partitions=(),
        configured_key=(),
        oid=7,
    )


def topic_of(name: str) -> str:
    return f"shop.public.{name}"


class Stream:
    """Stands where it is put."""

    def __init__(self) -> None:
        self.complete_lsn = self.settled_lsn = LSN(100)
        self.holds_records = False
        self.unseen: set[int] = set()

    def comes_to(self, lsn: int) -> None:
        self.complete_lsn = self.settled_lsn = LSN(lsn)

    def distrust(self, xids: Iterable[int]) -> None:
        self.unseen.update(xids)


class Readers:
    """Two, which bring what a test hands them."""

    count = 2

    def __init__(self) -> None:
        self.waits_for = ""
        self.locked: dict[str, str] = {}
        self.tasks: deque[Task] = deque()
        self.news: deque[News] = deque()
        self.is_closed = False

    def submit(self, task: Task) -> None:
        self.tasks.append(task)

    def take(self) -> News | None:
        return self.news.popleft() if self.news else None

    def close(self) -> None:
        self.is_closed = True


class Requests:
    """What a test puts in."""

    def __init__(self) -> None:
        self.new: list[BackfillRequest] = []
        self.is_closed = False

    def take(self) -> list[BackfillRequest]:
        taken, self.new = self.new, []
        return taken

    def close(self) -> None:
        self.is_closed = True


class Ghosts:
    """Keys, portion by portion; ``None`` behind the last."""

    def __init__(self, portions: Sequence[list[bytes] | None]) -> None:
        self.portions = deque(portions)
        self.is_closed = False

    def take(self) -> list[bytes] | None:
        return self.portions.popleft()

    def close(self) -> None:
        self.is_closed = True


class World:
    """Keeps what was produced, in order: topic, key, value, header.

    Attributes:
        infos: of the tables that are captured, by name.
        without_encoder: tables whose rows cannot be encoded yet.
        encoded: relations that an encoder was asked for.
        progress: what was written of backfills, oldest first.
        journal: what happened besides, in order.
        sweeps: what those that are still to begin will find; in ``begun`` once they have.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.infos = {name: table_info(name) for name in names}
        self.without_encoder: set[str] = set()
        self.encoded: list[Relation] = []
        self.records: list[tuple[str, bytes, bytes | None, bytes]] = []
        self.buried: list[tuple[str, int, bytes, bytes]] = []
        self.notes: list[tuple[bytes, bytes | None]] = []
        self.given_up: list[tuple[str | bytes, ...]] = []
        self.progress: list[BackfillProgress] = []
        self.journal: list[object] = []
        self.ends = (3, 4)
        self.sweeps: list[Ghosts] = []
        self.begun: list[Ghosts] = []
        self.wal = LSN(100)
        self.sink_is_overtaken = False
        self.rows_for_sink = 0

    def tables(self) -> dict[str, tuple[TableInfo, str]]:
        return {f"public.{name}": (info, topic_of(name)) for name, info in self.infos.items()}

    def encoder(self, relation: Relation) -> TableEncoder | None:
        self.encoded.append(relation)
        if relation.name in self.without_encoder or relation.name not in self.infos:
            return None
        return TableEncoder(relation, ("id",), topic_of(relation.name))

    def produce(self, topic: str, key: bytes, value: bytes | None, header: bytes) -> None:
        self.records.append((topic, key, value, header))

    def produce_all(self, records: Iterable[Ready]) -> None:
        self.records += [record[:4] for record in records]

    def bury(self, topic: str, partition: int, key: bytes, header: bytes) -> None:
        self.buried.append((topic, partition, key, header))

    def give_up(self, topic: str, keys: Sequence[bytes], header: bytes) -> int:
        self.given_up += [(topic, *keys)]
        return len(keys)

    def note(self, key: bytes, value: bytes | None) -> None:
        self.notes.append((key, value))

    def report(self, progress: BackfillProgress) -> None:
        assert self.notes[-1][1] is not None
        assert parse_backfill(self.notes[-1][1]) == progress
        self.progress.append(progress)

    def end_offsets(self, topic: str) -> tuple[int, ...]:
        self.journal.append(("ends of", topic))
        return self.ends

    def ghosts(self, topic: str, below: tuple[int, ...]) -> Ghosts:
        self.journal.append(("sweep", topic, below))
        self.begun.append(self.sweeps.pop(0))
        return self.begun[-1]

    def wal_end(self) -> LSN:
        return self.wal

    def flush_wal(self) -> None:
        self.journal.append("flush WAL")

    def is_sink_overtaken(self, topic: str) -> bool:
        return self.sink_is_overtaken and topic in map(topic_of, self.infos)

    def sink_gets(self, rows: int) -> None:
        self.rows_for_sink += rows


class Stage:
    """A backfill among all of these.

    Args:
        names: of the tables that are captured.
        stored: as the last session left them.
    """

    def __init__(self, *names: str, stored: Mapping[str, BackfillProgress] | None = None) -> None:
        self.world = World(names)
        self.stream = Stream()
        self.touched = TouchedKeys()
        self.readers = Readers()
        self.requests = Requests()
        self.ordinals = Ordinals()
        self.relations: dict[ChunkTask, Relation] = {}
        side = StreamSide(self.stream, self.touched)
        rows = BackfillRowWriter(side, self.ordinals, self.world)
        self.backfill = Backfill(stored or {}, self.readers, self.requests, side, rows, self.world)

    # What the bridge's loop does.

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            self.backfill.step(self.commit)

    def commit(self) -> None:
        self.world.journal.append("commit")
        self.backfill.flush(self.stream.complete_lsn)

    def is_active(self) -> bool:
        return self.backfill.is_active

    def wants_flush(self) -> bool:
        return self.backfill.wants_flush

    def written(self, name: str = "t") -> BackfillProgress:
        """The newest record of a table's backfill, once all is written."""
        self.backfill.flush(self.stream.complete_lsn)
        return next(each for each in reversed(self.world.progress) if each.table == f"public.{name}")

    def ask(self, request: BackfillRequest) -> None:
        self.requests.new.append(request)
        self.backfill.attend()

    # What the readers do.

    def look(self, *heaps: tuple[str, int, int], rows: int = 0) -> None:
        """The next task is a look at a table; it has these heaps: name, filenode, blocks. Without any it is gone."""
        task = self.readers.tasks.popleft()
        assert isinstance(task, ViewTask)
        described = relation(task.table.name) if heaps else None
        view = ChunkedTable(tuple(Heap("public", *each) for each in heaps), rows, described, SNAPSHOT_TEXT)
        self.readers.news.append(Viewed(task, view))
        self.step()

    def chunk(self) -> ChunkTask:
        """The next task, a chunk."""
        task = self.readers.tasks.popleft()
        assert isinstance(task, ChunkTask)
        return task

    def bring(
        self, task: ChunkTask, *ids: int, is_last: bool = True, lsn: int = 90, snapshot: Snapshot = SNAPSHOT
    ) -> None:
        """A portion of rows with these ids."""
        described = self.relations.setdefault(task, relation(task.chunk.table.name))
        view = ChunkView(snapshot, SNAPSHOT_TEXT, LSN(lsn), task.piece.leaf.filenode, described)
        self.readers.news.append(Portion(task, view, [b"%d\trow\n" % each for each in ids], is_last))
        self.step()

    def rewritten(self, task: ChunkTask) -> None:
        """The heap of this chunk is another file by now."""
        name = task.chunk.table.name
        view = ChunkView(SNAPSHOT, SNAPSHOT_TEXT, LSN(90), task.piece.leaf.filenode + 1, relation(name))
        self.readers.news.append(Portion(task, view, [], True))
        self.step()

    def fail(self, task: ChunkTask | ViewTask, error: CdcError) -> None:
        self.readers.news.append(ReadFailure(task, error))
        self.step()

    def keys(self, name: str = "t") -> list[tuple[bytes, bool]]:
        """Of the records of a table's topic, in order: key, and whether it is a row."""
        return [(key, value is not None) for topic, key, value, _ in self.world.records if topic == topic_of(name)]


def rows(*ids: int) -> list[tuple[bytes, bool]]:
    return [(key(each), True) for each in ids]


def key(number: int) -> bytes:
    return b'{"id":%d}' % number


def request(command: BackfillCommand, *names: str, options: BackfillOptions = NO_OPTIONS) -> BackfillRequest:
    tables = tuple(f"public.{name}" for name in names)
    return BackfillRequest(f"to {command}", command, tables, options.where, options.rate, options.sweep)


def started(*names: str, options: BackfillOptions = NO_OPTIONS) -> Stage:
    """Asked for, and a reader was told to look at the first table."""
    stage = Stage(*(names or ("t",)))
    stage.ask(request("start", *(names or ("t",)), options=options))
    stage.step()
    return stage


class Clock:
    """Instead of ``time.monotonic``."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s
