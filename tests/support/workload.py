"""Seeded random tables, rows and transactions on a real server: what a captured database may do to a bridge.

Every table has a column ``row_no``, a handle that no change touches, so that the generator knows its rows without
asking the server. Keys are never used twice, except on purpose (deleted and inserted again, swapped, set to itself).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg
from psycopg import sql

from tests.support.type_catalogue import KEY_TYPES, NOT_UNIQUE, VALUE_TYPES

_NAMES: Final = ("plain", "Mixed Case", "dot.ted", 'quote"d', "ünï", "select", "percent%s", "back\\slash", "-dash_")
_TOAST: Final = "toast"
"""A column of random text stored out of line, which most updates leave alone."""


@dataclass(slots=True)
class Table:
    """A generated table and the live rows in it: ``row_no`` → key texts."""

    name: str
    key: dict[str, str]
    values: dict[str, str]
    identity: str
    partitioned: bool
    rows: dict[int, tuple[str, ...]] = field(default_factory=dict)

    @property
    def qualified(self) -> str:
        """``schema.table``, unquoted."""
        return f"public.{self.name}"

    def ddl(self) -> Iterator[sql.Composed]:
        """Statements that make the table, for the source."""
        columns = {"row_no": "integer", **self.key, **self.values, _TOAST: "text"}
        definitions = [
            sql.SQL("{} {}" + (" NOT NULL" if name in self.key else "")).format(sql.Identifier(name), sql.SQL(kind))
            for name, kind in columns.items()
        ]
        key = sql.SQL(", ").join(sql.Identifier(name) for name in self.key)
        if self.identity != "index":
            definitions.append(sql.SQL("PRIMARY KEY ({})").format(key))
        table = sql.Identifier(self.name)
        by = sql.SQL(" PARTITION BY HASH ({})").format(sql.Identifier(next(iter(self.key))))
        yield sql.SQL("CREATE TABLE {} ({})").format(table, sql.SQL(", ").join(definitions)) + (
            by if self.partitioned else sql.SQL("")
        )
        leaves = [f"{self.name}_{number}" for number in range(3)] if self.partitioned else []
        for number, leaf in enumerate(leaves):
            yield sql.SQL("CREATE TABLE {} PARTITION OF {} FOR VALUES WITH (MODULUS 3, REMAINDER {})").format(
                sql.Identifier(leaf), table, sql.Literal(number)
            )
        for part in map(sql.Identifier, (self.name, *leaves)):
            yield sql.SQL("ALTER TABLE {} ALTER COLUMN {} SET STORAGE EXTERNAL").format(part, sql.Identifier(_TOAST))
            if self.identity == "full":
                yield sql.SQL("ALTER TABLE {} REPLICA IDENTITY FULL").format(part)
        if self.identity == "index":
            index = sql.Identifier(f"{self.name}_identity")
            yield sql.SQL("CREATE UNIQUE INDEX {} ON {} ({})").format(index, table, key)
            yield sql.SQL("ALTER TABLE {} REPLICA IDENTITY USING INDEX {}").format(table, index)


class Workload:
    """Random tables and transactions from one seed.

    Args:
        connection: to the source, in autocommit mode; ``CUSTOM_TYPES`` exist.
        seed: of every random choice.
        table_count: how many tables to make.
        value_types: the types of columns outside the keys, and their values.
    """

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        seed: int,
        table_count: int = 4,
        value_types: Mapping[str, Sequence[str]] = VALUE_TYPES,
    ) -> None:
        self._connection = connection
        self._random = random.Random(seed)
        self._value_types = value_types
        self._next = 0
        names = self._random.sample(_NAMES, table_count)
        self.tables = [self._new_table(name, number) for number, name in enumerate(names)]
        for table in self.tables:
            for statement in table.ddl():
                connection.execute(statement)

    def _new_table(self, name: str, number: int) -> Table:
        kinds = self._random.sample(sorted(KEY_TYPES), self._random.randint(1, 3))
        if all(kind in NOT_UNIQUE for kind in kinds):
            kinds.append("integer")
        values = self._random.sample(sorted(self._value_types), self._random.randint(6, 18))
        # One table of each kind that matters whatever the seed; what remains is random.
        identity = ("default", "full", "index")[number] if number < 3 else self._random.choice(("default", "full"))
        partitioned = number == 3 or (identity == "default" and self._random.random() < 0.2)
        return Table(
            name,
            {f"k{place} {kind[:4]}": kind for place, kind in enumerate(kinds)},
            {f"v{place} {kind[:9]}": kind for place, kind in enumerate(values)},
            identity,
            partitioned,
        )

    def transaction(self) -> None:
        """Run one random transaction over one to three tables; one in eight is rolled back."""
        kept = [dict(table.rows) for table in self.tables]
        roll_back = self._random.random() < 1 / 8
        with self._connection.transaction(force_rollback=roll_back):
            self._operations(self._random.randint(1, 8))
            if self._random.random() < 0.3:
                self._savepoint()
        if roll_back:
            self._restore(kept)

    @contextmanager
    def overlapping(self, dsn: str) -> Iterator[None]:
        """Hold a second transaction open around the block: it began first and commits last.

        The block must not call ``truncate``, which would wait for it for ever.
        """
        table = self._random.choice(self.tables)
        with psycopg.connect(dsn) as other, other.cursor() as cursor:
            for _ in range(self._random.randint(1, 20)):
                self._insert(cursor, table, remember=False)
            yield

    def truncate(self) -> None:
        """TRUNCATE one or two tables among other changes of the same transaction."""
        tables = self._random.sample(self.tables, self._random.randint(1, 2))
        with self._connection.transaction(), self._connection.cursor() as cursor:
            self._operations(2)
            cursor.execute(sql.SQL("TRUNCATE {}").format(sql.SQL(", ").join(sql.Identifier(t.name) for t in tables)))
            for table in tables:
                table.rows.clear()
            self._operations(2)

    def bulk(self, row_count: int) -> None:
        """One transaction of ``row_count`` inserts into one table."""
        table = self._random.choice(self.tables)
        with self._connection.transaction(), self._connection.cursor() as cursor:
            for _ in range(row_count):
                self._insert(cursor, table)

    def _operations(self, count: int) -> None:
        tables = self._random.sample(self.tables, min(self._random.randint(1, 3), len(self.tables)))
        kinds = (
            self._insert,
            self._insert,
            self._insert,
            self._update,
            self._update,
            self._delete,
            self._change_key,
            self._reinsert,
            self._swap_keys,
        )
        with self._connection.cursor() as cursor:
            for _ in range(count):
                table = self._random.choice(tables)
                kind = self._random.choice(kinds) if len(table.rows) > 3 else self._insert
                kind(cursor, table)

    def _savepoint(self) -> None:
        kept = [dict(table.rows) for table in self.tables]
        with self._connection.transaction(force_rollback=True):
            self._operations(3)
        self._restore(kept)
        with self._connection.transaction():
            self._operations(2)

    def _restore(self, kept: list[dict[int, tuple[str, ...]]]) -> None:
        for table, rows in zip(self.tables, kept, strict=True):
            table.rows = rows

    def _new_key(self, table: Table) -> tuple[str, ...]:
        self._next += 1
        return tuple(KEY_TYPES[kind](self._random, self._next) for kind in table.key.values())

    def _value(self, kind: str) -> str | None:
        return None if self._random.random() < 0.15 else self._random.choice(self._value_types[kind])

    def _toast(self) -> str | None:
        size = self._random.choice((0, 10, 2500, 9000))
        return self._random.randbytes(size // 2).hex() if size else None

    def _insert(
        self, cursor: psycopg.Cursor[Any], table: Table, key: tuple[str, ...] = (), remember: bool = True
    ) -> None:
        key = key or self._new_key(table)
        self._next += 1
        row = (self._next, *key, *(self._value(kind) for kind in table.values.values()), self._toast())
        cursor.execute(
            sql.SQL("INSERT INTO {} VALUES ({})").format(
                _quoted(table.name), sql.SQL(", ").join(sql.Placeholder() * len(row))
            ),
            row,
        )
        if remember:
            table.rows[self._next] = key

    def _set(self, cursor: psycopg.Cursor[Any], table: Table, row_no: int, values: dict[str, str | None]) -> None:
        assignments = sql.SQL(", ").join(sql.SQL("{} = %s").format(_quoted(name)) for name in values)
        cursor.execute(
            sql.SQL("UPDATE {} SET {} WHERE row_no = {}").format(_quoted(table.name), assignments, sql.Literal(row_no)),
            tuple(values.values()),
        )

    def _update(self, cursor: psycopg.Cursor[Any], table: Table) -> None:
        columns = self._random.sample(sorted(table.values), self._random.randint(1, 3))
        values = {name: self._value(table.values[name]) for name in columns}
        if self._random.random() < 0.15:
            values[_TOAST] = self._toast()
        self._set(cursor, table, self._random.choice(list(table.rows)), values)

    def _delete(self, cursor: psycopg.Cursor[Any], table: Table) -> None:
        row_no = self._random.choice(list(table.rows))
        cursor.execute(sql.SQL("DELETE FROM {} WHERE row_no = %s").format(_quoted(table.name)), (row_no,))
        del table.rows[row_no]

    def _change_key(self, cursor: psycopg.Cursor[Any], table: Table) -> None:
        row_no = self._random.choice(list(table.rows))
        key = table.rows[row_no] if self._random.random() < 0.1 else self._new_key(table)
        self._set(cursor, table, row_no, dict(zip(table.key, key, strict=True)))
        table.rows[row_no] = key

    def _reinsert(self, cursor: psycopg.Cursor[Any], table: Table) -> None:
        row_no = self._random.choice(list(table.rows))
        key = table.rows.pop(row_no)
        cursor.execute(sql.SQL("DELETE FROM {} WHERE row_no = %s").format(_quoted(table.name)), (row_no,))
        self._insert(cursor, table, key)

    def _swap_keys(self, cursor: psycopg.Cursor[Any], table: Table) -> None:
        one, other = self._random.sample(list(table.rows), 2)
        for row_no, key in ((one, self._new_key(table)), (other, table.rows[one]), (one, table.rows[other])):
            self._set(cursor, table, row_no, dict(zip(table.key, key, strict=True)))
        table.rows[one], table.rows[other] = table.rows[other], table.rows[one]


def _quoted(name: str) -> sql.Identifier:
    """An identifier inside a statement with parameters, where a percent sign must be doubled."""
    return sql.Identifier(name.replace("%", "%%"))
