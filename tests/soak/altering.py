"""The profile of tables that are altered, truncated, dropped, created and renamed while rows change."""

from __future__ import annotations

import random
from typing import Final

from tests.soak.place import SCHEMA
from tests.soak.profile import Connection, changed

ALTERED: Final = "altered_"
"""Their names begin so, and no others do."""
_NAMES: Final = [f"{ALTERED}{number}" for number in range(6)]
_COLUMNS: Final = [f"c{number}" for number in range(6)]
_KEYS: Final = 200
_SHARE: Final = 0.02
"""Of the transactions: the bridge publishes a table again when another one takes its name."""

_TABLES: Final = "select relname from pg_class where relkind = 'r' and relname like %s order by 1"
_THERE: Final = "select attname from pg_attribute where attrelid = %s::regclass and attname like 'c_' order by 1"
_CREATE: Final = "create table {} (id integer primary key, changes integer, c0 text)"
_FILL: Final = "insert into {} select i, 0, md5(random()::text) from generate_series(1, 50) i"
_PUT: Final = (
    "insert into {} as t (id, changes) select i, 0 from generate_series(%s::int, %s::int) i"
    " on conflict (id) do update set changes = t.changes + 1"
)


class Ddl:
    """Few names, so that other tables take them, and columns get the names of others.

    Whatever alters columns changes each row in the same transaction, since rows that do not change keep their former
    columns in the topics (docs/exceptions.md).
    """

    def create(self, connection: Connection) -> None:
        for name in _NAMES[:3]:
            _create(connection, name)

    def change(self, connection: Connection, rng: random.Random) -> int:
        there = _names(connection, _TABLES, f"{ALTERED}%")
        free = sorted(set(_NAMES) - set(there))
        if not there or (free and rng.random() < _SHARE / 6):
            return _create(connection, rng.choice(free))
        table = f"{SCHEMA}.{rng.choice(there)}"
        if rng.random() > _SHARE:
            return _change_rows(connection, table, rng)
        deed = rng.randrange(6)
        if deed < 3:
            return _alter(connection, table, rng) + _change_rows(connection, table, rng)
        if deed == 3:
            return changed(connection, f"truncate {table}")
        if deed == 4 and free:
            return changed(connection, f"alter table {table} rename to {rng.choice(free)}")
        return changed(connection, f"drop table {table}")


def _names(connection: Connection, query: str, parameter: str) -> list[str]:
    return [name for (name,) in connection.execute(query.encode(), (parameter,))]


def _create(connection: Connection, name: str) -> int:
    changed(connection, _CREATE.format(f"{SCHEMA}.{name}"))
    return changed(connection, _FILL.format(f"{SCHEMA}.{name}"))


def _change_rows(connection: Connection, table: str, rng: random.Random) -> int:
    key = rng.randrange(_KEYS)
    if rng.random() < 0.2:
        return changed(connection, f"delete from {table} where id = %s", key)
    return changed(connection, _PUT.format(table), key, key + rng.randrange(10))


def _alter(connection: Connection, table: str, rng: random.Random) -> int:
    """Add, drop or rename a column."""
    changed(connection, f"lock table {table} in access exclusive mode")
    there = _names(connection, _THERE, table)
    free = sorted(set(_COLUMNS) - set(there))
    deeds = [f"add column {each} text" for each in free[:1]]
    deeds += [f"drop column {rng.choice(there)}"] if there else []
    deeds += [f"rename column {rng.choice(there)} to {rng.choice(free)}"] if there and free else []
    changed(connection, f"alter table {table} {rng.choice(deeds)}")
    filled = "".join(f", {each} = md5(random()::text)" for each in _names(connection, _THERE, table)[:1])
    return changed(connection, f"update {table} set changes = changes + 1{filled}")
