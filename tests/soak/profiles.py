"""The profiles of the load: each makes its tables, and changes some of them in a transaction of somebody else."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final, Protocol

import psycopg

Connection = psycopg.Connection[Any]


class Profile(Protocol):
    """A kind of load."""

    def create(self, connection: Connection) -> None:
        """Make the tables."""

    def change(self, connection: Connection, rng: random.Random) -> int:
        """Do the work of one transaction; returns how many rows it changed, as far as they are counted."""


class Small:
    """Transactions of a few rows, as people and programs make them all day."""

    _KEYS: Final = 2000

    def create(self, connection: Connection) -> None:
        connection.execute("create table soak.small (id integer primary key, note text, price numeric, at timestamptz)")

    def change(self, connection: Connection, rng: random.Random) -> int:
        return sum(self._one(connection, rng) for _ in range(rng.randint(1, 5)))

    def _one(self, connection: Connection, rng: random.Random) -> int:
        key, other = rng.randrange(self._KEYS), rng.randrange(self._KEYS)
        kind = rng.random()
        if kind < 0.6:
            query = (
                "insert into soak.small values (%s, md5(%s::text), %s / 7.0, clock_timestamp()) on conflict (id)"
                " do update set note = excluded.note, price = soak.small.price + excluded.price, at = excluded.at"
            )
            return connection.execute(query, (key, other, other)).rowcount
        if kind < 0.8:
            return connection.execute("delete from soak.small where id = %s", (key,)).rowcount
        query = "update soak.small set id = %s where id = %s and not exists (select from soak.small where id = %s)"
        return connection.execute(query, (other, key, other)).rowcount


PROFILES: Final[dict[str, Callable[[], Profile]]] = {"small": Small}
