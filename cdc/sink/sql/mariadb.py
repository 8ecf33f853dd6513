"""MariaDB as a replica: tables of InnoDB in the one database that ``sink.url`` names.

Values go to the server as literals in statements of many rows, each checked here first: even in strict mode, MariaDB
rounds a fraction and cuts spaces without an error. What it warns of is an error, too. A number of a key is never
written as a string, because MariaDB compares the two as floating point numbers.

MariaDB commits at each change of a table. ``registry.py`` says in which order that does no harm.

https://mariadb.com/kb/en/data-types/, https://mariadb.com/kb/en/sql-statements-that-cause-an-implicit-commit/
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, Final

import pymysql
import sqlalchemy as sa

from cdc.base.config.replica_url import ServerUrl
from cdc.contract.kinds import FLOATS, Kind, kind_of
from cdc.sink.replica import Lack, NameRules, ReplicaName
from cdc.sink.sql.control import MARIADB_TABLE, TABLES
from cdc.sink.sql.dialect import Blame, Explained, StorageForm, StoredColumn, StoredTable, array_form
from cdc.sink.sql.exact_texts import Texts, is_wider, then
from cdc.sink.sql.mariadb_session import (
    NO_DATABASE,
    OWNER_TABLE,
    TOO_LARGE,
    SessionLock,
    explained,
    longest_packet,
    open_session,
    refuse_warnings,
)

_LONGEST_STATEMENT: Final = 1 << 20
_MOST_KEYS: Final = 500
"""Keys of several columns in one statement: the server plans each of them."""

_BINARY: Final = " CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"
_KEY_BYTES: Final = 3072
"""What an index of InnoDB holds. A character may need four of them."""
_MOST_DIGITS: Final = 65
_MOST_PLACES: Final = 38

_TABLE: Final = """
SELECT engine, table_type FROM information_schema.tables
WHERE table_schema = :schema AND table_name = :table
  AND IF(@@lower_case_table_names, LOWER(table_name) = LOWER(:table), BINARY table_name = BINARY :table)
