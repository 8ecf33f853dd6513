"""A load whose every transaction keeps an invariant across two tables, and a watcher that looks for it in the replica.

Each account's balance is the sum of its ledger entries. Transactions insert, update, delete, change keys, TRUNCATE,
roll back, and survive the death of their server: an unknown outcome keeps the invariant either way.
"""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg

from tests.support.servers import Database
from tests.support.soak import times

TABLES: Final = ("public.account", "public.ledger", "public.document")

# Under FULL even a row that a later transaction removes is published whole at every step. A document, of DEFAULT
# identity, may be left as it was until then (docs/exceptions.md, the first), so documents have no part in the
# invariant.
_DDL: Final = """
CREATE TABLE account (id integer PRIMARY KEY, balance bigint NOT NULL, changes integer NOT NULL, terms text);
ALTER TABLE account ALTER COLUMN terms SET STORAGE EXTERNAL, REPLICA IDENTITY FULL;
CREATE TABLE ledger (account integer, id uuid DEFAULT gen_random_uuid(), amount bigint, PRIMARY KEY (account, id));
CREATE TABLE document (id integer PRIMARY KEY, changes integer, body text);
ALTER TABLE document ALTER COLUMN body SET STORAGE EXTERNAL;
INSERT INTO account SELECT i, 0, 0, repeat(md5(i::text), 100) FROM generate_series(1, 40) i;
INSERT INTO document SELECT i, 0, repeat(md5(i::text), 100) FROM generate_series(1, 40) i;
"""

_BROKEN: Final = """
SELECT count(*) FROM account a FULL JOIN (SELECT account, sum(amount) AS total FROM ledger GROUP BY account) l
ON l.account = a.id WHERE a.balance IS DISTINCT FROM coalesce(l.total, 0)
"""

_PAUSE_S: Final = times(0.1, soak=0.02)
"""Between two transactions, so that the load leaves most of the machine to what is tested."""
_WEIGHTS: Final = (5, 5, 5, 0.5, 2, 2, 2, 0.03)
"""How often each kind of transaction runs; a TRUNCATE reads the topic back, so only a few of them."""


def create(database: Database) -> None:
    """Make the tables and the first accounts."""
    database.execute(_DDL)


