"""DuckDB as a replica.

DuckDB's casts round (``1.5`` becomes the integer 2) and drop what they do not know (``BC`` after a time). So each text
is checked here, and the server gets only texts that it reads as exactly that value. What lies beyond a type's range,
the cast refuses.

Rows go to the server column by column, and a statement unnests them: row by row, DuckDB takes a hundred times as long.
A column without a NULL is one text that DuckDB splits, which takes it two thirds of the time of a list.

https://duckdb.org/docs/stable/sql/data_types/overview
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from operator import itemgetter, methodcaller
from pathlib import Path
from typing import Any, Final

import duckdb
import sqlalchemy as sa
from duckdb_engine import Dialect

from cdc.contract.kinds import FLOATS, Kind, kind_of
from cdc.contract.pgtypes import quote_identifier
from cdc.sink.replica import Lack, NameRules, ReplicaName
from cdc.sink.sql.control import TABLES
from cdc.sink.sql.dialect import Blame, Conversion, Explained, StorageForm, StoredColumn, StoredTable, array_form
from cdc.sink.sql.exact_texts import Texts, is_wider, then
from cdc.sink.sql.files import ANOTHER_FILE, NO_MEMORY, NO_PLACE, NO_ROOM, SideLock, StateFile, unwritable

_DIALECT: Final = Dialect()

_COLUMNS: Final = """
SELECT column_name, data_type FROM duckdb_columns()
WHERE database_name = current_database() AND lower(schema_name) = lower(?) AND lower(table_name) = lower(?)
ORDER BY column_index
"""
_KEYS: Final = """
SELECT constraint_type, constraint_column_names FROM duckdb_constraints()
WHERE database_name = current_database() AND lower(schema_name) = lower(?) AND lower(table_name) = lower(?)
  AND constraint_type IN ('PRIMARY KEY', 'UNIQUE')
