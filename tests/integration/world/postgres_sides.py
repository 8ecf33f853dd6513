"""The two sides of a script: the model of PostgreSQL, and a real one. The product's own code asks either of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol

import psycopg
from psycopg import sql

from cdc.base.lsn import LSN, ZERO
from cdc.bridge.capture.copy_both import CopyBoth
from cdc.bridge.capture.streamed import StreamedTransactions
from cdc.bridge.decode.pgoutput import Message, PgOutputDecoder
from cdc.bridge.decode.walsender import KEEPALIVE_TAG, parse_keepalive, standby_status
from cdc.bridge.source.connect import connect
from cdc.bridge.source.slot import create_slot, inspect_slot, wal_end
from cdc.contract.change import Begin, Commit, Insert, Relation
from cdc.contract.slot_state import SlotState
from tests.support.servers import Database
from tests.support.waiting import eventually
from tests.world.postgres import WorldServer
from tests.world.postgres_sessions import PostgresWorld
from tests.world.postgres_tables import Row
from tests.world.postgres_transaction import WorldTransaction, WouldWait, split
from tests.world.turns import Alone

PUBLICATION: Final = "published"
MARKS: Final = "marks"
"""A published table whose rows tell a reader that it has come to where the script is."""

Act = Callable[[], object]


class Writer(Protocol):
    """A transaction, as scripts write it: ``WorldTransaction`` says what each method does."""

    def insert(self, table: str, row: Row) -> None: ...
    def update(self, table: str, where: Row, to: Row) -> bool: ...
    def delete(self, table: str, where: Row) -> bool: ...
    def truncate(self, *tables: str) -> None: ...
    def savepoint(self, name: str) -> None: ...
    def rollback_to(self, name: str) -> None: ...
    def release(self, name: str) -> None: ...
    def prepare(self, gid: str) -> None: ...
    def commit(self) -> object: ...
    def abort(self) -> None: ...
    def create_table(self, table: str, columns: Mapping[str, str], key: Sequence[str], identity: str = "d") -> None: ...
    def drop_table(self, table: str) -> None: ...
    def rename_table(self, table: str, name: str) -> None: ...
    def add_column(self, table: str, name: str, kind: str, default: bytes | None = None) -> None: ...
    def drop_column(self, table: str, name: str) -> None: ...
    def rename_column(self, table: str, name: str, new: str) -> None: ...
    def set_key(self, table: str, columns: Sequence[str]) -> None: ...
    def set_identity(self, table: str, identity: str) -> None: ...
    def lock(self, table: str, mode: str = ...) -> None: ...
    def create_publication(self, name: str, tables: Sequence[str] | None) -> None: ...
    def alter_publication(
        self, name: str, *, add: Sequence[str] = (), drop: Sequence[str] = (), to: Sequence[str] | None = None
    ) -> None: ...


class Side(Protocol):
    """What a script works with.

    Attributes:
        connection: arguments for ``make_conninfo``.
        slot: the name of the script's slot.
    """

    connection: Mapping[str, str]
    slot: str

    def begin(self) -> Writer:
        """Begin a transaction."""

    def xid(self, writer: Writer) -> int:
        """Returns the id of a transaction that has written; 0 for others."""

    def commit_prepared(self, gid: str) -> None:
        """COMMIT PREPARED."""

    def waits(self, writer: Writer, act: Act) -> bool:
        """Whether a statement of this transaction would wait for a lock. If not, it is done."""

    def refusal(self, writer: Writer, act: Act) -> str:
        """Returns the class of the error that a statement ends with. It leaves nothing."""

    def rows(self, table: str) -> list[Row]:
        """Returns what a new snapshot sees, sorted."""

    def rewrite(self, table: str) -> None:
        """VACUUM FULL."""

    def hold(self, act: Callable[[Writer], object]) -> None:
        """Commit what ``act`` does, so that it is in the WAL but not visible before ``let_go``."""

    def let_go(self) -> None:
        """Make visible what was held."""

    def meanwhile(self, *acts: tuple[Writer, Act]) -> contextlib.AbstractContextManager[None]:
        """In the block, somebody comes to wait for each of these transactions in turn. Then the act is done."""


class Obliging(Alone):
    """Turns in which others do what a call waits for.

    Attributes:
        acts: what they do, one act for each wait.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.acts: list[Act] = []

    def wait(self, is_done: Callable[[], bool], timeout_s: float | None = None) -> bool:
        while not is_done() and self.acts:
            self.acts.pop(0)()
        return super().wait(is_done, timeout_s)


