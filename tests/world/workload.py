"""What applications do to the source: transactions of a few, at random, in each other's way."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from psycopg import errors

from tests.world.postgres import WorldServer
from tests.world.postgres_tables import Row
from tests.world.postgres_transaction import WorldTransaction, WouldWait

KEYS: Final = 4
_SESSIONS: Final = 3
TABLES: Final = ("public.a", "public.b")
DEEDS: Final = frozenset(
    {
        "change of key",
        "commit",
        "commit prepared",
        "delete",
        "insert",
        "prepare",
        "rollback",
        "rollback to savepoint",
        "truncate",
        "update",
        "update of a long value",
        "waited for a lock",
    }
)
"""What it does, as it is counted."""
DDL: Final = frozenset({"column added", "table recreated", "tables swapped"})
"""What it does to tables in some worlds."""
_WRITES: Final = (
    "rollback to savepoint",
    "update",
    "update of a long value",
    "change of key",
    "delete",
    "truncate",
)
_WEIGHTS: Final = (0, 1, 1, 3, 9)
"""How often a world does something: each world has preferences of its own, because some orders only happen where one
thing is done again and again, and another never (Groce et al., "Swarm Testing", 2012)."""
COLUMNS: Final = {"id": "int8", "v": "text", "doc": "text"}
LONG: Final = 40
_NEVER: Final = 1_000_000


class Workload:
    """Runs transactions until it has begun so many.

    Args:
        server: the source.
        done: where to count what was done.
        transactions: how many to begin.

    Attributes:
        is_over: whether all of them have ended.
        is_quick: whether a commit is visible as soon as it is in the WAL.
        has_toast: whether the stream leaves long values out that an UPDATE did not touch.
        has_ddl: whether tables are altered, too.
        renamed_at: when another table last took a captured name; its commit may come much later.
    """

    def __init__(self, server: WorldServer, done: Counter[str], transactions: int) -> None:
        self.server = server
        self._rng = rng = server.turns.rng
        self._left = transactions
        self._open: list[WorldTransaction] = []
        self._number = 0
        self._done = done
        self.is_quick = rng.random() < 0.5
        self.has_ddl = rng.random() < 0.3
        self.renamed_at = -math.inf
        self.has_toast = rng.random() < 0.5
        self._writes = {each: rng.choice(_WEIGHTS) for each in _WRITES} | {"insert": 3}
        self._ends = {"commit": 6, "rollback": rng.choice(_WEIGHTS), "prepare": rng.choice(_WEIGHTS)}
        if self.has_ddl:
            self._writes["alter"] = 1
        server.toast_bytes = LONG if self.has_toast else _NEVER

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do."""
        return not self._left and not self._open and not self.server.prepared

    def steps(self) -> list[Callable[[], object]]:
        """Returns what some application may do next."""
        if self.is_over or self.server.is_away:
            return []
        return [self._act]

    def finish(self) -> None:
        """End everything that is open."""
        self._left = 0
        for gid in [*self.server.prepared]:
            self.server.commit_prepared(gid)
        for each in self._open:
            if not each.is_over and each.end_lsn is None:
                each.commit()
        for each in [each for each in self.server.commits if not each.is_over]:
            each.show()

    def make_tables(self) -> None:
        """Create the tables with a few rows."""
        transaction = self.server.begin()
        for table in TABLES:
            transaction.create_table(table, COLUMNS, ["id"])
        transaction.commit()
        transaction = self.server.begin()
        for number in range(KEYS - 1):
            transaction.insert(TABLES[0], self._row(number))
        transaction.commit()

    def _act(self) -> None:
        rng = self._rng
        self._open = [each for each in self._open if not each.is_over and each.end_lsn is None and each.gid is None]
        if self._left and (not self._open or (len(self._open) < _SESSIONS and rng.random() < 0.3)):
            self._left -= 1
            self._open.append(self.server.begin())
            return
        if not self._open or (self.server.prepared and rng.random() < 0.3):
            if self.server.prepared:
                self._did("commit prepared")
                self.server.commit_prepared(rng.choice([*self.server.prepared]))
            return
        transaction = rng.choice(self._open)
        if rng.random() < 0.35:
            self._end(transaction)
            return
        try:
            self._write(transaction)
        except WouldWait:
            self._did("waited for a lock")
            transaction.abort()  # as deadlock_timeout or an impatient application ends it
        except errors.UniqueViolation:
            transaction.abort()

    def _end(self, transaction: WorldTransaction) -> None:
        end = self._choose(self._ends)
        if end == "rollback":
            self._did("rollback")
            transaction.abort()
        elif end == "prepare" and transaction.xid:
            self._did("prepare")
            self._number += 1
            transaction.prepare(f"gid {self._number}")
        else:
            self._did("commit")
            transaction.write_commit()
            if self.is_quick or not transaction.xid:
                transaction.show()

    def _write(self, transaction: WorldTransaction) -> None:
        rng, table = self._rng, self._rng.choice(TABLES)
        where: Row = {"id": b"%d" % rng.randrange(KEYS)}
        deed = self._choose(self._writes)
        if deed == "insert":
            transaction.insert(table, self._row(rng.randrange(KEYS)))
        elif deed == "rollback to savepoint":
            transaction.savepoint("s")
            transaction.insert(table, self._row(rng.randrange(KEYS)))
            transaction.rollback_to("s")
        elif deed == "update":
            transaction.update(table, where, {"v": self._value()})
        elif deed == "update of a long value":
            transaction.update(table, where, {"doc": self._value() * LONG})
        elif deed == "change of key":
            transaction.update(table, where, {"id": b"%d" % rng.randrange(KEYS)})
        elif deed == "delete":
            transaction.delete(table, where)
        elif deed == "truncate":
            if transaction.has_made(table):
                return
            transaction.truncate(table)
        else:
            deed = self._alter(transaction, table)
        self._did(deed)

    def _choose(self, weights: Mapping[str, int]) -> str:
        return self._rng.choices([*weights], [*weights.values()])[0]

    def _alter(self, transaction: WorldTransaction, table: str) -> str:
        deed = self._rng.choice(sorted(DDL))
        if deed == "column added":
            self._number += 1
            transaction.add_column(table, f"c{self._number}", "text")
        elif deed == "table recreated":
            transaction.drop_table(table)
            transaction.create_table(table, COLUMNS, ["id"])
        else:
            for each in TABLES:
                transaction.to_alter(each)
            transaction.rename_table("public.a", "swapped")
            transaction.rename_table("public.b", "a")
            transaction.rename_table("public.swapped", "b")
        if deed != "column added":
            self.renamed_at = self.server.turns.now
        return deed

    def _row(self, number: int) -> Row:
        long = LONG if self._rng.random() < 0.5 else 1
        return {"id": b"%d" % number, "v": self._value(), "doc": self._value() * long}

    def _value(self) -> bytes:
        self._number += 1
        return b"v%d" % self._number

    def _did(self, what: str) -> None:
        self._done[what] += 1
