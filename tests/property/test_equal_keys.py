"""Keys that are equal to the database and not the same bytes: the replica is the source at every cut.

Random histories of a few keys, each with several spellings, as a bridge publishes them: a changed spelling is a
tombstone and an upsert, which lie in different partitions. Each cut's records reach the replica in one piece, or in
many, partition by partition in any order.
"""

from __future__ import annotations

import os
import random
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import orjson
import pytest

from cdc.base.lsn import LSN
from cdc.contract.change import Column
from cdc.contract.formats.values import Converter, converter
from cdc.contract.header import DELETE, UPDATE, HeaderStamp
from cdc.contract.pgtypes import sql_type
from cdc.contract.ports import CutStanding, StoredRecord
from cdc.contract.record import Progress, SchemaColumn, TableSchema
from cdc.sink.postgres.locks import LockWaits
from cdc.sink.postgres.schema_version import upgrade
from cdc.sink.postgres.session import replica_engine
from cdc.sink.postgres.writer import PostgresReplica
from cdc.sink.replica import ReplicaNaming
from tests.support.servers import Database
from tests.support.topic_writer import SOURCE

WHOLE = CutStanding(is_true=True, loading=(), outside=(), joining=(), caught_up_at=0)
PARTITIONS, CUTS, CHANGES_A_CUT = 3, 6, 40

SPELLINGS: dict[str, tuple[tuple[str, ...], ...]] = {
    "pg_catalog.numeric": (("1", "1.0", "1.00"), ("-7.5", "-7.50"), ("NaN",)),
    "pg_catalog.interval": (("1 day", "24:00:00"), ("1 mon", "30 days", "720:00:00")),
    "pg_catalog.jsonb": (("1", "1.0"), ('{"a": 2}', '{"a": 2.00}'), ('"s"',)),
    "pg_catalog.float8": (("0", "-0"), ("0.5",)),
    "pg_catalog.bpchar": (("a", "a ", "a  "), ("b",)),
    "pg_catalog._numeric": (("{1}", "{1.0}"), ("{2,3}", "{2.0,3}", "{2.0,3.00}")),
    "pg_catalog.numrange": (("[1,2)", "[1.0,2)"), ("empty",)),
    "public.folded": (("key", "Key", "KEY"), ("other", "Other")),
    "pg_catalog.text": (("1",), ("1.0",), ("A",), ("a",)),
}
"""Type → keys, each in its equal spellings. One of no equality but identity is among them."""

FOLDED = """
CREATE TYPE folded;
CREATE FUNCTION folded_in(cstring) RETURNS folded AS 'textin' LANGUAGE internal IMMUTABLE STRICT;
CREATE FUNCTION folded_out(folded) RETURNS cstring AS 'textout' LANGUAGE internal IMMUTABLE STRICT;
CREATE TYPE folded (INPUT = folded_in, OUTPUT = folded_out, LIKE = text);
CREATE CAST (folded AS text) WITHOUT FUNCTION;
"""
_COMPARE = "CREATE FUNCTION folded_{name}(a folded, b folded) RETURNS {result} AS {body} LANGUAGE sql IMMUTABLE STRICT;"
OPERATORS = {"lt": "<", "le": "<=", "eq": "=", "ge": ">=", "gt": ">"}


def make_folded(database: Database) -> None:
    """A type like citext, with its operators where no search path of ours reaches them."""
    database.execute(FOLDED)
    body = "$$SELECT lower(a::text) {} lower(b::text)$$"
    for name, operator in OPERATORS.items():
        database.execute(_COMPARE.format(name=name, result="bool", body=body.format(operator)))
        database.execute(f"CREATE OPERATOR {operator} (FUNCTION = folded_{name}, LEFTARG = folded, RIGHTARG = folded)")
    compare = "$$SELECT pg_catalog.bttextcmp(lower(a::text), lower(b::text))$$"
    database.execute(_COMPARE.format(name="cmp", result="int", body=compare))
    members = ", ".join(f"OPERATOR {n} {operator}" for n, operator in enumerate(OPERATORS.values(), 1))
    database.execute(
        f"CREATE OPERATOR CLASS folded_ops DEFAULT FOR TYPE folded USING btree AS {members}, "
        "FUNCTION 1 folded_cmp(folded, folded)"
    )