class WorldSide:
    """The model."""

    slot = "slot"

    def __init__(self, world: PostgresWorld, server: WorldServer, turns: Obliging) -> None:
        self.connection: Mapping[str, str] = {"conninfo": f"host={server.name} user=cdc"}
        self.world = world
        self.server = server
        self.turns = turns
        self._held: list[WorldTransaction] = []

    def begin(self) -> Writer:
        return self.server.begin()

    def xid(self, writer: Writer) -> int:
        assert isinstance(writer, WorldTransaction)
        return writer.xid

    def commit_prepared(self, gid: str) -> None:
        self.server.commit_prepared(gid)

    def waits(self, writer: Writer, act: Act) -> bool:
        try:
            act()
        except WouldWait:
            return True
        return False

    def refusal(self, writer: Writer, act: Act) -> str:
        try:
            act()
        except psycopg.Error as error:
            return type(error).__name__
        return "none"

    def rows(self, table: str) -> list[Row]:
        return _sorted(list(self.server.rows(table).values()))

    def rewrite(self, table: str) -> None:
        self.server.rewrite(table)

    def hold(self, act: Callable[[Writer], object]) -> None:
        transaction = self.server.begin()
        act(transaction)
        transaction.write_commit()
        self._held.append(transaction)

    def let_go(self) -> None:
        for each in self._held:
            each.show()
        self._held.clear()

    @contextlib.contextmanager
    def meanwhile(self, *acts: tuple[Writer, Act]) -> Iterator[None]:
        self.turns.acts = [act for _, act in acts]
        yield
        assert not self.turns.acts, "nobody waited"