"""
_COLUMNS: Final = """
SELECT column_name, column_type, character_set_name, collation_name, is_generated FROM information_schema.columns
WHERE table_schema = :schema AND table_name = :table ORDER BY ordinal_position
"""
_KEYS: Final = """
SELECT s.index_name, s.column_name, s.sub_part, c.collation_name
FROM information_schema.statistics s
JOIN information_schema.columns c USING (table_schema, table_name, column_name)
WHERE s.table_schema = :schema AND s.table_name = :table AND s.non_unique = 0
"""
_RIGHTS: Final = """
SELECT privilege_type FROM information_schema.user_privileges WHERE grantee = :grantee
UNION SELECT privilege_type FROM information_schema.schema_privileges
WHERE grantee = :grantee AND :schema LIKE table_schema
"""
_NEEDED: Final = ("SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "ALTER", "DROP")


def _bool(text: str) -> int:
    if text not in ("true", "false"):
        raise ValueError(f"{text!r} is not a boolean")
    return int(text == "true")


def _bytes(text: str) -> bytes:
    if not text.startswith("\\x"):
        raise ValueError(f"{text[:20]!r} is not the hexadecimal form of bytes")
    return bytes.fromhex(text[2:])


def _bounded(most: int, text: str) -> str:
    if len(text) > most:
        raise ValueError(
            f"a text of {len(text)} characters is longer than the column, which holds {most}; if it is one of the key, "
            f"whose index holds {_KEY_BYTES} bytes in all, leave the table out with source.exclude"
        )
    return text


def _bounded_bytes(most: int, text: str) -> bytes:
    value = _bytes(text)
    if len(value) > most:
        raise ValueError(f"{len(value)} bytes are more than the column holds, which are {most}")
    return value


def _without_zone(text: str) -> str:
    return text.removesuffix("+00")


_TEXTS: Final = Texts("LONGTEXT")
_DATE: Final = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_MOMENT: Final = rf"{_DATE} [0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(?:\.[0-9]{{1,6}})?"
_YEARS: Final = "of the years 1 to 9999"
_NUMBER: Final = _TEXTS.checked(r"-?[0-9][^IN\0]*", "a finite number")
_INTEGER: Final = then(_TEXTS.checked("-?[0-9]+", "a whole number"), int)
_TEXT: Final = StorageForm("longtext" + _BINARY)

MARIADB_FORMS: Final[Mapping[Kind, StorageForm]] = {
    Kind.BOOL: StorageForm("tinyint(1)", _bool),
    Kind.INT16: StorageForm("smallint", _INTEGER),
    Kind.INT32: StorageForm("int", _INTEGER),
    Kind.INT64: StorageForm("bigint", _INTEGER),
    # A FLOAT shows six digits, and a real may have nine
    **dict.fromkeys(FLOATS, StorageForm("double", _NUMBER)),
    # One with a precision that MariaDB has becomes DECIMAL
    Kind.DECIMAL: _TEXT,
    Kind.DATE: StorageForm("date", _TEXTS.checked(_DATE, f"a date {_YEARS}")),
    Kind.TIMESTAMP: StorageForm("datetime(6)", _TEXTS.checked(_MOMENT, f"a timestamp {_YEARS}")),
    Kind.TIMESTAMPTZ: StorageForm(
        "datetime(6)", then(_TEXTS.checked(rf"{_MOMENT}\+00", f"a timestamp in UTC {_YEARS}"), _without_zone)
    ),
    Kind.BYTES: StorageForm("longblob", _bytes),
    **dict.fromkeys((Kind.DOCUMENT, Kind.ASCII, Kind.TEXT), _TEXT),
}

_WIDER: Final[Mapping[str, frozenset[str]]] = {
    "smallint": frozenset({"mediumint", "int", "bigint"}),
    "int": frozenset({"bigint"}),
}
_WIDTH: Final = re.compile(r"\b((?:small|medium|big)?int)\([0-9]+\)")
_SHORT: Final = re.compile(r"(varchar|varbinary)\(([0-9]+)\)(?: CHARACTER SET utf8mb4 COLLATE \w+)?")
_LONG: Final = re.compile(r"longtext CHARACTER SET utf8mb4 COLLATE \w+")


class MariadbDialect:
    """A replica in a database of MariaDB.

    Args:
        at: the database.
        password: of its user.
    """

    called = "MariaDB"
    told = None
    commits_ddl = True
    table_options: Mapping[str, Any] = MARIADB_TABLE

    def __init__(self, at: ServerUrl, password: str) -> None:
        self._at = at
        self._password = password
        self._longest_packet = 0
        own = (*(each.name for each in TABLES), OWNER_TABLE)
        self.names = NameRules(
            schema=at.database,
            longest=64,
            folds_case=True,
            reserved=frozenset(ReplicaName(at.database, each) for each in own),
        )

    @property
    def address(self) -> str:
        """The place, as ``user@host:port/database``."""
        return f"{self._at.user}@{self._at.host}:{self._at.port}/{self._at.database}"

    @property
    def grants(self) -> str:
        """What an administrator runs."""
        user = self._at.user.replace("'", "''")
        return f"GRANT {', '.join(_NEEDED)} ON {_quoted(self._at.database)}.* TO '{user}'@'%';  -- or the user's host"

    def exists(self) -> bool:
        """Returns True: a server that has no such database says so."""
        return True

    def lacks(self) -> list[Lack]:
        """Returns the rights to the database that are missing. Those that come from a role are not told apart."""
        with self.connect(reads_only=True) as connection:
            user, role = connection.execute(sa.text("SELECT CURRENT_USER(), CURRENT_ROLE()")).one()
            name, _, host = user.rpartition("@")
            asked = {"grantee": f"'{name}'@'{host}'", "schema": self._at.database}
            found = connection.scalars(sa.text(_RIGHTS), asked).all()
        missing = [] if role is not None else [each for each in _NEEDED if each not in found]
        if not missing:
            return []
        granted = f"GRANT {', '.join(missing)} ON {_quoted(self._at.database)}.* TO '{name}'@'{host}';"
        return [Lack(f"database {self._at.database}", f"{user} lacks {', '.join(missing)}", granted)]

    def connect(self, *, reads_only: bool = False) -> sa.Connection:  # noqa: ARG002 - of the protocol
        """Opens a new session, with settings of its own."""
        # No pool: a returned connection is closed, which ends its lock
        engine = sa.create_engine(
            "mariadb+pymysql://", creator=self._session, poolclass=sa.pool.NullPool, pool_reset_on_return=None
        )
        sa.event.listen(engine, "after_cursor_execute", refuse_warnings)
        return engine.connect()

    def sole_writer(self, name: str) -> SessionLock:
        """Returns the lock of the one sink of this name."""
        return SessionLock(self.connect, self._at.database, name)

    def form(self, sql_type: str, *, of_key: int, stored: str | None = None) -> StorageForm | None:
        """Returns how a column holds the values of a source type; None if one of type ``stored`` changes them."""
        kind, is_array, _ = kind_of(sql_type)
        text = array_form(kind, _TEXT.sql) if is_array else _TEXT
        scaled = None if is_array else _TEXTS.decimals(sql_type, digits=_MOST_DIGITS, scale=_MOST_PLACES)
        if scaled is not None and scaled.value is not None:
            # A column takes all digits of a string; a comparison would not
            made = StorageForm(scaled.sql.lower(), then(scaled.value, Decimal) if of_key else scaled.value)
        else:
            # 0 and -0 are different keys in the topic and one to MariaDB
            made = text if is_array or (of_key and kind in FLOATS) else MARIADB_FORMS[kind]
        if stored is None:
            return _in_key(made, of_key) if of_key else made
        if stored == made.sql:
            return made
        if (short := _SHORT.fullmatch(stored)) is not None:
            return _short(made, text, short[1], int(short[2]), stored)
        if _LONG.fullmatch(stored):
            return text._replace(sql=stored)
        return made._replace(sql=stored) if is_wider(_WIDER, made.sql, stored) else None

    def stored(self, connection: sa.Connection, name: ReplicaName) -> StoredTable | None:
        """Returns what the catalog says about a table."""
        place = {"schema": name.schema, "table": name.table}
        found = connection.execute(sa.text(_TABLE), place).first()
        if found is None:
            return None
        columns = [
            StoredColumn(each.column_name, _described(each), each.is_generated != "NEVER")
            for each in connection.execute(sa.text(_COLUMNS), place)
        ]
        indexes: dict[str, list[tuple[str, bool]]] = {}
        for each in connection.execute(sa.text(_KEYS), place):
            tells_apart = each.sub_part is None and (each.collation_name or "_nopad_bin").endswith("_nopad_bin")
            indexes.setdefault(each.index_name, []).append((each.column_name, tells_apart))
        sound = [frozenset(name for name, _ in parts) for parts in indexes.values() if all(fits for _, fits in parts)]
        primary_key = frozenset(name for name, _ in indexes.get("PRIMARY", ()))
        return StoredTable(columns, primary_key, sound, *_flaw(name, found.engine, found.table_type, indexes))

    def upsert(self, table: sa.Table, key: Sequence[str]) -> str:
        """Returns an INSERT of all columns that replaces the row with the same key."""
        quoted = [_quoted(each.name) for each in table.columns]
        others = [_quoted(each.name) for each in table.columns if each.name not in key] or [_quoted(key[0])]
        taken = ", ".join(f"{each} = VALUES({each})" for each in others)
        head, row = f"INSERT INTO {_named(table)} ({', '.join(quoted)}) VALUES ", ", ".join(["%s"] * len(quoted))
        return "\0".join([head, f"({row})", ", ", f" ON DUPLICATE KEY UPDATE {taken}"])

    def skips_equals(self, table: sa.Table) -> bool:  # noqa: ARG002 - of the protocol
        """Returns False: an UPDATE compares bytes."""
        return False

    def delete(self, table: sa.Table, key: Sequence[str]) -> str:
        """Returns a DELETE of the row with a key."""
        head = f"DELETE FROM {_named(table)} WHERE "
        if len(key) == 1:
            return "\0".join([f"{head}{_quoted(key[0])} IN (", "%s", ", ", ")"])
        same = " AND ".join(f"{_quoted(each).replace('%', '%%')} = %s" for each in key)
        return "\0".join([head, f"({same})", " OR ", ""])

    def load(self, connection: sa.Connection, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Runs a statement for all rows, as many at a time as the server takes."""
        head, row, between, tail = statement.split("\0")
        texts = map(row.__mod__, zip(*map(_literals, zip(*rows, strict=True)), strict=True))
        most = _MOST_KEYS if between == " OR " else len(rows)
        for part in self._parts(texts, most, len((head + tail).encode()), len(between)):
            connection.exec_driver_sql(f"{head}{between.join(part)}{tail}", execution_options={"no_parameters": True})

    def explain(self, error: BaseException) -> Explained:
        """Returns what an error of the driver means."""
        told = explained(error)
        if told.blame is not Blame.REFUSED or told.remedy:
            return told
        missing = f"CREATE DATABASE {_quoted(self._at.database)};  -- or correct sink.url"
        return told._replace(remedy=missing if error.args[0] == NO_DATABASE else self.grants)

    def _parts(self, texts: Iterator[str], most: int, frame: int, between: int) -> Iterator[list[str]]:
        """Yields rows for one statement each: at most so many, and not more bytes than the server takes."""
        longest, part, size = min(self._longest_packet - 1, _LONGEST_STATEMENT), list[str](), frame
        for text in texts:
            length = between + (len(text) if text.isascii() else len(text.encode()))
            if part and (size + length > longest or len(part) == most):
                yield part
                part, size = [], frame
            if frame + length >= self._longest_packet:
                raise sa.exc.DataError("", None, pymysql.err.DataError(TOO_LARGE, self._too_large(frame + length)))
            part.append(text)
            size += length
        yield part

    def _session(self) -> pymysql.Connection[Any]:
        session = open_session(self._at, self._password)
        self._longest_packet = longest_packet(session)
        return session

    def _too_large(self, size: int) -> str:
        return (
            f"the row needs a statement of {size} bytes, and the server takes {self._longest_packet}: raise its "
            "max_allowed_packet, which sessions see when they begin"
        )


