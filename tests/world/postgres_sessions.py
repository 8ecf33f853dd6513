"""Sessions of the model, as psycopg's ``Connection`` and libpq's ``PGconn`` show them to the product.

``PostgresWorld.connect`` stands for ``psycopg.connect``, and ``PostgresWorld.select`` for the module ``select``, which
waits for a session's socket. What a session is asked is answered by ``postgres_queries``.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

import psycopg
from psycopg import errors, pq, sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import DiagnosticField, ExecStatus, TransactionStatus

from tests.world.pgoutput import Walsender
from tests.world.postgres import WorldServer, WorldSlot
from tests.world.postgres_errors import failure, lost
from tests.world.postgres_queries import find_answer
from tests.world.postgres_tables import Sees
from tests.world.postgres_transaction import READ, WorldTransaction
from tests.world.turns import Turns

_IDLE_S: Final = 300.0
"""After it, the server ends an idle session that holds the lock of a slot."""
_CONNECT_S: Final = 10.0
_PART: Final = 0.25
"""How often only a part of what the server sends has arrived."""


class ServerSession:
    """A session, at the server. It holds locks by itself or in its transaction.

    Attributes:
        transaction: what ``BEGIN`` began.
        is_repeatable: whether all statements of the transaction read in one snapshot.
        is_failed: whether the transaction can only be rolled back.
        is_orphan: whether its program is dead, and the server has not noticed.
        is_cut: whether its program has cut the connection.
        is_cancelled: whether somebody cancelled what it does.
    """

    def __init__(self, server: WorldServer, keywords: Mapping[str, str]) -> None:
        self.server = server
        self.process: Hashable = server.turns.process
        self.pid: int | None = server.new_pid()
        self.application = keywords.get("application_name", "")
        self.user = keywords.get("user", "cdc")
        self.since = server.turns.now
        self.began = f"{self.since:.6f}"
        self.transaction: WorldTransaction | None = None
        self.is_repeatable = False
        self.is_failed = False
        self.is_orphan = self.is_cut = self.is_cancelled = self.is_ended = False
        self.lock_timeout_s = self.own_lock_timeout_s = _lock_timeout(keywords.get("options", ""))
        self.statement_timeout_s: float | None = None
        self.sender: Walsender | None = None
        self.slot: WorldSlot | None = None
        self.inbox: deque[bytes] = deque()
        self.heard_at = self.asked_at = server.turns.now
        self.error: psycopg.Error | None = None
        self._sees: Sees | None = None
        server.sessions.append(self)

    def run(self, text: str, values: Any) -> list[tuple[Any, ...]]:
        """Send a statement and get its rows.

        Raises:
            psycopg.Error: as psycopg does.
        """
        turns, self.is_cancelled = self.server.turns, False
        turns.turn()
        if not self.server.answers:
            turns.wait(lambda: self.server.answers or self.is_over)
        self.check()
        answer, found = find_answer(text)
        self.heard_at = turns.now
        try:
            if self.is_failed and text != "ROLLBACK" and not text.startswith("ROLLBACK TO"):
                raise failure(errors.InFailedSqlTransaction, "current transaction is aborted")
            rows = answer(self, values, found)
        except psycopg.Error:
            self.is_failed = self.transaction is not None
            turns.turn()
            self.check()
            raise
        turns.turn()
        self.check()
        return rows

    @property
    def is_over(self) -> bool:
        """Whether it ended, or the program cut the connection."""
        return self.is_ended or self.is_cut

    def check(self) -> None:
        """Raise what the end of the session, or somebody who cancels it, makes of a statement."""
        if self.is_over:
            raise lost()
        if self.is_cancelled:
            self.is_cancelled = False
            raise failure(errors.QueryCanceled, "canceling statement due to user request")

    def sees(self) -> Sees:
        """Returns the snapshot of the present statement."""
        if not self.is_repeatable:
            return self.server.sees()
        self._sees = self._sees or self.server.sees()
        return self._sees

    def wait(self, is_done: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait, in a statement, until something is true or the time is over.

        Raises:
            psycopg.Error: the session ended, or the statement was cancelled.
        """
        done = self.server.turns.wait(lambda: self.is_over or self.is_cancelled or is_done(), timeout_s)
        self.check()
        return done

    def lock(self, oid: int, mode: str = READ) -> None:
        """Wait until nobody holds a conflicting lock. In a transaction, take the lock.

        Raises:
            psycopg.errors.LockNotAvailable: ``lock_timeout`` is over.
        """
        server, holder = self.server, self.transaction or self

        def is_free() -> bool:
            return not server.blocking(oid, mode, holder)

        if not is_free() and not self.wait(is_free, self.lock_timeout_s or None):
            raise failure(errors.LockNotAvailable, "canceling statement due to lock timeout")
        if self.transaction is not None:
            self.transaction.lock_oid(oid, mode)

    def begin(self, *, is_repeatable: bool = False) -> None:
        """BEGIN."""
        assert self.pid is not None
        self.transaction = WorldTransaction(self.server, self.pid, self.application)
        self.is_repeatable = is_repeatable

    def commit(self) -> None:
        """COMMIT: others may go on between the WAL and visibility."""
        transaction = self.transaction
        assert transaction is not None
        if transaction.xid:
            transaction.write_commit()
            self.server.turns.turn()
        if not transaction.is_over:
            transaction.show()
        self.forget()

    def rollback(self) -> None:
        """ROLLBACK."""
        if self.transaction is not None and not self.transaction.is_over:
            self.transaction.abort()
        self.forget()

    def forget(self) -> None:
        """Be outside of transactions again; what was set for one ends."""
        self.transaction = self._sees = self.statement_timeout_s = None
        self.is_repeatable = self.is_failed = False
        self.lock_timeout_s = self.own_lock_timeout_s

    def end(self) -> None:
        """End, at the server: locks and slot are free, and what was not committed is rolled back."""
        if self.is_ended:
            return
        self.is_ended = True
        self.server.sessions.remove(self)
        if self.transaction is not None and not self.transaction.is_over:
            if self.transaction.end_lsn is None:
                self.transaction.abort()
            else:
                self.transaction.show()
        for name in [name for name, each in self.server.advisory.items() if each is self]:
            del self.server.advisory[name]
        if self.slot is not None and self.slot.reader is self:
            self.slot.reader = None

    def steps(self) -> list[Callable[[], object]]:
        """Returns what the server may do to this session by itself now."""
        now = self.server.turns.now
        if self.is_orphan:
            return [self.end]
        if self.sender is not None:
            silent_s = now - self.heard_at
            if silent_s > self.server.wal_sender_timeout_s:
                return [self.end]
            if silent_s > self.server.wal_sender_timeout_s / 2 and self.asked_at <= self.heard_at:
                return [self._ask]
        elif self in self.server.advisory.values() and now - self.heard_at > _IDLE_S:
            return [self.end]
        return []

    def _ask(self) -> None:
        assert self.sender is not None
        self.asked_at = self.server.turns.now
        self.sender.keep_alive(wants_reply=True)

    # The replication stream.

    @property
    def has_input(self) -> bool:
        """Whether bytes for the program are there, or it would learn of the end."""
        if self.is_over or self.inbox or self.error is not None:
            return True
        return self.server.answers and self.sender is not None and self.sender.has_more

    def receive(self) -> None:
        """Let what the server sends arrive, all of it or a part."""
        sender, rng = self.sender, self.server.turns.rng
        if sender is None or not self.server.answers or self.error is not None:
            return
        try:
            sender.work()
        except psycopg.Error as error:
            self.error = error
            self.end()
            return
        count = len(sender.outbox)
        if count > 1 and rng.random() < _PART:
            count = rng.randrange(1, count)
        for _ in range(count):
            self.inbox.append(sender.outbox.popleft())

    def hear(self, frame: bytes) -> None:
        """Take a status update."""
        assert self.sender is not None
        assert self.slot is not None
        confirmed = self.sender.hear(frame)
        self.slot.confirmed = max(self.slot.confirmed, confirmed)
        self.heard_at = self.server.turns.now