"""

_HELD: Final = (
    "DuckDB lets one process at a time open a file for writing: end the one that the message names; the sink "
    "goes on by itself"
)
_NOT_OF_ROWS: Final = (
    duckdb.IOException
    | duckdb.OutOfMemoryException
    | duckdb.TransactionException
    | duckdb.FatalException
    | duckdb.InternalException
)
"""What errors do not blame the rows."""

_MESSAGES: Final = (
    ("Could not set lock on file", Explained(Blame.AWAY, _HELD)),
    ("No space left", Explained(Blame.AWAY, NO_ROOM)),
    ("not a valid DuckDB database", Explained(Blame.REFUSED, ANOTHER_FILE)),
    ("version number", Explained(Blame.REFUSED, "install the version of duckdb that made the file, or a later one")),
)
"""What some of them mean, by their words: DuckDB has no codes."""


_SOURCE: Final = "\0"
"""Stands in a statement for the texts of a column."""
_BETWEEN: Final = "\0,"
_JOINED: Final = "string_split(?, chr(0) || ',')"
_LISTED: Final = "CAST(? AS VARCHAR[])"

_TEXTS: Final = Texts("VARCHAR")


def _moment(plain: Conversion, text: str) -> str:
    if not text.endswith(" BC"):
        return str(plain.one(text))
    date, *rest = str(plain.one(text.removesuffix(" BC"))).split(" ")
    return " ".join([date, "(BC)", *rest])


def _moments(time: str, what: str) -> Conversion:
    plain = _TEXTS.checked(rf"-?infinity|[0-9]{{4,7}}-[0-9]{{2}}-[0-9]{{2}}{time}", what)
    one = partial(_moment, plain)

    def many(texts: Sequence[str]) -> Sequence[str]:
        return [*map(one, texts)] if any(map(_BEFORE_CHRIST, texts)) else plain.many(texts)

    return Conversion(one, many)


_BEFORE_CHRIST: Final = methodcaller("endswith", " BC")
_HEX: Final = _TEXTS.checked(r"\\x(?:[0-9a-f]{2})*", "the hexadecimal form of bytes")
_TIME: Final = r" [0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?"
_INTEGER: Final = _TEXTS.checked("-?[0-9]+", "a whole number")
_TEXT: Final = StorageForm(_TEXTS.sql)

DUCKDB_FORMS: Final[Mapping[Kind, StorageForm]] = {
    Kind.BOOL: StorageForm("BOOLEAN", _TEXTS.checked("true|false", "a boolean")),
    Kind.INT16: StorageForm("SMALLINT", _INTEGER),
    Kind.INT32: StorageForm("INTEGER", _INTEGER),
    Kind.INT64: StorageForm("BIGINT", _INTEGER),
    Kind.FLOAT32: StorageForm("FLOAT"),
    Kind.FLOAT64: StorageForm("DOUBLE"),
    # One with a precision that DuckDB has becomes DECIMAL
    Kind.DECIMAL: _TEXT,
    Kind.DATE: StorageForm("DATE", _moments("", "a date")),
    Kind.TIMESTAMP: StorageForm("TIMESTAMP", _moments(_TIME, "a timestamp")),
    Kind.TIMESTAMPTZ: StorageForm("TIMESTAMP WITH TIME ZONE", _moments(rf"{_TIME}\+00", "a timestamp in UTC")),
    Kind.BYTES: StorageForm("BLOB", then(_HEX, itemgetter(slice(2, None)))),
    **dict.fromkeys((Kind.DOCUMENT, Kind.ASCII, Kind.TEXT), _TEXT),
}

_WIDER: Final[Mapping[str, frozenset[str]]] = {
    "SMALLINT": frozenset({"INTEGER", "BIGINT", "HUGEINT"}),
    "INTEGER": frozenset({"BIGINT", "HUGEINT"}),
    "BIGINT": frozenset({"HUGEINT"}),
}
_MOST_DIGITS: Final = 38


class DuckdbDialect:
    """A replica in a file of DuckDB.

    Args:
        path: the file.
    """

    called = "DuckDB"
    commits_ddl = False
    grants = NO_PLACE
    table_options: Mapping[str, Any] = {}
    names = NameRules(folds_case=True, reserved=frozenset(ReplicaName("main", each.name) for each in TABLES))

    def __init__(self, path: Path) -> None:
        self._path = path
        self.told = StateFile(path)

    @property
    def address(self) -> str:
        """The file's path."""
        return str(self._path)

    def exists(self) -> bool:
        """Returns whether there is such a file."""
        return self._path.exists()

    def lacks(self) -> list[Lack]:
        """Returns which rights to file and folder are missing."""
        return unwritable(self._path)

    def connect(self, *, reads_only: bool = False) -> sa.Connection:
        """Opens a new session. If this process has the file open, a session that only reads shares that."""
        if reads_only:
            try:
                return self._opened(read_only=True)
            except sa.exc.DBAPIError as error:
                if not isinstance(error.orig, duckdb.ConnectionException):
                    raise
        return self._opened(read_only=False)

    def sole_writer(self, name: str) -> SideLock:
        """Returns the lock of the one sink of this name."""
        return SideLock(self._path, name)

    def form(self, sql_type: str, *, of_key: int, stored: str | None = None) -> StorageForm | None:
        """Returns how a column holds the values of a source type; None if one of type ``stored`` changes them."""
        kind, is_array, _ = kind_of(sql_type)
        text = array_form(kind, _TEXT.sql) if is_array else _TEXT
        # 0 and -0 are different keys in the topic and one to DuckDB
        scaled = _TEXTS.decimals(sql_type, digits=_MOST_DIGITS, scale=_MOST_DIGITS)
        made = text if is_array or (of_key and kind in FLOATS) else scaled or DUCKDB_FORMS[kind]
        if stored in (None, made.sql):
            return made
        if stored == _TEXT.sql:
            return text
        return made._replace(sql=stored) if is_wider(_WIDER, made.sql, stored or "") else None

    def stored(self, connection: sa.Connection, name: ReplicaName) -> StoredTable | None:
        """Returns what the catalog says about a table."""
        ask = connection.exec_driver_sql
        rows = ask(_COLUMNS, tuple(name)).all()
        if not rows:
            return None
        keys = ask(_KEYS, tuple(name)).all()
        return StoredTable(
            [StoredColumn(each.column_name, each.data_type, False) for each in rows],
            next((frozenset(columns) for kind, columns in keys if kind == "PRIMARY KEY"), frozenset()),
            {frozenset(columns) for _, columns in keys},
        )

    def upsert(self, table: sa.Table, key: Sequence[str]) -> str:
        """Returns an INSERT of all columns that replaces the row with the same key."""
        quoted = [quote_identifier(each.name) for each in table.columns]
        others = [quote_identifier(each.name) for each in table.columns if each.name not in key]
        taken = f"UPDATE SET {', '.join(f'{each} = excluded.{each}' for each in others)}" if others else "NOTHING"
        values = ", ".join(_unnested(each) for each in table.columns)
        arbiter = ", ".join(map(quote_identifier, key))
        return f"INSERT INTO {_named(table)} ({', '.join(quoted)}) SELECT {values} ON CONFLICT ({arbiter}) DO {taken}"

    def skips_equals(self, table: sa.Table) -> bool:
        """Returns whether a column is a floating point number: an UPDATE writes no value that equals the old one."""
        floats = {DUCKDB_FORMS[each].sql for each in FLOATS}
        return any(each.type.compile(dialect=_DIALECT) in floats for each in table.columns)

    def delete(self, table: sa.Table, key: Sequence[str]) -> str:
        """Returns a DELETE of the row with a key."""
        values = ", ".join(f"{_unnested(table.c[each])} AS k{place}" for place, each in enumerate(key))
        same = " AND ".join(f"t.{quote_identifier(each)} = gone.k{place}" for place, each in enumerate(key))
        return f"DELETE FROM {_named(table)} AS t USING (SELECT {values}) AS gone WHERE {same}"

    def load(self, connection: sa.Connection, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Runs a statement for all rows at once."""
        first, *others = statement.split(_SOURCE)
        sources: list[str] = []
        texts: list[str | list[str | None]] = []
        for column in zip(*rows, strict=True):
            if set(map(type, column)) == {str}:
                sources.append(_JOINED)
                texts.append(_BETWEEN.join(column))
            else:
                sources.append(_LISTED)
                texts.append([None if value is None else str(value) for value in column])
        parts = [first, *(each for pair in zip(sources, others, strict=True) for each in pair)]
        connection.exec_driver_sql("".join(parts), tuple(texts))

    def explain(self, error: BaseException) -> Explained:
        """Returns what an error of the driver means."""
        if not isinstance(error, OSError | _NOT_OF_ROWS):
            return Explained(Blame.ROWS)
        if (told := next((told for words, told in _MESSAGES if words in str(error)), None)) is not None:
            return told
        if isinstance(error, OSError | duckdb.IOException):
            return Explained(Blame.REFUSED, NO_PLACE)
        return Explained(Blame.AWAY, NO_MEMORY if isinstance(error, duckdb.OutOfMemoryException) else "")

    def _opened(self, *, read_only: bool) -> sa.Connection:
        engine = sa.create_engine(
            f"duckdb:///{self._path}", poolclass=sa.pool.NullPool, connect_args={"read_only": read_only}
        )
        return engine.connect()


def _unnested(column: sa.Column[Any]) -> str:
    sql = column.type.compile(dialect=_DIALECT)
    texts = f"unnest({_SOURCE})"
    return f"unhex({texts})" if sql == "BLOB" else f"CAST({texts} AS {sql})"


def _named(table: sa.Table) -> str:
    parts = [table.schema, table.name] if table.schema else [table.name]
    return ".".join(map(quote_identifier, parts))