def _in_key(made: StorageForm, of_key: int) -> StorageForm:
    """Returns how a new column of a key holds values: each has the same share of the index."""
    share = _KEY_BYTES // of_key
    if made.sql == MARIADB_FORMS[Kind.BYTES].sql:
        return StorageForm(f"varbinary({share})", partial(_bounded_bytes, share))
    if made.sql != _TEXT.sql:
        return made
    most = share // 4
    return _within(made, most, f"varchar({most}){_BINARY}")


def _short(made: StorageForm, text: StorageForm, kind: str, most: int, stored: str) -> StorageForm | None:
    """Returns how a column of a bounded length holds values."""
    is_bytes = made.sql == MARIADB_FORMS[Kind.BYTES].sql
    if kind == "varbinary":
        return StorageForm(stored, partial(_bounded_bytes, most)) if is_bytes else None
    return _within(text, most, stored) if "utf8mb4" in stored else None


def _within(text: StorageForm, most: int, sql: str) -> StorageForm:
    bounded = partial(_bounded, most)
    return StorageForm(sql, bounded if text.value is None else then(text.value, bounded))


def _described(column: sa.Row[Any]) -> str:
    """Returns a column's type as ``form`` spells it."""
    plain = _WIDTH.sub(r"\1", column.column_type)
    if column.character_set_name is None:
        return plain
    return f"{plain} CHARACTER SET {column.character_set_name} COLLATE {column.collation_name}"


