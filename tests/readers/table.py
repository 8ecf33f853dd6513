"""The table that foreign readers read, and its life: every kind of change, and a value of each kind of type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import sql

NAME: Final = "public.matrix"
KEY: Final = ("id", "code")
ADDED: Final = "added"
"""The column that the table gets in the middle of its life: rows that do not change any more are read without it."""


class Form(Enum):
    """How values of a column are compared; ``canonical`` says what each means."""

    BOOLEAN = auto()
    INTEGER = auto()
    NUMERIC = auto()
    REAL = auto()
    DOUBLE = auto()
    TEXT = auto()
    DATE = auto()
    TIME = auto()
    TIMESTAMP = auto()
    TIMESTAMPTZ = auto()
    BYTES = auto()
    DOCUMENT = auto()


class Column(NamedTuple):
    """A column of the table.

    Attributes:
        sql_type: as in CREATE TABLE.
        form: of its values, or of its elements.
        values: SQL literals; row n has the nth of them, counted round.
    """

    sql_type: str
    form: Form
    values: Sequence[str | None]

    @property
    def is_array(self) -> bool:
        return self.sql_type.endswith("[]")


COLUMNS: Final[Mapping[str, Column]] = {
    "id": Column("integer", Form.INTEGER, ()),
    "code": Column("text", Form.TEXT, ("a", 'b "quoted"', "ü\\", "", "a\tb")),
    "small": Column("smallint", Form.INTEGER, ("-32768", "32767", "0", None)),
    "big": Column(
        "bigint", Form.INTEGER, ("-9223372036854775808", "9223372036854775807", "9007199254740993", "7", None)
    ),
    "price": Column("numeric(12,2)", Form.NUMERIC, ("12.50", "-9999999999.99", "0.00", None)),
    "exact": Column(
        "numeric", Form.NUMERIC, ("1.10", "12345678901234567890.1234567890123456789", "1e-20", "NaN", None)
    ),
    "ratio": Column("real", Form.REAL, ("0.1", "NaN", "-1.5", "Infinity", "3.4028235e38", None)),
    "measure": Column("double precision", Form.DOUBLE, ("0.1", "1e300", "-Infinity", "5e-324", "123456789.125", None)),
    "note": Column(
        "text", Form.TEXT, ("plain", "", 'naïve 𝔘 "q" \\ it\'s', "tab\tline\n\x01 end", "NULL", None, "null")
    ),
    "ok": Column("boolean", Form.BOOLEAN, ("t", "f", None)),
    "day": Column("date", Form.DATE, ("2026-03-29", "0001-01-01", "9999-12-31", "1969-12-31", None, "1582-10-10")),
    "clock": Column("time", Form.TIME, ("00:00:00", "23:59:59.999999", "12:34:56.78", None)),
    "local_at": Column(
        "timestamp",
        Form.TIMESTAMP,
        (
            *("2026-03-29 02:30:00", "9999-12-31 23:59:59.999999", "0001-01-01 00:00:00", "1969-12-31 23:59:59.999999"),
            *(None, "1582-10-10 12:00:00.5"),
        ),
    ),
    "seen_at": Column(
        "timestamptz",
        Form.TIMESTAMPTZ,
        (
            *("2026-03-29 01:30:00.123456+00", None, "0001-01-01 00:00:00+00", "9999-12-31 23:59:59.999999+00"),
            "2026-10-25 00:30:00+00",
        ),
    ),
    "ref": Column("uuid", Form.TEXT, ("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", None)),
    "raw": Column("bytea", Form.BYTES, ("", "\\x00ff5c22", None)),
    "doc": Column(
        "jsonb",
        Form.DOCUMENT,
        ('{"a": [1, null, {"b": "ü\\""}], "n": 12345678901234567890.10}', "null", "[]", '"text"', "1.10", "true", None),
    ),
    "numbers": Column("integer[]", Form.INTEGER, ("{}", "{1,NULL,-2147483648}", None)),
    "words": Column("text[]", Form.TEXT, ('{"a,b",NULL,"q\\"q","NULL","ü",""}', "{}", None, "{x}")),
    "mood": Column("mood", Form.TEXT, ("sad", 'so "happy"', "ünï", None)),
    ADDED: Column("numeric(6,3)", Form.NUMERIC, ("1.100", "-999.999", None)),
}

_FIRST: Final = [name for name in COLUMNS if name != ADDED]


def create(connection: psycopg.Connection[Any]) -> None:
    """Make the table, and the rows that it has before anything captures it."""
    connection.execute("CREATE TYPE mood AS ENUM ('sad', 'so \"happy\"', 'ünï')")
    columns = [f"{name} {COLUMNS[name].sql_type}" for name in _FIRST]
    connection.execute(f"CREATE TABLE matrix ({', '.join(columns)}, PRIMARY KEY ({', '.join(KEY)}))".encode())
    _insert(connection, range(1, 25), _FIRST, 0)


def keep_finite(connection: psycopg.Connection[Any], columns: Sequence[str]) -> None:
    """Make zeros of NaN and infinities in these columns, now and whenever a row is written."""
    infinite = "('NaN', 'Infinity', '-Infinity')"
    sets = " ".join(f"NEW.{each} := CASE WHEN NEW.{each} IN {infinite} THEN 0 ELSE NEW.{each} END;" for each in columns)
    connection.execute(
        f"CREATE FUNCTION keep_finite() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {sets} RETURN NEW; END $$;"
        "CREATE TRIGGER finite BEFORE INSERT OR UPDATE ON matrix FOR EACH ROW EXECUTE FUNCTION keep_finite();"
        "UPDATE matrix SET id = id".encode()
    )


def change(connection: psycopg.Connection[Any]) -> None:
    """Changes of every kind, while the table is captured; rows of each kind are left at the end."""
    with connection.transaction():
        _insert(connection, range(25, 41), _FIRST, 1)
        _update(connection, range(1, 41, 3), _FIRST, 2)
        _move_and_delete(connection)
    connection.execute("TRUNCATE matrix")
    _insert(connection, range(1, 31), _FIRST, 3)
    with connection.transaction():
        _update(connection, range(1, 31, 4), _FIRST, 4)
        _move_and_delete(connection)
    connection.execute(f"ALTER TABLE matrix ADD COLUMN {ADDED} {COLUMNS[ADDED].sql_type}".encode())
    _insert(connection, range(50, 75), list(COLUMNS), 5)
    _update(connection, range(2, 31, 6), list(COLUMNS), 6)


def touch(connection: psycopg.Connection[Any]) -> None:
    """Change some rows: so many that every partition gets one."""
    connection.execute("UPDATE matrix SET small = 1 WHERE id BETWEEN 50 AND 62")


def _move_and_delete(connection: psycopg.Connection[Any]) -> None:
    connection.execute("UPDATE matrix SET id = id + 1000 WHERE id % 5 = 1")
    connection.execute("UPDATE matrix SET code = code || '+', note = 'moved' WHERE id % 11 = 3")
    connection.execute("DELETE FROM matrix WHERE id % 7 = 0")


def _row(number: int, names: Sequence[str], turn: int) -> list[str | None]:
    values = [COLUMNS[name].values for name in names]
    return [str(number) if not each else each[(number + turn) % len(each)] for each in values]


def _insert(connection: psycopg.Connection[Any], ids: range, names: Sequence[str], turn: int) -> None:
    query = sql.SQL("INSERT INTO matrix ({}) VALUES ({})").format(
        sql.SQL(", ").join(map(sql.Identifier, names)), sql.SQL(", ").join(_casts(names))
    )
    with connection.transaction():
        for number in ids:
            connection.execute(query, [*_row(number, KEY, 0), *_row(number, names[len(KEY) :], turn)])


def _update(connection: psycopg.Connection[Any], ids: range, names: Sequence[str], turn: int) -> None:
    rest = names[len(KEY) :]
    pairs = zip(rest, _casts(rest), strict=True)
    query = sql.SQL("UPDATE matrix SET {} WHERE id = %s").format(
        sql.SQL(", ").join(sql.SQL("{} = {}").format(sql.Identifier(name), cast) for name, cast in pairs)
    )
    for number in ids:
        connection.execute(query, [*_row(number, rest, turn), number])


def _casts(names: Sequence[str]) -> list[sql.Composed]:
    return [sql.SQL("%s::{}").format(sql.SQL(COLUMNS[name].sql_type)) for name in names]