class RealWriter:
    """A transaction of a real server, on a connection of its own."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        self.run("BEGIN")

    def run(self, statement: str | sql.Composed) -> int:
        """Run a statement; returns how many rows it touched."""
        text = statement if isinstance(statement, str) else statement.as_string(self.connection)
        return self.connection.execute(text.encode()).rowcount

    def insert(self, table: str, row: Row) -> None:
        names = sql.SQL(", ").join(map(sql.Identifier, row))
        values = sql.SQL(", ").join(map(_literal, row.values()))
        self.run(sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(_table(table), names, values))

    def update(self, table: str, where: Row, to: Row) -> bool:
        values = sql.SQL(", ").join(_equal(*each) for each in to.items())
        return self.run(sql.SQL("UPDATE {} SET {} WHERE {}").format(_table(table), values, _all(where))) > 0

    def delete(self, table: str, where: Row) -> bool:
        return self.run(sql.SQL("DELETE FROM {} WHERE {}").format(_table(table), _all(where))) > 0

    def truncate(self, *tables: str) -> None:
        self.run(f"TRUNCATE {', '.join(tables)}")

    def savepoint(self, name: str) -> None:
        self.run(f"SAVEPOINT {name}")

    def rollback_to(self, name: str) -> None:
        self.run(f"ROLLBACK TO {name}")

    def release(self, name: str) -> None:
        self.run(f"RELEASE {name}")

    def prepare(self, gid: str) -> None:
        self.run(f"PREPARE TRANSACTION '{gid}'")

    def commit(self) -> object:
        return self.run("COMMIT")

    def abort(self) -> None:
        self.run("ROLLBACK")

    def create_table(self, table: str, columns: Mapping[str, str], key: Sequence[str], identity: str = "d") -> None:
        defined = [f"{name} {kind}" for name, kind in columns.items()]
        defined += [f"PRIMARY KEY ({', '.join(key)})"] if key else []
        self.run(f"CREATE TABLE {table} ({', '.join(defined)})")
        for name, kind in columns.items():
            if kind == "text":  # the model compresses nothing
                self.run(f"ALTER TABLE {table} ALTER {name} SET STORAGE EXTERNAL")
        if identity != "d":
            self.set_identity(table, identity)

    def drop_table(self, table: str) -> None:
        self.run(f"DROP TABLE {table}")

    def rename_table(self, table: str, name: str) -> None:
        self.run(f"ALTER TABLE {table} RENAME TO {name}")

    def add_column(self, table: str, name: str, kind: str, default: bytes | None = None) -> None:
        given = "" if default is None else f" DEFAULT '{default.decode()}'"
        self.run(f"ALTER TABLE {table} ADD COLUMN {name} {kind}{given}")

    def drop_column(self, table: str, name: str) -> None:
        self.run(f"ALTER TABLE {table} DROP COLUMN {name}")

    def rename_column(self, table: str, name: str, new: str) -> None:
        self.run(f"ALTER TABLE {table} RENAME COLUMN {name} TO {new}")

    def set_key(self, table: str, columns: Sequence[str]) -> None:
        key = f"ADD PRIMARY KEY ({', '.join(columns)})"
        self.run(f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {split(table)[1]}_pkey, {key}")

    def set_identity(self, table: str, identity: str) -> None:
        self.run(f"ALTER TABLE {table} REPLICA IDENTITY {_IDENTITIES[identity]}")

    def lock(self, table: str, mode: str = "AccessExclusiveLock") -> None:
        self.run(f"LOCK TABLE {table} IN {_MODES[mode]} MODE")

    def create_publication(self, name: str, tables: Sequence[str] | None) -> None:
        scope = "ALL TABLES" if tables is None else f"TABLE {', '.join(tables)}"
        self.run(f"CREATE PUBLICATION {name} FOR {scope} WITH (publish_via_partition_root = true)")

    def alter_publication(
        self, name: str, *, add: Sequence[str] = (), drop: Sequence[str] = (), to: Sequence[str] | None = None
    ) -> None:
        for how, tables in (("ADD", add), ("DROP", drop), ("SET", to or ())):
            if tables:
                self.run(f"ALTER PUBLICATION {name} {how} TABLE {', '.join(tables)}")


class _Recorder(RealWriter):
    """Keeps the statements for somebody else."""

    def __init__(self) -> None:
        self.statements: list[str] = []

    def run(self, statement: str | sql.Composed) -> int:
        self.statements.append(statement if isinstance(statement, str) else statement.as_string(None))
        return 0


class RealSide:
    """A real server.

    Args:
        database: of the script alone.
        stack: closes what the script opened.
        start_held: commits these statements so that the commit hangs between WAL and visibility.
        let_go: lets these commits through.
    """

    def __init__(
        self,
        database: Database,
        stack: contextlib.ExitStack,
        start_held: Callable[[Sequence[str]], None] | None = None,
        let_go: Callable[[], None] | None = None,
    ) -> None:
        self.slot = f"s_{database.name}"
        self.reach(database)
        self._stack = stack
        self._start_held, self._let_go = start_held, let_go

    def reach(self, database: Database) -> None:
        """Go on with this address: a server that starts again has another port."""
        self.connection: Mapping[str, str] = {"conninfo": database.dsn}
        self._database = database

    def begin(self) -> Writer:
        connection = self._stack.enter_context(contextlib.closing(self._database.connect()))
        connection.execute("SET lock_timeout = '200ms'")
        return RealWriter(connection)

    def xid(self, writer: Writer) -> int:
        assert isinstance(writer, RealWriter)
        row = writer.connection.execute("SELECT pg_current_xact_id_if_assigned()::text").fetchone()
        return int(row[0] or 0) if row is not None else 0

    def commit_prepared(self, gid: str) -> None:
        self._database.execute(f"COMMIT PREPARED '{gid}'")

    def waits(self, writer: Writer, act: Act) -> bool:
        return self.refusal(writer, act) == "LockNotAvailable"

    def refusal(self, writer: Writer, act: Act) -> str:
        writer.savepoint("attempt")
        try:
            act()
        except psycopg.Error as error:
            writer.rollback_to("attempt")
            return type(error).__name__
        finally:
            writer.release("attempt")
        return "none"

    def rows(self, table: str) -> list[Row]:
        with self._database.connect() as connection:
            cursor = connection.execute(f"SELECT * FROM {table}".encode())
            names = [each.name for each in cursor.description or ()]
            found = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        return _sorted([{name: _bytes(value) for name, value in row.items()} for row in found])

    def rewrite(self, table: str) -> None:
        self._database.execute(f"VACUUM FULL {table}")

    def hold(self, act: Callable[[Writer], object]) -> None:
        assert self._start_held is not None
        recorder = _Recorder()
        act(recorder)
        self._start_held(recorder.statements)

    def let_go(self) -> None:
        assert self._let_go is not None
        self._let_go()

    @contextlib.contextmanager
    def meanwhile(self, *acts: tuple[Writer, Act]) -> Iterator[None]:
        def work() -> None:
            with self._database.connect() as admin:
                for writer, act in acts:
                    assert isinstance(writer, RealWriter)
                    pid = writer.connection.info.backend_pid
                    eventually(lambda: admin.execute(_BLOCKED, [pid]).fetchone() == (True,))
                    act()

        with ThreadPoolExecutor(1) as threads:
            working = threads.submit(work)
            yield
            working.result()


class Stream:
    """A reader of the script's slot."""

    def __init__(self, side: Side, start: LSN = ZERO, *, is_streaming: bool = False) -> None:
        self._side = side
        self.xids: list[int | None] = []
        """Of each message that has arrived: the id that it has inside a block."""
        self._decoder = PgOutputDecoder()
        self._arrived: list[Message] = []
        self.position = ZERO
        connection = {**side.connection, **({"options": "-c logical_decoding_work_mem=64kB"} if is_streaming else {})}
        self.session = CopyBoth(connection, application_name="reader")
        try:
            assert self.session.hold(side.slot) is not None
            self.session.start(side.slot, PUBLICATION, start, streaming=is_streaming)
        except BaseException:
            self.session.close()
            raise

    def so_far(self) -> list[Message]:
        """Returns what has come since the last call, up to where the script is now, without what belongs to marks."""
        mark = str(len(self._side.rows(MARKS)) + 1).encode()
        writer = self._side.begin()
        writer.insert(MARKS, {"id": mark})
        writer.commit()
        self._read_until(lambda: _is_end(self._arrived) and _has_mark(self._arrived, mark))
        arrived, self._arrived = self._arrived, []
        return _without_marks(arrived)

    def next_transaction(self) -> list[Message]:
        """Returns what has come up to the next commit."""
        self._read_until(lambda: _is_end(self._arrived))
        arrived, self._arrived = self._arrived, []
        return arrived

    def whole(self) -> list[Message]:
        """Returns what the product makes of the blocks, up to the last mark."""
        streamed = StreamedTransactions(self.session.read, lambda: None)
        mark = str(len(self._side.rows(MARKS))).encode()
        decoder, messages = PgOutputDecoder(), list[Message]()
        while not (_is_end(messages) and _has_mark(messages, mark)):
            self.session.wait(0.1)
            messages += [decoder.decode(each[25:]) for each in streamed.read(512) if each[0] != KEEPALIVE_TAG]
        streamed.close()
        return _without_marks(messages)

    def follow(self, lsn: LSN) -> None:
        """Read until the server says that it has sent everything before a position."""
        self._read_until(lambda: self.position >= lsn)

    def confirm(self, lsn: LSN) -> None:
        """Confirm a position, and wait until the slot has it."""
        self.session.send(standby_status(lsn, lsn, lsn, 0))
        with connect(self._side.connection, application_name="watch") as conn:
            eventually(lambda: state_of(conn, self._side.slot).confirmed_flush_lsn == lsn)

    def close(self) -> None:
        """End, and wait until the slot is free."""
        self.session.close()
        with connect(self._side.connection, application_name="watch") as conn:
            eventually(lambda: not state_of(conn, self._side.slot).active)

    def _read_until(self, is_done: Callable[[], bool]) -> None:
        for _ in range(10_000):
            if is_done():
                return
            self.session.wait(1.0)
            for frame in self.session.read(512):
                if frame[0] == KEEPALIVE_TAG:
                    self.position = max(self.position, parse_keepalive(frame).end_lsn)
                else:
                    self._arrived.append(self._decoder.decode(frame[25:]))
                    self.xids.append(self._decoder.stream_xid)
        raise AssertionError(f"the stream does not bring what was expected: {self._arrived}")


