"""A table of orders, and writers that never rest."""

from __future__ import annotations

import itertools
import random

from tests.support.bank import Guarded
from tests.support.servers import Database
from tests.support.soak import times

TABLE = "public.orders"
ROWS = 5_000
PAUSE_S = times(1.0, soak=0.1)
"""Between a writer's transactions of 300 changes: two writers make 600 changes a second, in a soak 5,000."""


class Writer(Guarded):
    """Changes rows of its own third, forever: transactions of hundreds of inserts, updates and deletes."""

    def __init__(self, database: Database, number: int) -> None:
        super().__init__(f"writer-{number}")
        self._database = database
        self._number = number
        self.changes = 0

    def work(self) -> None:
        rng = random.Random(self._number)
        fresh = itertools.count(1_000_000 * (self._number + 1))
        with self._database.connect() as connection:
            while not self._over.wait(PAUSE_S):
                some = rng.sample(range(self._number, ROWS, 2), 200)
                with connection.transaction():
                    self.changes += connection.execute(
                        "UPDATE orders SET amount = amount + 0.01, note = md5(random()::text) WHERE id = ANY(%s)",
                        (some,),
                    ).rowcount
                    first = next(fresh)
                    self.changes += connection.execute(
                        "INSERT INTO orders SELECT i, 'new', 1.50, now(), NULL FROM generate_series(%s, %s) i"
                        " ON CONFLICT DO NOTHING",
                        (first * 50, first * 50 + 49),
                    ).rowcount
                    self.changes += connection.execute(
                        "DELETE FROM orders WHERE id BETWEEN %s AND %s", ((first - 3) * 50, (first - 3) * 50 + 49)
                    ).rowcount


def create(database: Database) -> None:
    """The table, with rows from before the bridge."""
    with database.connect() as connection:
        connection.execute(
            "CREATE TABLE orders (id bigint PRIMARY KEY, name text NOT NULL, amount numeric, at timestamptz, note text)"
        )
        connection.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
        connection.execute(
            "INSERT INTO orders SELECT i, 'customer ' || i, (i %% 1000) + 0.50, now(), NULL"
            " FROM generate_series(0, %s) i",
            (ROWS - 1,),
        )