@dataclass
class Source:
    """A table of a few keys, and what a bridge publishes of it."""

    rng: random.Random
    schema: TableSchema
    convert: Converter
    keys: Sequence[Sequence[str]]
    rows: dict[int, tuple[str, int]] = field(default_factory=dict)
    lsn: int = 100
    seq: int = 0
    value: int = 0

    def change(self) -> Iterator[StoredRecord]:
        """One random change."""
        if self.rng.random() < 0.3:
            self.lsn, self.seq = self.lsn + 10, 0
        number = self.rng.randrange(len(self.keys))
        spelling, former = self.rng.choice(self.keys[number]), self.rows.get(number)
        if former is None and self.rng.random() < 0.2:
            yield self._record(spelling, None)  # a sweep's tombstone of a key that is gone long since
        elif former is None or self.rng.random() < 0.7:
            if former is not None and former[0] != spelling:
                yield self._record(former[0], None)
            self.value += 1
            self.rows[number] = spelling, self.value
            yield self._record(spelling, self.value)
        elif spelling != former[0]:
            yield self._record(spelling, None)  # likewise, beside the row that lives
        else:
            del self.rows[number]
            yield self._record(spelling, None)

    def _record(self, spelling: str, value: int | None) -> StoredRecord:
        self.seq += 1
        shown = orjson.Fragment(self.convert(spelling.encode()))
        key = orjson.dumps({"id": shown})
        header = HeaderStamp(LSN(self.lsn), 700, 0).header(
            DELETE if value is None else UPDATE, self.seq, self.schema.fingerprint
        )
        row = None if value is None else orjson.dumps({"id": shown, "v": value})
        return StoredRecord(self.schema.topic, zlib.crc32(key) % PARTITIONS, 0, key, row, header)


def deliveries(rng: random.Random, records: Sequence[StoredRecord], pieces: int) -> Iterator[list[StoredRecord]]:
    """The records in so many pieces: each partition in order, the partitions in none."""
    waiting = [[each for each in records if each.partition == partition] for partition in range(PARTITIONS)]
    for _ in range(pieces - 1):
        piece = []
        for queue in waiting:
            end = rng.randint(0, len(queue))
            piece += queue[:end]
            del queue[:end]
        yield piece
    yield [record for queue in waiting for record in queue]


@pytest.mark.pg(16, 18)
@pytest.mark.parametrize("pieces", [1, 5], ids=["small", "spilled"])
def test_respelled_keys_are_neither_lost_nor_doubled(database: Database, pieces: int) -> None:
    seed = int(os.environ.get("SEED", random.randrange(10**6)))
    sys.stdout.write(f"replay with: SEED={seed}\n")
    make_folded(database)
    engine = replica_engine({"conninfo": database.dsn}, application_name="test")
    upgrade(engine)
    for number, (type_name, keys) in enumerate(SPELLINGS.items()):
        column = Column("id", 0, -1, type_name, True)
        schema = TableSchema(
            f"{number:016x}", "public", f"t{number}", f"x.t{number}", ("id",),
            (SchemaColumn("id", sql_type(column)), SchemaColumn("v", "int4")),
        )  # fmt: skip
        rng = random.Random(f"{seed} {type_name} {pieces}")
        source = Source(rng, schema, converter(column), keys)
        with closing(
            PostgresReplica(engine, f"s{number}", ReplicaNaming(None, "", {}), LockWaits(), (), {})
        ) as replica:
            replica.restore()
            replica.learn([schema])
            assert [each.reason for each in replica.tables().values()] == [None]
            for _ in range(CUTS):
                changes = [record for _ in range(CHANGES_A_CUT) for record in source.change()]
                for piece in deliveries(rng, changes, pieces):
                    if piece:
                        replica.write([replica.prepare(schema.topic, piece)])
                source.lsn, source.seq = source.lsn + 10, 0
                replica.commit(Progress(LSN(source.lsn), None, 0, SOURCE), {}, WHOLE)
                found = database.execute(f"SELECT format('%%s', id), v FROM t{number} ORDER BY v", [])
                assert found == sorted(source.rows.values(), key=lambda row: row[1]), type_name
