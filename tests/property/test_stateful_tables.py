"""Tables that change under random steps: source = fold of the topic = replica, or the sink says which command helps.

Real servers, a real bridge and sink for each example. ``SEED=42`` replays a run; what the servers do meanwhile is up to
them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import psycopg
import pytest
from hypothesis import strategies
from hypothesis.stateful import precondition, rule
from psycopg import sql

from cdc.base.errors import CdcError
from cdc.base.table_names import qualified
from cdc.lab.stack import Kafka, Postgres
from tests.support.deployment import Deployment, deployed
from tests.support.servers import fresh_database
from tests.support.soak import times
from tests.support.stateful import Machine, run_machine
from tests.support.waiting import eventually

NAMES: Final = ("items", "Items", "order", "a.b", "a_b", "a-2Eb", "é" * 31 + "x", 'x"y')
"""They differ in case only, look like one another's topics, are reserved, or as long as PostgreSQL allows."""
COLUMNS: Final = ("select", "more", "More", "m.ore", 'm"ore')
TYPES: Final = ("integer", "text", "numeric(10,2)", "timestamptz", "integer[]")
KEYS: Final = (("id",), ("code",), ("code", "id"), ("id", "code"))
WIDER: Final = ("bigint", "numeric", "text")

names = strategies.sampled_from(NAMES)
columns = strategies.sampled_from(COLUMNS)
numbers = strategies.integers(1, 5)