def prepare(side: Side, tables: Mapping[str, Mapping[str, str]], *, published: Sequence[str] | None = None) -> None:
    """Make tables with a key ``id``, the table of marks, the publication and the slot.

    Args:
        tables: the columns of each table, with their types.
        published: the tables to publish, if not all of these.
    """
    writer = side.begin()
    for table, columns in tables.items():
        writer.create_table(table, columns, ["id"])
    writer.create_table(MARKS, {"id": "int8"}, ["id"])
    writer.create_publication(PUBLICATION, [*(tables if published is None else published), MARKS])
    writer.commit()
    make_slot(side)


def make_slot(side: Side) -> LSN:
    """Make the script's slot."""
    with connect(side.connection, application_name="slot") as conn:
        return create_slot(conn, side.slot)


def written(side: Side) -> LSN:
    """Returns the end of the WAL that is written."""
    with connect(side.connection, application_name="end") as conn:
        end = wal_end(conn)
    assert end is not None
    return end


def state_of(conn: psycopg.Connection[Any], slot: str) -> SlotState:
    """Returns the state of a slot that is there."""
    state = inspect_slot(conn, slot)
    assert state is not None
    return state


def done(side: Side, *acts: Callable[[Writer], object]) -> None:
    """Run each in a transaction of its own, and commit it."""
    for act in acts:
        writer = side.begin()
        act(writer)
        writer.commit()


