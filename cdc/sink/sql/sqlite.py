"""SQLite as a replica.

An ordinary table converts values to what their column's type is like ("affinity"). So tables are STRICT, whose columns
keep what they are given or refuse it. Floating point numbers are in
columns of type ANY: REAL turns ``-0`` into ``0``, and no column of SQLite holds a NaN, which is the text ``NaN`` here.

https://www.sqlite.org/stricttables.html, https://www.sqlite.org/datatype3.html
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.sqlite import insert

from cdc.base.errors import ReplicaRefused
from cdc.contract.kinds import FLOATS, INTEGERS, Kind, kind_of
from cdc.sink.replica import Lack, NameRules, ReplicaName
from cdc.sink.sql.control import TABLES
from cdc.sink.sql.dialect import Blame, Conversion, Explained, StorageForm, StoredColumn, StoredTable, array_form
from cdc.sink.sql.files import ANOTHER_FILE, NO_MEMORY, NO_PLACE, NO_ROOM, SideLock, unwritable

_OLDEST: Final = (3, 37)
"""The first version with STRICT tables."""

_PATIENCE_S: Final = 3.0
"""How long a statement waits for another program's transaction on the file, before the session ends and tries again."""

_SCHEMA: Final = "main"

_DIALECT: Final = sqlite.dialect()
_UPDATES: Final = " DO UPDATE SET "

_OPEN_ELSEWHERE: Final = "end the transaction that another program has open on the file: the sink goes on by itself"

# https://www.sqlite.org/rescode.html
_EXPLAINED: Final[Mapping[int, Explained]] = {
    **dict.fromkeys((sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED), Explained(Blame.AWAY, _OPEN_ELSEWHERE)),
    sqlite3.SQLITE_FULL: Explained(Blame.AWAY, NO_ROOM),
    sqlite3.SQLITE_IOERR: Explained(Blame.AWAY, "look at the file's disk; cdc tries again by itself"),
    sqlite3.SQLITE_NOMEM: Explained(Blame.AWAY, NO_MEMORY),
    **dict.fromkeys(
        (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH),
        Explained(Blame.REFUSED, NO_PLACE),
    ),
    **dict.fromkeys((sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB), Explained(Blame.REFUSED, ANOTHER_FILE)),
}
"""What errors mean that do not blame the rows."""


def _bool(text: str) -> int:
    if text not in ("true", "false"):
        raise ValueError(f"{text!r} is not a boolean")
    return int(text == "true")


def _int(text: str) -> int:
    number = int(text)
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"{text} does not fit into 64 bits")
    return number


def _ints(texts: Sequence[str]) -> Sequence[int]:
    numbers = [*map(int, texts)]
    if numbers and not -(1 << 63) <= min(numbers) <= max(numbers) < 1 << 63:
        raise ValueError("a number does not fit into 64 bits")
    return numbers


def _float(text: str) -> float | str:
    return text if text == "NaN" else float(text)


def _bytes(text: str) -> bytes:
    if not text.startswith("\\x"):
        raise ValueError(f"{text[:20]!r} is not the hexadecimal form of bytes")
    return bytes.fromhex(text[2:])


_TEXT: Final = StorageForm("TEXT")
_INTEGER: Final = StorageForm("INTEGER", Conversion(_int, _ints))
_ANY: Final = StorageForm("ANY", _float)

SQLITE_FORMS: Final[Mapping[Kind, StorageForm]] = {
    Kind.BOOL: StorageForm("INTEGER", _bool),
    **dict.fromkeys(INTEGERS, _INTEGER),
    **dict.fromkeys(FLOATS, _ANY),
    Kind.BYTES: StorageForm("BLOB", _bytes),
    # Exactly PostgreSQL's text: SQLite has neither decimal numbers nor times
    **dict.fromkeys((Kind.DECIMAL, Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ), _TEXT),
    **dict.fromkeys((Kind.DOCUMENT, Kind.ASCII, Kind.TEXT), _TEXT),
}