class ChangingTables(Machine):
    """A database whose tables change, with its bridge, its sink and its replica.

    Attributes:
        tables: name → the columns that were added.
    """

    def __init__(self, deployments: Callable[[ExitStack], Deployment]) -> None:
        super().__init__()
        self.tables: dict[str, set[str]] = {}
        self.value = 0
        with ExitStack() as stack:
            self.live = deployments(stack)
            self.source = stack.enter_context(self.live.source.connect())
            self._create(NAMES[0])
            self.live.start()
            self.stack = stack.pop_all()

    @rule(name=names)
    def create(self, name: str) -> None:
        if name not in self.tables:
            self._create(name)

    @precondition(lambda self: self.tables)
    @rule(name=names, number=numbers, is_deleted=strategies.booleans())
    def change(self, name: str, number: int, is_deleted: bool) -> None:
        """A row; the first time for each."""
        name = self._one(name)
        if is_deleted:
            self._do("DELETE FROM {} WHERE id = {}", name, number)
            return
        self.value += 1
        self._do("DELETE FROM {} WHERE id = {} AND code LIKE '%moved'", name, number)
        updated = self._do("UPDATE {} SET n = {} WHERE id = {}", name, self.value, number)
        if not updated:
            self._do("INSERT INTO {} (id, code, n) VALUES ({}, {}, {})", name, number, f"c{number}", self.value)

    @precondition(lambda self: self.tables)
    @rule(name=names, number=numbers)
    def change_a_key(self, name: str, number: int) -> None:
        name = self._one(name)
        self._do("UPDATE {} SET code = 'c' || id || 'moved' WHERE id = {}", name, number)

    @precondition(lambda self: self.tables)
    @rule(name=names)
    def truncate(self, name: str) -> None:
        self._do("TRUNCATE {}", self._one(name))

    @precondition(lambda self: self.tables)
    @rule(name=names, column=columns, sql_type=strategies.sampled_from(TYPES))
    def add_or_drop_a_column(self, name: str, column: str, sql_type: str) -> None:
        name = self._one(name)
        if column in self.tables[name]:
            self._do("ALTER TABLE {} DROP COLUMN {}", name, sql.Identifier(column))
        else:
            self._do("ALTER TABLE {} ADD COLUMN {} {}", name, sql.Identifier(column), sql.SQL(sql_type))
        self.tables[name] ^= {column}
        self._touch(name)

    @precondition(lambda self: any(self.tables.values()))
    @rule(name=names, column=columns)
    def rename_a_column(self, name: str, column: str) -> None:
        name = self._one(name)
        if self.tables[name] and column not in self.tables[name]:
            old = sorted(self.tables[name])[0]
            self._do("ALTER TABLE {} RENAME COLUMN {} TO {}", name, sql.Identifier(old), sql.Identifier(column))
            self.tables[name] ^= {old, column}
            self._touch(name)

    @precondition(lambda self: self.tables)
    @rule(name=names, sql_type=strategies.sampled_from(WIDER))
    def widen_a_type(self, name: str, sql_type: str) -> None:
        name = self._one(name)
        wider = sql.SQL(sql_type)
        self._do("ALTER TABLE {} ALTER COLUMN n TYPE {} USING n::text::{}", name, wider, wider)
        self._touch(name)

    @precondition(lambda self: self.tables)
    @rule(name=names, key=strategies.sampled_from(KEYS))
    def change_the_key(self, name: str, key: tuple[str, ...]) -> None:
        name = self._one(name)
        found = "SELECT conname FROM pg_constraint WHERE contype = 'p' AND conrelid = %s::regclass"
        [(former,)] = self.source.execute(found, [sql.Identifier(name).as_string(self.source)]).fetchall()
        listed = sql.SQL(", ").join(map(sql.Identifier, key))
        self._do("ALTER TABLE {} DROP CONSTRAINT {}, ADD PRIMARY KEY ({})", name, sql.Identifier(former), listed)
        self._touch(name)

    @precondition(lambda self: self.tables)
    @rule(name=names, other=names)
    def rename_or_exchange(self, name: str, other: str) -> None:
        """Two tables exchange their names if both are taken."""
        name = self._one(name)
        if name == other:
            return
        with self.source.transaction():
            self._do("ALTER TABLE {} RENAME TO third", name)
            if other in self.tables:
                self._do("ALTER TABLE {} RENAME TO {}", other, sql.Identifier(name))
            self._do("ALTER TABLE {} RENAME TO {}", "third", sql.Identifier(other))
        mine, others = self.tables.pop(name), self.tables.pop(other, None)
        self.tables[other] = mine
        if others is not None:
            self.tables[name] = others

    @precondition(lambda self: self.tables)
    @rule(name=names, comes_back=strategies.booleans())
    def drop(self, name: str, comes_back: bool) -> None:
        """A bridge begins with one table at least, so the last one comes back."""
        name = self._one(name)
        comes_back |= len(self.tables) == 1
        with self.source.transaction():
            self._do("DROP TABLE {}", name)
            del self.tables[name]
            if comes_back:
                self._create(name)

    @rule(is_sink=strategies.booleans())
    def kill(self, is_sink: bool) -> None:
        if is_sink:
            self.live.sink.kill()
            self.live.sink.start()
        else:
            self.live.bridge.kill()
            self.live.start_bridge()

    @rule()
    def settle(self) -> None:
        """Wait until all copies of all tables are alike, with what the sink asks for."""
        tables = [qualified("public", name) for name in self.tables]
        failure = ""

        def equal() -> bool:
            nonlocal failure
            self._do_what_the_sink_asks_for()
            try:
                self.live.assert_equal(*tables)
            except (AssertionError, CdcError, psycopg.Error) as error:
                failure = str(error)
                return False
            return True

        eventually(equal, times(10, soak=30), lambda: failure)

    def finish(self) -> None:
        self.settle()
        self.live.stop()

    def close(self) -> None:
        self.stack.close()

    def _create(self, name: str) -> None:
        self._do("CREATE TABLE {} (id integer, code text NOT NULL, n integer, PRIMARY KEY (id))", name)
        self.tables[name] = set()
        for number in (1, 2):
            self.change(name, number, False)

    def _touch(self, name: str) -> None:
        """PostgreSQL puts nothing into the stream for rows that only look different now."""
        self._do("UPDATE {} SET code = code", name)

    def _one(self, name: str) -> str:
        """This table, or another one if it is not there."""
        return name if name in self.tables else sorted(self.tables)[len(name) % len(self.tables)]

    def _do(self, statement: str, table: str, *values: sql.Composable | str | int) -> int:
        """How many rows it changed."""
        filled = [each if isinstance(each, sql.Composable) else sql.Literal(each) for each in values]
        text = sql.SQL(statement)
        return self.source.execute(text.format(sql.Identifier(table), *filled)).rowcount

    def _do_what_the_sink_asks_for(self) -> None:
        """A column whose type the replica's cannot hold is the only reason that may stop a table here."""
        asked_for = self._stopped()
        for reason in asked_for:
            assert "which it cannot hold unchanged" in reason
            convert, drop = re.findall("ALTER TABLE .*?;", reason)
            try:
                self.live.replica.execute(convert)
            except (psycopg.errors.CannotCoerce, psycopg.errors.DataError):
                self.live.replica.execute(drop)
        if asked_for:
            self.live.sink.kill()
            self.live.sink.start()
            eventually(lambda: not asked_for & self._stopped(), message=lambda: str(self._stopped()))

    def _stopped(self) -> set[str]:
        """Why tables are stopped."""
        try:
            found = self.live.replica.execute("SELECT reason FROM cdc.mirrored_table WHERE state = 'stopped'")
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):  # the sink has yet to make it
            return set()
        return {reason for (reason,) in found}


@pytest.fixture
def deployments(
    postgres: Postgres, other_postgres: Postgres, kafka: Kafka, tmp_path: Path
) -> Callable[[ExitStack], Deployment]:
    """Makes one, with databases of its own, that ends with the stack."""

    @contextmanager
    def one() -> Iterator[Deployment]:
        settings = {"tables": ["public.*"], "publication_mode": "all_tables", "on_gap": "rebackfill"}
        with (
            fresh_database(postgres) as source,
            fresh_database(other_postgres) as replica,
            deployed(source, kafka.bootstrap, replica, tmp_path, {"source": settings}) as deployment,
        ):
            yield deployment

    return lambda stack: stack.enter_context(one())


@pytest.mark.soak
@pytest.mark.timeout(times(1200, soak=14_400))
def test_tables_that_change_are_the_same_everywhere(deployments: Callable[[ExitStack], Deployment]) -> None:
    run_machine(lambda: ChangingTables(deployments), examples=times(2, soak=100), steps=times(12, soak=40))
