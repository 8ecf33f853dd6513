"""Reads a replica in a file of SQLite, beside a sink that goes on writing to it.

A read transaction sees the commit at which it began. The sink's commits go into the write-ahead log meanwhile, which
cannot be emptied before the transaction ends: the log grows by what the sink writes until then.

https://www.sqlite.org/isolation.html
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

from cdc.contract.jobspec.deployment import JobTable
from cdc.spark.errors import SourceUnreadable
from cdc.spark.source.sql import quoted

_PATIENCE_S: Final = 10.0
_REMEDY: Final = (
    "check with cdc check whether the file is a replica, and let this user read it and write to its folder, where "
    "SQLite keeps its log"
)


class SqliteTransaction:
    """Implements ``ReadTransaction``.

    Args:
        session: in a transaction.
    """

    def __init__(self, session: sqlite3.Connection) -> None:
        self._session = session

    def execute(self, query: str, parameters: Sequence[str] = ()) -> sqlite3.Cursor:
        """Runs a query."""
        return self._session.execute(query, tuple(parameters))

    def has_replica(self) -> bool:
        """Returns whether a sink has made its tables here."""
        return self.execute("SELECT 1 FROM sqlite_master WHERE name = 'cdc_cut'").fetchone() is not None

    def rows(self, table: JobTable) -> sqlite3.Cursor:
        """Returns all rows of a table."""
        # Without the table's name, SQLite takes a quoted column that is not there for a text
        listed = ", ".join(f"t.{quoted(each.name)}" for each in table.columns)
        return self.execute(f"SELECT {listed} FROM {quoted(table.namespace, table.name)} AS t")


class SqliteDriver:
    """Implements ``ReplicaDriver``.

    Args:
        path: the file.
    """

    remedy_without_sink = ""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def address(self) -> str:
        """The file's path."""
        return str(self._path)

    def exists(self) -> bool:
        """Returns whether there is such a file."""
        return self._path.exists()

    @contextmanager
    def begin(self) -> Iterator[SqliteTransaction]:
        """Reads in one transaction to the end of the block."""
        try:
            place = f"file:{quote(str(self._path))}?mode=ro"
            with closing(sqlite3.connect(place, uri=True, timeout=_PATIENCE_S, isolation_level=None)) as session:
                # Damaged text must differ from every other, and not end the run
                session.text_factory = lambda raw: raw.decode("utf-8", "backslashreplace")
                session.execute("BEGIN")
                yield SqliteTransaction(session)
        except sqlite3.Error as error:
            raise SourceUnreadable(f"SQLite failed to read {self._path}: {error}", remedy=_REMEDY) from error