class SqliteDialect:
    """A replica in a file of SQLite.

    Args:
        path: the file.
    """

    called = "SQLite"
    told = None
    commits_ddl = False
    grants = NO_PLACE
    table_options: Mapping[str, Any] = {"sqlite_strict": True}
    names = NameRules(
        schema=_SCHEMA, folds_case=True, reserved=frozenset(ReplicaName(_SCHEMA, each.name) for each in TABLES)
    )

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def address(self) -> str:
        """The file's path."""
        return str(self._path)

    def exists(self) -> bool:
        """Returns whether there is such a file."""
        return self._path.exists()

    def lacks(self) -> list[Lack]:
        """Returns which rights to file and folder are missing: SQLite writes files of its own beside the file."""
        return unwritable(self._path)

    def connect(self, *, reads_only: bool = False) -> sa.Connection:
        """Opens a new session."""
        if sqlite3.sqlite_version_info < _OLDEST:
            raise ReplicaRefused(
                f"this Python has SQLite {sqlite3.sqlite_version}, and a replica needs 3.37 or later",
                remedy="run cdc sink with another Python",
            )
        engine = sa.create_engine("sqlite://", creator=lambda: self._session(reads_only), poolclass=sa.pool.NullPool)
        # IMMEDIATE: a transaction that first reads and then writes fails if another program wrote in between
        begin = "BEGIN" if reads_only else "BEGIN IMMEDIATE"
        sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
        return engine.connect()

    def sole_writer(self, name: str) -> SideLock:
        """Returns the lock of the one sink of this name."""
        return SideLock(self._path, name)

    def form(self, sql_type: str, *, of_key: int, stored: str | None = None) -> StorageForm | None:
        """Returns how a column holds the values of a source type; None if one of type ``stored`` changes them."""
        kind, is_array, _ = kind_of(sql_type)
        if is_array:
            form = text = array_form(kind, _TEXT.sql)
        else:
            # 0 and -0 are different keys in the topic and one to SQLite
            form, text = _TEXT if of_key and kind in FLOATS else SQLITE_FORMS[kind], _TEXT
        if stored in (None, form.sql, _ANY.sql) or (form.sql, stored) == (_INTEGER.sql, "INT"):
            return form
        return text if stored == _TEXT.sql else None

    def stored(self, connection: sa.Connection, name: ReplicaName) -> StoredTable | None:
        """Returns what the catalog says about a table."""
        ask = connection.exec_driver_sql
        listed = ask("SELECT strict FROM pragma_table_list WHERE schema = ? AND name = ? COLLATE NOCASE", tuple(name))
        if (found := listed.first()) is None:
            return None
        place = name.table, name.schema
        rows = ask("SELECT name, type, pk, hidden FROM pragma_table_xinfo(?, ?)", place).all()
        columns = [StoredColumn(each.name, each.type.upper(), each.hidden > 1) for each in rows]
        primary_key = frozenset(each.name for each in rows if each.pk)
        keys = set()
        indexes = ask('SELECT name, origin FROM pragma_index_list(?, ?) WHERE "unique" AND NOT partial', place).all()
        for index in indexes:
            parts = ask("SELECT name, coll FROM pragma_index_xinfo(?, ?) WHERE key", (index.name, name.schema)).all()
            if all(each.name is not None and each.coll == "BINARY" for each in parts):
                keys.add(frozenset(each.name for each in parts))
        if len(primary_key) == 1 and all(index.origin != "pk" for index in indexes):
            keys.add(primary_key)  # INTEGER PRIMARY KEY is the row's number, and has no index
        flaw = "" if found.strict else "is not STRICT, so that it may convert values"
        return StoredTable(columns, primary_key, keys, flaw)

    def upsert(self, table: sa.Table, key: Sequence[str]) -> str:
        """Returns an INSERT of all columns that replaces the row with the same key."""
        statement = insert(table)
        others = {each.name: statement.excluded[each.name] for each in table.columns if each.name not in key}
        taken = statement.on_conflict_do_update(key, set_=others) if others else statement.on_conflict_do_nothing(key)
        return str(taken.compile(dialect=_DIALECT, column_keys=[each.name for each in table.columns]))

    def skips_equals(self, table: sa.Table) -> bool:  # noqa: ARG002 - of the protocol
        """Returns False: an UPDATE writes what it is told."""
        return False

    def delete(self, table: sa.Table, key: Sequence[str]) -> str:
        """Returns a DELETE of the row with a key."""
        wanted = [table.c[each] == sa.bindparam(f"key{place}") for place, each in enumerate(key)]
        return str(sa.delete(table).where(*wanted).compile(dialect=_DIALECT))

    def load(self, connection: sa.Connection, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Runs a statement for each of the rows. A trigger that leaves one out (``RAISE(IGNORE)``) is an error."""
        taken = connection.exec_driver_sql(statement, [tuple(row) for row in rows]).rowcount
        if taken < len(rows) and _UPDATES in statement:  # other statements may well find nothing to do
            raise sa.exc.IntegrityError(statement, None, sqlite3.IntegrityError("a trigger keeps a row out"))

    def explain(self, error: BaseException) -> Explained:
        """Returns what an error of the driver means."""
        if isinstance(error, OSError):
            return Explained(Blame.REFUSED, NO_PLACE)
        # The lower eight bits; the others tell more, and there are more of them in each version
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        return _EXPLAINED.get(code, Explained(Blame.ROWS))

    def _session(self, reads_only: bool) -> sqlite3.Connection:
        uri = f"file:{quote(str(self._path))}?mode={'ro' if reads_only else 'rwc'}"
        session = sqlite3.connect(uri, uri=True, timeout=_PATIENCE_S, isolation_level=None, check_same_thread=False)
        try:
            if not reads_only:
                # Readers read on while the sink writes. A loss of power may undo the last commits, but each with its
                # offsets, so that the sink applies their records again: no fsync at each commit
                session.execute("PRAGMA journal_mode = WAL")
                session.execute("PRAGMA synchronous = NORMAL")
                # The topics already hold what the source's foreign keys did, and tables may be at different moments
                session.execute("PRAGMA foreign_keys = OFF")
        except BaseException:
            session.close()
            raise
        return session
