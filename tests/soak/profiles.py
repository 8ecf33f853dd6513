"""The profiles of the load, by name."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from tests.soak.altering import Ddl
from tests.soak.profile import Connection, Profile, changed
from tests.soak.regression import Regression


class Small:
    """Transactions of a few rows, as people and programs make them all day."""

    _KEYS: Final = 2000
    _PUT: Final = (
        "insert into soak.small values (%s, md5(%s::text), %s / 7.0, clock_timestamp()) on conflict (id)"
        " do update set note = excluded.note, price = soak.small.price + excluded.price, at = excluded.at"
    )
    _MOVE: Final = "update soak.small set id = %s where id = %s and not exists (select from soak.small where id = %s)"

    def create(self, connection: Connection) -> None:
        connection.execute("create table soak.small (id integer primary key, note text, price numeric, at timestamptz)")

    def change(self, connection: Connection, rng: random.Random) -> int:
        return sum(self._one(connection, rng) for _ in range(rng.randint(1, 5)))

    def _one(self, connection: Connection, rng: random.Random) -> int:
        key, other = rng.randrange(self._KEYS), rng.randrange(self._KEYS)
        kind = rng.random()
        if kind < 0.6:
            return changed(connection, self._PUT, key, other, other)
        if kind < 0.8:
            return changed(connection, "delete from soak.small where id = %s", key)
        return changed(connection, self._MOVE, other, key, other)


class Large:
    """Transactions of tens of thousands of rows, some of them in savepoints that are rolled back."""

    _KEYS: Final = 50_000
    _PUT: Final = (
        "insert into soak.large select i, 0, md5(i::text) from generate_series(%s::int, %s::int) i"
        " on conflict (id) do update set changes = soak.large.changes + 1"
    )
    _TOUCH: Final = "update soak.large set changes = changes + 1 where id between %s and %s"

    def create(self, connection: Connection) -> None:
        connection.execute("create table soak.large (id integer primary key, changes integer, filler text)")

    def change(self, connection: Connection, rng: random.Random) -> int:
        # In one order, or two sessions would wait for each other for ever
        connection.execute("select pg_advisory_xact_lock(1)")
        rows = changed(connection, self._PUT, *self._range(rng, 30_000))
        for _ in range(rng.randrange(4)):
            rolls_back = rng.random() < 0.5
            with connection.transaction(force_rollback=rolls_back):
                touched = changed(connection, self._TOUCH, *self._range(rng, 10_000))
            rows += 0 if rolls_back else touched
        if rng.random() < 0.5:
            rows += changed(connection, "delete from soak.large where id between %s and %s", *self._range(rng, 20_000))
        return rows

    def _range(self, rng: random.Random, most: int) -> tuple[int, int]:
        first = rng.randrange(self._KEYS - most)
        return first, first + rng.randrange(most)


class Wide:
    """Many columns, and large values that most updates leave as they are: with and without a whole old row."""

    _KEYS: Final = 300
    _TABLES: Final = ("wide", "wide_full")
    _PUT: Final = (
        "insert into soak.{} (id, body, terms) values (%s, (select string_agg(md5(random()::text), '')"
        " from generate_series(1, %s)), repeat(md5(random()::text), 100)) on conflict (id)"
        " do update set body = excluded.body, changes = soak.{}.changes + 1"
    )
    _MOVE: Final = "update soak.{} set id = %s where id = %s and not exists (select from soak.{} where id = %s)"

    def create(self, connection: Connection) -> None:
        columns = ", ".join(f"n{number} bigint default {number}, t{number} text default 'text'" for number in range(20))
        for table in self._TABLES:
            changed(
                connection,
                f"create table soak.{table} (id integer primary key, changes integer default 0,"
                f" {columns}, body text, terms text)",
            )
            changed(
                connection,
                f"alter table soak.{table} alter body set storage external, alter terms set storage external",
            )
        connection.execute("alter table soak.wide_full replica identity full")
        for table in self._TABLES:
            for key in range(self._KEYS):
                changed(connection, self._PUT.format(table, table), key, 300)

    def change(self, connection: Connection, rng: random.Random) -> int:
        table, key, other = rng.choice(self._TABLES), rng.randrange(self._KEYS), rng.randrange(self._KEYS)
        kind = rng.random()
        if kind < 0.25:
            return changed(connection, self._PUT.format(table, table), key, rng.randint(100, 600))
        if kind < 0.30:
            return changed(connection, f"delete from soak.{table} where id = %s", key)
        if kind < 0.40:
            return changed(connection, self._MOVE.format(table, table), other, key, other)
        columns = ", ".join(f"n{number} = n{number} + 1" for number in rng.sample(range(20), 3))
        query = f"update soak.{table} set changes = changes + 1, {columns} where id between %s and %s"
        return changed(connection, query, key, key + rng.randrange(10))


class Many:
    """Transactions over some of fifty tables."""

    _TABLES: Final = [f"many_{number:02}" for number in range(50)]
    _KEYS: Final = 200

    def create(self, connection: Connection) -> None:
        for table in self._TABLES:
            connection.execute(
                f"create table soak.{table} (id integer primary key, changes integer default 0, note text)".encode()
            )

    def change(self, connection: Connection, rng: random.Random) -> int:
        return sum(self._one(connection, table, rng) for table in sorted(rng.sample(self._TABLES, rng.randint(1, 10))))

    def _one(self, connection: Connection, table: str, rng: random.Random) -> int:
        key = rng.randrange(self._KEYS)
        if rng.random() < 0.2:
            return changed(connection, f"delete from soak.{table} where id >= %s and id < %s", key, key + 3)
        query = (
            f"insert into soak.{table} select i, 0, md5(i::text) from generate_series(%s::int, %s::int) i"
            f" on conflict (id) do update set changes = soak.{table}.changes + 1"
        )
        return changed(connection, query, key, key + rng.randrange(5))


PROFILES: Final[dict[str, Callable[[], Profile]]] = {
    "small": Small,
    "large": Large,
    "wide": Wide,
    "many": Many,
    "ddl": Ddl,
    "regression": Regression,
}