def _flaw(name: ReplicaName, engine: str | None, kind: str, indexes: Mapping[str, object]) -> tuple[str, str]:
    """Returns what keeps the sink from using a table, and what mends it."""
    table = f"{_quoted(name.schema)}.{_quoted(name.table)}"
    if engine is None:
        return f"is a {kind.lower()}", f"DROP {kind} {table};"
    if engine != "InnoDB":
        return f"is a table of {engine}, which has no transactions", f"ALTER TABLE {table} ENGINE = InnoDB;"
    if len(indexes) > 1:
        others = [each for each in indexes if each != "PRIMARY"] or [*indexes]
        return (
            f"has several unique indexes ({', '.join(indexes)}), of which any makes an upsert overwrite a row with "
            "another key",
            f"drop all but the one on the key, such as: DROP INDEX {_quoted(others[-1])} ON {table};",
        )
    return "", ""


def _literal(value: Any) -> str:
    """Returns a value as it stands in a statement."""
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def _literals(values: Sequence[Any]) -> Sequence[str]:
    """Returns the values of a column as they stand in statements; those of an ordinary column all at once."""
    types = set(map(type, values))
    if types == {int}:
        return [*map(str, values)]
    if types == {str} and len(texts := _quoted_texts(values)) == len(values):
        return texts
    return [*map(_literal, values)]


def _quoted_texts(texts: Sequence[str]) -> Sequence[str]:
    joined = "\0".join(texts).replace("\\", "\\\\").replace("'", "''").replace("\0", "'\0'")
    return f"'{joined}'".split("\0")


def _named(table: sa.Table) -> str:
    return ".".join(_quoted(each) for each in (table.schema, table.name) if each)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