class WorldResult:
    """A result as libpq shows it; values are in text form."""

    def __init__(
        self, status: ExecStatus, rows: Sequence[Sequence[Any]] = (), error: psycopg.Error | None = None
    ) -> None:
        self.status = status
        self.ntuples = len(rows)
        self._rows = rows
        self._error = error

    @property
    def error_message(self) -> bytes:
        """The server's words."""
        return str(self._error or "").encode()

    def get_error_message(self) -> str:
        """Returns the server's words."""
        return str(self._error or "")

    def error_field(self, field: DiagnosticField) -> bytes | None:
        """Returns SQLSTATE or message of an error; None if the connection broke."""
        state = None if self._error is None else self._error.sqlstate
        if state is None:
            return None
        assert field in (DiagnosticField.SQLSTATE, DiagnosticField.MESSAGE_PRIMARY)
        return state.encode() if field == DiagnosticField.SQLSTATE else self.error_message

    def get_value(self, row: int, column: int) -> bytes | None:
        """Returns a value; None for NULL."""
        value = self._rows[row][column]
        return value if value is None or isinstance(value, bytes) else str(value).encode()


class WorldPgconn:
    """What the product uses of libpq's connection."""

    def __init__(self, session: ServerSession, socket: int) -> None:
        self.server_version = session.server.version
        self.backend_pid = session.pid
        self.socket = socket
        self.nonblocking = 0
        self.status = pq.ConnStatus.OK
        self._session = session
        self._lines: deque[bytes] | None = None
        self._results: list[WorldResult] = []

    @property
    def transaction_status(self) -> TransactionStatus:
        """Whether a transaction is open, and whether it has failed."""
        if self.status != pq.ConnStatus.OK:
            return TransactionStatus.UNKNOWN
        if self._session.transaction is None:
            return TransactionStatus.IDLE
        return TransactionStatus.INERROR if self._session.is_failed else TransactionStatus.INTRANS

    def exec_(self, command: bytes) -> WorldResult:
        """Run a command of the replication protocol, or a statement."""
        return self.exec_params(command, None)

    def exec_params(
        self, command: bytes, values: Sequence[bytes] | None, *, result_format: pq.Format = pq.Format.TEXT
    ) -> WorldResult:
        """Run one statement."""
        assert result_format == pq.Format.TEXT
        text = command.decode()
        try:
            rows = self.run(text, values)
        except psycopg.Error as error:
            return WorldResult(ExecStatus.FATAL_ERROR, error=error)
        if text.startswith("START_REPLICATION"):
            return WorldResult(ExecStatus.COPY_BOTH)
        if text.startswith("COPY"):
            self._lines = deque(line for (line,) in rows)
            return WorldResult(ExecStatus.COPY_OUT)
        return WorldResult(ExecStatus.TUPLES_OK, rows)

    def run(self, text: str, values: Any) -> list[tuple[Any, ...]]:
        """Run a statement; a connection that broke stays broken."""
        try:
            return self._session.run(text, values)
        except psycopg.Error as error:
            if error.sqlstate is None:
                self.status = pq.ConnStatus.BAD
            raise

    def get_copy_data(self, async_: int) -> tuple[int, bytes]:
        """Returns a frame of the stream, or a line of a copy, with its size; 0 if none has arrived, -1 at the end."""
        assert async_ == 1
        if self._lines is not None:
            return self._line(self._lines)
        session = self._session
        if session.inbox:
            frame = session.inbox.popleft()
            return len(frame), frame
        if session.error is not None:
            self._results = [WorldResult(ExecStatus.FATAL_ERROR, error=session.error)]
            return -1, b""
        if session.is_over:
            self.status = pq.ConnStatus.BAD
            raise lost()
        return 0, b""

    def _line(self, lines: deque[bytes]) -> tuple[int, bytes]:
        turns = self._session.server.turns
        if turns.rng.random() < _PART:
            turns.turn()
        if self._session.is_over:
            self.status = pq.ConnStatus.BAD
            raise lost()
        if lines:
            line = lines.popleft()
            return len(line), line
        self._lines = None
        self._results = [WorldResult(ExecStatus.COMMAND_OK)]
        return -1, b""

    def consume_input(self) -> None:
        """Take in what the server has sent."""
        self._session.server.turns.turn()
        if self._session.is_over and not self._session.inbox and self._session.error is None:
            self.status = pq.ConnStatus.BAD
            raise lost()
        self._session.receive()

    def is_busy(self) -> int:
        """Whether ``get_result`` would wait; it never does."""
        return 0

    def get_result(self) -> WorldResult | None:
        """Returns the next result; None when there is none."""
        return self._results.pop(0) if self._results else None

    def put_copy_data(self, frame: bytes) -> None:
        """Send a status update."""
        self._session.server.turns.turn()
        if self._session.is_over:
            self.status = pq.ConnStatus.BAD
            raise lost()
        self._session.hear(frame)

    def flush(self) -> int:
        """Returns 0: all is sent."""
        return 0