class Guarded(threading.Thread):
    """A thread that works until ``finish``, and whose failure ``finish`` raises."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._over = threading.Event()
        self._failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._over.wait(_PAUSE_S):
                try:
                    self.work()
                except psycopg.OperationalError:
                    self.lost()
        except BaseException as error:  # noqa: BLE001 - finish() raises it in the test
            self._failure = error
        finally:
            self.lost()

    def work(self) -> None:
        """One round; a lost connection is no failure."""
        raise NotImplementedError

    def lost(self) -> None:
        """The connection is gone, or not needed any more: close it."""

    def finish(self) -> None:
        """Stop, and raise what it died of."""
        self._over.set()
        self.join(30)
        if self._failure is not None:
            raise self._failure


class Writer(Guarded):
    """One session of the load.

    Args:
        database: the source, with the tables.
        seed: of its choices.
    """

    def __init__(self, database: Database, seed: int) -> None:
        super().__init__(f"writer {seed}")
        self.committed = 0
        self._database = database
        self._random = random.Random(seed)
        self._next_id = 1000 * (seed % 1_000_000)
        self._connection: psycopg.Connection[Any] | None = None

    def work(self) -> None:
        """One transaction."""
        if self._connection is None:
            self._connection = self._database.connect(connect_timeout=5)
        kinds = (self._post, self._post, self._post, self._many, self._move, self._close, self._touch, self._clear)
        kind = self._random.choices(kinds, weights=_WEIGHTS)[0]
        try:
            with self._connection.transaction(force_rollback=self._random.random() < 0.1):
                kind(self._connection)
            self.committed += 1
        except (psycopg.errors.DeadlockDetected, psycopg.errors.UniqueViolation):
            return

    def lost(self) -> None:
        """Connect again in the next round, if there is one."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _account(self, connection: psycopg.Connection[Any]) -> int:
        row = connection.execute("SELECT id FROM account ORDER BY random() LIMIT 1 FOR UPDATE").fetchone()
        if row is not None:
            return int(row[0])
        self._next_id += 1
        connection.execute("INSERT INTO account VALUES (%s, 0, 0, repeat(md5(random()::text), 100))", (self._next_id,))
        return self._next_id

    def _post(self, connection: psycopg.Connection[Any], entries: int = 2) -> None:
        """Entries in one account, in a savepoint now and then."""
        account, amount = self._account(connection), self._random.randint(-1000, 1000)
        with connection.transaction():
            connection.execute(
                "INSERT INTO ledger (account, amount) SELECT %s, %s FROM generate_series(1, %s)",
                (account, amount, entries),
            )
        connection.execute(
            "UPDATE account SET balance = balance + %s, changes = changes + 1 WHERE id = %s",
            (amount * entries, account),
        )

    def _many(self, connection: psycopg.Connection[Any]) -> None:
        self._post(connection, self._random.randint(100, 2000))

    def _move(self, connection: psycopg.Connection[Any]) -> None:
        """The key of an account changes, and with it those of all its entries."""
        account = self._account(connection)
        self._next_id += 1
        connection.execute("UPDATE account SET id = %s WHERE id = %s", (self._next_id, account))
        connection.execute("UPDATE ledger SET account = %s WHERE account = %s", (self._next_id, account))

    def _close(self, connection: psycopg.Connection[Any]) -> None:
        account = self._account(connection)
        connection.execute("DELETE FROM ledger WHERE account = %s", (account,))
        connection.execute("DELETE FROM account WHERE id = %s", (account,))
        self._next_id += 1
        connection.execute("INSERT INTO account VALUES (%s, 0, 0, repeat('new', 1000))", (self._next_id,))

    def _touch(self, connection: psycopg.Connection[Any]) -> None:
        """Large values that stay what they are, and some of their rows go."""
        third = self._random.randrange(3)
        connection.execute("UPDATE account SET changes = changes + 1 WHERE id %% 3 = %s", (third,))
        connection.execute("UPDATE document SET changes = changes + 1 WHERE id %% 3 = %s", (third,))
        self._next_id += 1
        connection.execute(
            "UPDATE document SET id = %s WHERE id = (SELECT id FROM document ORDER BY random() LIMIT 1)",
            (self._next_id,),
        )

    def _clear(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute("TRUNCATE ledger")
        connection.execute("UPDATE account SET balance = 0 WHERE balance <> 0")


@dataclass
class _Seen:
    cuts: int = 0
    looks: int = 0
    faults: list[str] = field(default_factory=list)


class Watcher(Guarded):
    """Reads the replica's recorded cut and both tables in one transaction, over and over.

    Args:
        replica: may be away now and then.
    """

    def __init__(self, replica: Database) -> None:
        super().__init__("watcher")
        self.seen = _Seen()
        self._replica = replica
        self._last = 0
        self._connection: psycopg.Connection[Any] | None = None

    def work(self) -> None:
        """One look."""
        if self._connection is None:
            self._connection = self._replica.connect(connect_timeout=5)
            self._connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        try:
            with self._connection.transaction():
                row = self._connection.execute("SELECT lsn::text, lsn - '0/0'::pg_lsn FROM cdc.cut").fetchone()
                broken = self._connection.execute(_BROKEN).fetchone()
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            return  # the sink makes them
        self.seen.looks += 1
        if row is None or broken is None or row[0] is None:
            return  # no cut yet, or the sink catches up and promises nothing
        text, lsn = row
        if broken != (0,):
            self.seen.faults.append(f"at {text}: {broken[0]} accounts differ from their ledger")
        if lsn < self._last:
            self.seen.faults.append(f"the cut went back to {text}")
        if lsn > self._last:
            self.seen.cuts += 1
        self._last = int(lsn)

    def lost(self) -> None:
        """Connect again at the next look, if there is one."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None