@contextlib.contextmanager
def reading(side: Side, start: LSN = ZERO) -> Iterator[Stream]:
    """A stream that is closed at the end."""
    stream = Stream(side, start)
    try:
        yield stream
    finally:
        stream.session.close()


def _without_marks(messages: list[Message]) -> list[Message]:
    kept: list[Message] = []
    for place, each in enumerate(messages):
        if isinstance(each, Relation) and each.name == MARKS:
            continue
        if isinstance(each, Insert) and _is_mark(each):
            continue
        if isinstance(each, Commit) and kept and isinstance(kept[-1], Begin) and place:
            kept.pop()
            continue
        kept.append(each)
    return kept


def _is_end(messages: list[Message]) -> bool:
    return bool(messages) and isinstance(messages[-1], Commit)


def _has_mark(messages: list[Message], mark: bytes) -> bool:
    return any(isinstance(each, Insert) and _is_mark(each) and each.new[0] == mark for each in messages[-4:])


def _is_mark(insert: Insert) -> bool:
    return insert.relation.name == MARKS


def _sorted(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: [(value is None, value or b"") for value in row.values()])


def _bytes(value: object) -> bytes | None:
    return None if value is None else str(value).encode()


def _table(table: str) -> sql.Identifier:
    return sql.Identifier(*split(table))


def _literal(value: bytes | None) -> sql.Literal:
    return sql.Literal(None if value is None else value.decode())


def _equal(name: str, value: bytes | None) -> sql.Composed:
    return sql.SQL("{} = {}").format(sql.Identifier(name), _literal(value))


def _all(where: Row) -> sql.Composed:
    return sql.SQL(" AND ").join(_equal(*each) for each in where.items())


_BLOCKED: Final = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid)))"
_IDENTITIES: Final = {"d": "DEFAULT", "f": "FULL", "n": "NOTHING"}
_MODES: Final = {
    "AccessExclusiveLock": "ACCESS EXCLUSIVE",
    "AccessShareLock": "ACCESS SHARE",
    "ShareLock": "SHARE",
    "ExclusiveLock": "EXCLUSIVE",
    "RowExclusiveLock": "ROW EXCLUSIVE",
    "ShareUpdateExclusiveLock": "SHARE UPDATE EXCLUSIVE",
}
