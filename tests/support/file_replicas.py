"""Replicas in files: what is in them, as PostgreSQL would print it, and a deployment that fills one."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.request import urlopen

import duckdb
import psycopg
from pymysql.constants import FIELD_TYPE

from cdc.base.lsn import LSN
from cdc.base.table_names import parts
from cdc.lab.proof.comparison import Key, Rows, TableShape, describe, difference, pinned, table_rows
from cdc.lab.stack.embedded import free_port
from tests.support.bridge_process import CdcProcess
from tests.support.deployment import Deployment
from tests.support.forked import ForkedCdc
from tests.support.mariadb_server import MariadbDatabase
from tests.support.names import unique
from tests.support.servers import Database

_PRINTED = "SELECT v::{}::text FROM unnest(%s::float8[]) WITH ORDINALITY AS u (v, n) ORDER BY n"
_TYPES = "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0"


class FileReplica(Protocol):
    """A replica in a file."""

    @property
    def url(self) -> str:
        """The value of ``sink.url``."""

    @property
    def is_exclusive(self) -> bool:
        """Whether nobody else can read it while the sink runs."""

    @property
    def beyond(self) -> str:
        """Matches SQL expressions of values that types of this database do not hold."""

    def cut(self) -> LSN | None:
        """The LSN that the replica records; None before the first cut."""

    def states(self) -> dict[str, str]:
        """The state of each replica table."""

    def rows(self, table: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        """All rows of the replica of a source table."""

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run SQL as a person would; what the last statement returns."""


@dataclass
class SqliteReplica:
    """A file of SQLite."""

    path: Path
    is_exclusive: bool = False
    beyond: str = "$."

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    def cut(self) -> LSN | None:
        if not self.path.exists():
            return None
        try:
            found = self._ask("SELECT lsn FROM cdc_cut")
        except sqlite3.OperationalError:  # the sink has not made its tables yet
            return None
        return LSN.parse(found[0][0]) if found and found[0][0] else None

    def states(self) -> dict[str, str]:
        return dict(self._ask("SELECT replica_table, state FROM cdc_mirrored_table"))

    def rows(self, table: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        listed = ", ".join(_quoted(each) for each in columns)
        return self._ask(f"SELECT {listed} FROM {_quoted(flat_name(table))}")

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            return [connection.execute(each).fetchall() for each in ("BEGIN IMMEDIATE", *statements, "COMMIT")][-2]

    def _ask(self, query: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path)) as connection:
            return connection.execute(query).fetchall()