class WorldCursor:
    """The rows of a statement."""

    def __init__(self, rows: list[tuple[Any, ...]]) -> None:
        self._rows = iter(rows)
        self.rowcount = len(rows)

    def fetchone(self) -> tuple[Any, ...] | None:
        """Returns the next row; None after the last one."""
        return next(self._rows, None)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Returns the rows that are left."""
        return list(self._rows)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self._rows


class WorldConnection:
    """What the product uses of a psycopg connection with autocommit."""

    connection = None
    """Whoever quotes for SQL asks for it, and quotes without a server then."""
    adapters = psycopg.adapters

    def __init__(self, session: ServerSession, socket: int) -> None:
        server = session.server
        self.pgconn = WorldPgconn(session, socket)
        self.info = SimpleNamespace(
            server_version=server.version,
            dbname=server.database,
            user=session.user,
            backend_pid=session.pid,
            parameter_status={"server_encoding": "UTF8", "client_encoding": "UTF8"}.get,
        )
        self._session = session
        self._socket = socket

    @property
    def closed(self) -> bool:
        """Whether it was closed, or is known to be broken."""
        return self.pgconn.status != pq.ConnStatus.OK

    def execute(
        self,
        query: str | bytes | sql.Composable,
        values: Any = None,
        *,
        binary: bool | None = None,  # all results are text here
    ) -> WorldCursor:
        """Run a statement."""
        if self.closed:
            raise psycopg.OperationalError("the connection is closed")
        if isinstance(query, sql.Composable):
            query = query.as_string(None)
        return WorldCursor(self.pgconn.run(query if isinstance(query, str) else query.decode(), values))

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """A block in a transaction of its own."""
        self.execute("BEGIN")
        try:
            yield
        except BaseException:
            if not self.closed and not self._session.is_over:
                self.execute("ROLLBACK")
            raise
        self.execute("COMMIT")

    def cancel_safe(self, *, timeout: float = 30.0) -> None:
        """Cancel the statement that another thread waits for."""
        if not self._session.is_over and self._session.server.answers:
            self._session.is_cancelled = True

    def fileno(self) -> int:
        """Cut the connection: nobody asks for the descriptor otherwise."""
        self._session.is_cut = True
        raise OSError("there is no descriptor: the connection is cut")

    def close(self) -> None:
        """End the session."""
        self.pgconn.status = pq.ConnStatus.BAD
        self._session.end()

    def __enter__(self) -> WorldConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class PostgresWorld:
    """All servers, by host name.

    Attributes:
        select: stands for the module ``select`` in modules that wait for a session's socket.
    """

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.servers: dict[str, WorldServer] = {}
        self.select = SimpleNamespace(POLLIN=1, poll=lambda: WorldPoll(self), select=lambda *_: ([], [], []))
        self._sockets: dict[int, ServerSession] = {}
        self._keywords: dict[str, dict[str, str]] = {}

    def add(self, server: WorldServer) -> WorldServer:
        """Let clients reach a server."""
        self.servers[server.name] = server
        return server

    def connect(self, conninfo: str, *, autocommit: bool = False) -> WorldConnection:
        """Open a session with the first host that takes it.

        Raises:
            psycopg.OperationalError: none does.
        """
        assert autocommit, "not modelled"
        keywords = self._keywords.get(conninfo)
        if keywords is None:
            parsed = conninfo_to_dict(conninfo)
            keywords = self._keywords[conninfo] = {name: str(value) for name, value in parsed.items()}
        said = "no host"
        for host in keywords.get("host", "").split(","):
            server = self.servers[host]
            self.turns.turn()
            if not server.answers and not self.turns.wait(partial(getattr, server, "answers"), _CONNECT_S):
                said = "connection timeout expired"
            elif server.is_away:
                said = f'connection to server at "{host}", port 5432 failed: Connection refused'
            elif keywords.get("target_session_attrs") == "read-write" and server.upstream is not None:
                said = "session is read-only"
            else:
                session = ServerSession(server, keywords)
                socket = 1_000 + len(self._sockets)
                self._sockets[socket] = session
                self.turns.turn()
                return WorldConnection(session, socket)
        raise lost(f"connection failed: {said}")

    def wait_for(self, sockets: Sequence[int], timeout_s: float | None) -> list[tuple[int, int]]:
        """Wait until a socket can be read."""
        sessions = [(each, self._sockets[each]) for each in sockets]
        if timeout_s != 0:
            self.turns.wait(lambda: any(session.has_input for _, session in sessions), timeout_s)
        return [(each, 1) for each, session in sessions if session.has_input]


class WorldPoll:
    """What ``select.poll()`` returns."""

    def __init__(self, world: PostgresWorld) -> None:
        self._world = world
        self._sockets: list[int] = []

    def register(self, socket: int, mask: int) -> None:
        """Wait for this socket, too."""
        assert mask == 1
        self._sockets.append(socket)

    def poll(self, timeout_ms: float | None = None) -> list[tuple[int, int]]:
        """Returns the sockets that can be read, after at most this time."""
        return self._world.wait_for(self._sockets, None if timeout_ms is None else timeout_ms / 1000)


def _lock_timeout(options: str) -> float:
    _, _, last = options.rpartition("lock_timeout=")
    return float(last.split()[0].rstrip("s")) if last.strip() else 0.0
