"""Rows that carry a version, and a load that changes them: whoever writes an older row over a newer one is caught.

A trigger gives each written row the next number of a sequence while the row is locked. So along the commits of one key
versions grow, whoever wrote them; a topic in which they fall, or rise from the dead, showed a state that never was.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, Final

import msgspec
import psycopg

from tests.support.bank import Guarded
from tests.support.servers import Database
from tests.support.soak import times
from tests.support.waiting import eventually

TABLES: Final = ("public.wide", "public.parted", "public.small")

# A low fillfactor makes many blocks, hence many chunks, of few rows.
_DDL: Final = """
CREATE SEQUENCE versions;
CREATE FUNCTION next_version() RETURNS trigger LANGUAGE plpgsql AS
  'BEGIN NEW.version := nextval(''public.versions''); RETURN NEW; END';
CREATE TABLE wide (id integer PRIMARY KEY, version bigint, pad text, big text) WITH (fillfactor = 10);
ALTER TABLE wide ALTER big SET STORAGE EXTERNAL;
CREATE TABLE parted (id integer PRIMARY KEY, version bigint, pad text) PARTITION BY HASH (id);
CREATE TABLE parted_0 PARTITION OF parted FOR VALUES WITH (MODULUS 2, REMAINDER 0) WITH (fillfactor = 10);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES WITH (MODULUS 2, REMAINDER 1) WITH (fillfactor = 10);
CREATE TABLE small (id integer PRIMARY KEY, version bigint, pad text);
CREATE TRIGGER versioned BEFORE INSERT OR UPDATE ON wide FOR EACH ROW EXECUTE FUNCTION next_version();
CREATE TRIGGER versioned BEFORE INSERT OR UPDATE ON parted FOR EACH ROW EXECUTE FUNCTION next_version();
CREATE TRIGGER versioned BEFORE INSERT OR UPDATE ON small FOR EACH ROW EXECUTE FUNCTION next_version();
"""


def create(database: Database, rows: int) -> None:
    """Make the tables, with so many rows in each of the two large ones."""
    database.execute(_DDL)
    database.execute(
        "INSERT INTO wide SELECT i, 0, repeat('p', 90), CASE i % 100 WHEN 0 THEN repeat(md5(i::text), 80) END"
        f" FROM generate_series(1, {rows}) i"
    )
    database.execute(f"INSERT INTO parted SELECT i, 0, repeat('p', 90) FROM generate_series(1, {rows}) i")
    database.execute("INSERT INTO small SELECT i, 0, 'p' FROM generate_series(1, 100) i")


_TRANSACTIONS_PER_ROUND = times(5, soak=20)
"""Between two rests of 20 ms: twenty are nearly as many as the server takes."""


class Writer(Guarded):
    """Random transactions over the tables.

    Args:
        database: the source.
        seed: of its choices.
        rows: ids lie between 1 and twice this.
    """

    def __init__(self, database: Database, seed: int, rows: int) -> None:
        super().__init__(f"versioned writer {seed}")
        self.committed = 0
        self._database = database
        self._random = random.Random(seed)
        self._rows = rows
        self._connection: psycopg.Connection[Any] | None = None

    def work(self) -> None:
        """Some transactions; an unknown outcome is as good as any."""
        if self._connection is None:
            self._connection = self._database.connect(connect_timeout=5)
        for _ in range(_TRANSACTIONS_PER_ROUND):
            try:
                with self._connection.transaction(force_rollback=self._random.random() < 0.1):
                    for _ in range(self._random.choice((1, 1, 1, 5, 50))):
                        self._change(self._connection)
                self.committed += 1
            except (psycopg.errors.DeadlockDetected, psycopg.errors.UniqueViolation):
                continue

    def lost(self) -> None:
        """Connect again in the next round, if there is one."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def wait_committed(self, count: int) -> None:
        """Wait until it committed so many transactions."""
        eventually(lambda: self.committed >= count, message=f"{count} transactions")

    def _change(self, connection: psycopg.Connection[Any]) -> None:
        table = self._random.choice(("wide", "wide", "parted", "parted", "small"))
        one, other = (self._random.randint(1, 2 * self._rows if table != "small" else 200) for _ in range(2))
        kind = self._random.random()
        if table == "small" and kind < 0.003:
            connection.execute("TRUNCATE small")
        elif kind < 0.55:
            connection.execute(f"UPDATE {table} SET pad = 'q' WHERE id = %s".encode(), (one,))
        elif kind < 0.7:
            connection.execute(f"DELETE FROM {table} WHERE id = %s".encode(), (one,))
        elif kind < 0.9:
            connection.execute(
                f"INSERT INTO {table} (id, pad) VALUES (%s, repeat('i', 90)) ON CONFLICT DO NOTHING".encode(), (one,)
            )
        else:
            connection.execute(f"UPDATE {table} SET id = %s WHERE id = %s".encode(), (other, one))


class VersionAudit:
    """Takes a topic's records in partition order."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.records = 0
        self.backfilled = 0
        self._newest: dict[tuple[str, bytes], tuple[int, bool]] = {}

    def add(self, records: Iterable[Any]) -> VersionAudit:
        """Look for versions that fall, or that come back after their delete."""
        for record in records:
            self.records += 1
            self.backfilled += b";op=r;" in record.header
            key = record.topic, record.key
            before, was_deleted = self._newest.get(key, (-1, False))
            if record.value is None:
                self._newest[key] = before, True
                continue
            version = msgspec.json.decode(record.value)["version"]
            if version < before or (version == before and was_deleted):
                self.faults.append(f"{record.topic} {record.key!r}: {version} after {before} at offset {record.offset}")
            self._newest[key] = max(version, before), False
        return self