@dataclass
class DuckdbReplica:
    """A file of DuckDB. While the sink runs, no other process can open it."""

    path: Path
    is_exclusive: bool = True
    beyond: str = r"'NaN'::numeric\(|'294276-.*'::timestamp"

    @property
    def url(self) -> str:
        return f"duckdb:///{self.path}"

    def cut(self) -> LSN | None:
        found = self._ask("SELECT lsn FROM cdc_cut") if self.path.exists() else []
        return LSN.parse(found[0][0]) if found and found[0][0] else None

    def states(self) -> dict[str, str]:
        return dict(self._ask("SELECT replica_table, state FROM cdc_mirrored_table"))

    def rows(self, table: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        listed = ", ".join(_quoted(each) for each in columns)
        name = ".".join(map(_quoted, parts(table)))
        with closing(duckdb.connect(self.path)) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            types = [str(each) for each in connection.sql(f"SELECT {listed} FROM {name}").types]
            shown = [
                f"CAST({_quoted(each)} AS VARCHAR)"
                if kind.startswith(("DATE", "TIMESTAMP", "DECIMAL"))
                else _quoted(each)
                for each, kind in zip(columns, types, strict=True)
            ]
            found = connection.execute(f"SELECT {', '.join(shown)} FROM {name}").fetchall()
        is_moment = [kind.startswith(("DATE", "TIMESTAMP")) for kind in types]
        return [
            tuple(
                _before_christ(each) if moment and each is not None else each
                for each, moment in zip(row, is_moment, strict=True)
            )
            for row in found
        ]

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        with closing(duckdb.connect(self.path)) as connection:
            return [connection.execute(each).fetchall() for each in statements][-1]

    def _ask(self, query: str) -> list[tuple[Any, ...]]:
        with closing(duckdb.connect(self.path)) as connection:
            return connection.execute(query).fetchall()


@dataclass
class MariadbTables:
    """A database of MariaDB."""

    database: MariadbDatabase
    is_exclusive: bool = False
    beyond: str = (
        r"'NaN'::numeric\(|'-?(NaN|Infinity)'::(real|double)"
        r"|('-?infinity'|'[^'{[(]*BC'|'[0-9]{5,}-[^']*')::(date|timestamp)"
    )

    @property
    def url(self) -> str:
        return self.database.url

    def cut(self) -> LSN | None:
        if not self.database.execute("SHOW TABLES LIKE 'cdc_cut'"):  # the sink has not made its tables yet
            return None
        found = self.database.execute("SELECT lsn FROM cdc_cut")
        return LSN.parse(found[0][0]) if found and found[0][0] else None

    def states(self) -> dict[str, str]:
        return dict(self.database.execute("SELECT replica_table, state FROM cdc_mirrored_table"))

    def rows(self, table: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        listed = ", ".join("`" + each.replace("`", "``") + "`" for each in columns)
        connected = closing(self.database.server.connect(self.database.name, conv={}))
        with connected as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT {listed} FROM `{flat_name(table)}`")
            found, types = cursor.fetchall(), [each[1] for each in cursor.description]
        return [tuple(map(_of_mariadb, row, types)) for row in found]

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        return [self.database.execute(each) for each in statements][-1]


@dataclass
class FileDeployment(Deployment):
    """A deployment whose replica is a file. Nothing reads its ``replica``."""

    file: FileReplica = field(kw_only=True)

    def cut(self) -> LSN | None:
        """The LSN that the replica records, or that the sink tells if nobody else can read it; None before that."""
        if not self.file.is_exclusive:
            return self.file.cut()
        url = f"http://127.0.0.1:{self.settings['http']['sink_port']}/metrics"
        try:
            with urlopen(url, timeout=5) as answer:
                found = re.search(rb"^cdc_sink_cut_lsn ([0-9.e+]+)$", answer.read(), re.MULTILINE)
        except OSError:  # it is only starting
            return None
        return LSN(int(float(found[1]))) if found is not None else None

    def assert_equal(self, *tables: TableShape | str) -> None:
        """See that source, folded topic and replica hold the same rows, and no record went back or came twice."""
        self.wait_mirrored()
        self.assert_published(*tables)
        with self.opened():
            for table in tables:
                self.assert_holds(table)
            assert set(self.file.states().values()) == {"exact"}, self.sink.tail()

    def assert_holds(self, table: TableShape | str, lacking: Collection[Key] = ()) -> None:
        """See that the file holds the source's rows, all of them but for some keys, which are the source's."""
        with pinned(self.source.dsn) as source:
            shape = table if isinstance(table, TableShape) else describe(source, table)
            rows_there = table_rows(source, shape)
            wanted = {key: row for key, row in rows_there.items() if key not in lacking}
            assert len(rows_there) - len(wanted) == len(lacking), "rows that the source does not have"
            rows = self.file.rows(shape.table, [each.name for each in shape.columns])
            found = difference("replica", wanted, printed(source, shape, rows), shape)
            assert found is None, f"{shape.table}: {found}\n{self.sink.tail()}"

    @contextmanager
    def opened(self) -> Iterator[None]:
        """For as long as the block lasts, the file can be read: if it has to be, the sink is stopped."""
        if self.file.is_exclusive:
            self.sink.stop()
        yield
        if self.file.is_exclusive:
            self.sink.start()
            self.sink.wait_said("mirroring")


@contextmanager
def deployed_to_file(
    source: Database,
    bootstrap: str,
    file: FileReplica,
    directory: Path,
    sections: Mapping[str, Mapping[str, Any]] | None = None,
    kind: type[CdcProcess] = ForkedCdc,
) -> Iterator[FileDeployment]:
    """A deployment of its own name, whose processes are killed at the end."""
    settings: dict[str, Any] = {
        "name": (name := unique("t")),
        "source": {"dsn": source.dsn},
        "kafka": {"bootstrap": bootstrap},
        "topics": {"partitions": 3},
        "sink": {"url": file.url},
        "http": {"sink_port": free_port()},
    }
    for section, entries in (sections or {}).items():
        settings.setdefault(section, {}).update(entries)
    deployment = FileDeployment(name, source, bootstrap, source, directory, settings, kind, file=file)
    try:
        yield deployment
    finally:
        deployment.close()


def flat_name(table: str) -> str:
    """Name of a source table where there are no schemas."""
    namespace, name = parts(table)
    return name if namespace == "public" else f"{namespace}_{name}"


def printed(source: psycopg.Connection[Any], shape: TableShape, rows: Sequence[Sequence[Any]]) -> Rows:
    """The rows as the source's server prints such values; needs a ``pinned`` connection."""
    named = ".".join(_quoted(each) for each in parts(shape.table))
    types = dict(source.execute(_TYPES, [named]).fetchall())
    columns = []
    for column, values in zip(shape.columns, zip(*rows, strict=True), strict=False):
        kind = types[column.name]
        floats = [each for each in values if isinstance(each, float)]
        cast = kind if kind in ("real", "double precision") else "double precision"
        texts = iter(source.execute(_PRINTED.format(cast).encode(), [floats]).fetchall())
        columns.append([next(texts)[0].encode() if isinstance(each, float) else _text(each, kind) for each in values])
    shown = list(zip(*columns, strict=True))
    found = {shape.key_of(row): row for row in shown}
    assert len(found) == len(rows)
    return found


def _of_mariadb(value: Any, kind: int) -> Any:
    """A value as the driver gets it → as PostgreSQL's text, or a number."""
    if value is None or isinstance(value, bytes):
        return value
    if kind == FIELD_TYPE.DOUBLE:
        return float(value)
    # PostgreSQL leaves out zeros at the end of a fraction of a second, which a column of six digits shows
    return value.rstrip("0").rstrip(".") if kind == FIELD_TYPE.DATETIME else value


def _before_christ(text: str) -> str:
    """A moment as PostgreSQL writes it."""
    return text.replace(" (BC)", "") + " BC" if " (BC)" in text else text


def _text(value: Any, kind: str) -> bytes | None:
    if value is None:
        return None
    if kind == "boolean" and not isinstance(value, str):
        return b"t" if value else b"f"
    if isinstance(value, bytes):
        return b"\\x" + value.hex().encode()
    # MariaDB has no type with a zone; what has none elsewhere either is infinity
    if kind == "timestamp with time zone" and not any(each in str(value) for each in ("+", "infinity")):
        return f"{value}+00".encode()
    # The topic has the words of JSON where the server prints letters; so has a key, or a column that is text
    return {"true": b"t", "false": b"f", "1": b"t", "0": b"f"}[value] if kind == "boolean" else str(value).encode()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
