"""Jobs over topics in Protobuf: they read each value as the bridge's reader does, and damage is found and healed."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from cdc.contract.change import Column, Relation, ReplicaIdentity
from cdc.contract.formats.protobuf.reader import ProtobufReader
from cdc.contract.formats.protobuf.schema import protobuf_schema
from cdc.contract.formats.protobuf.wire import head
from cdc.contract.formats.protobuf.writer import ProtobufWriter
from cdc.contract.record import WrittenSchema
from cdc.contract.schema import table_schema
from cdc.lab.stack import RegistryServer
from cdc.spark.errors import JobError, TopicUnreadable
from cdc.spark.report.document import from_json
from cdc.spark.values.avro import opened
from cdc.spark.values.protobuf import DAMAGED, ProtobufDecoder
from tests.integration.bridge.test_protobuf import in_protobuf
from tests.integration.spark import mirrors
from tests.integration.spark.snapshots import Snapshots
from tests.integration.spark.test_avro import COLUMNS, ROWS, TABLE, definitions
from tests.support.deployment import Deploy, Deployment
from tests.support.reconciling import run_command, table_of
from tests.support.servers import Database
from tests.support.topic_damage import Damage
from tests.support.value_catalogue import Catalogue, printed_catalogue, random_row, random_table

SEED = int(os.environ.get("SEED", str(random.SystemRandom().randrange(1 << 32))))
KEY: Final = Column("id", 23, -1, "pg_catalog.int4", True, 1)
TEXT: Final = Column("t", 25, -1, "pg_catalog.text", False, 2)


@pytest.fixture
def catalogue(database: Database) -> Iterator[Catalogue]:
    with printed_catalogue(database, SEED) as found:
        yield found


def test_values_and_damage_are_read_as_the_bridge_reads_them(catalogue: Catalogue) -> None:
    """The jobs' reader is another one than the bridge's; it runs in Spark's workers, but needs no Spark."""
    rng = random.Random(SEED)
    for turn in range(120):
        types, columns, key = random_table(rng, catalogue)
        if turn < len(catalogue.types):
            types = [list(catalogue.types.values())[turn]]
            columns, key = [types[0].column("c")], ()
        relation = Relation(7, "My schema", "1 table", ReplicaIdentity.DEFAULT, tuple(columns))
        schema = protobuf_schema(table_schema(relation, key, "t"), "the-bridge", "text")
        writer, reader, decoder = ProtobufWriter(columns, schema, 7), ProtobufReader(schema), ProtobufDecoder(schema)
        for number in range(20):
            row = random_row(rng, types, columns, key)
            if turn < len(catalogue.types) and number < len(types[0].texts):
                row = (types[0].texts[number],)
            value = writer.encode(row)
            expected = reader.json(value).decode()
            found = decoder.object(value)
            assert found == expected or same_array(found, expected), f"SEED={SEED} {schema} {row}"
            flipped = bytearray(value)
            flipped[rng.randrange(5, len(value))] = rng.randrange(256)
            for damaged in (bytes(flipped), value[: rng.randrange(6, len(value) + 1)], value + value[6:]):
                found = decoder.object(damaged)
                try:
                    expected = reader.json(damaged).decode()
                except ValueError:
                    # It minds neither the order of fields, nor every text of an array
                    assert found == DAMAGED or damaged != value + value[6:] or len(value) == 6, f"SEED={SEED}"
                    continue
                assert found in (expected, DAMAGED) or same_array(found, expected), f"SEED={SEED} {schema}"


def same_array(found: str, expected: str) -> bool:
    """Whether two objects differ in nothing but how an array is shown that has no flat list of values."""
    try:
        one, other = json.loads(found), json.loads(expected)
    except ValueError:
        return False
    return list(one) == list(other) and all(
        one[name] == other[name] or {type(one[name]), type(other[name])} == {list, str} for name in one
    )


def test_a_frame_of_values_is_opened(spark: SparkSession) -> None:
    """JSON, NULL, values of two schemas, and what has no schema."""
    rows: list[tuple[int, bytes | None, str]] = []
    known, expected = [], []
    for number, columns in ((7, [KEY, TEXT]), (8, [KEY])):
        relation = Relation(7, "public", "t", ReplicaIdentity.DEFAULT, tuple(columns))
        definition = table_schema(relation, ("id",), "t")
        schema = protobuf_schema(definition, "shop", "refuse")
        value = ProtobufWriter(columns, schema, number).encode((b"1", b'a"')[: len(columns)])
        known.append(replace(definition, written=(WrittenSchema(number, schema, "protobuf"),)))
        rows += [(len(rows), value, ""), (len(rows) + 1, value[:-1], "")]
        expected += [ProtobufReader(schema).json(value), DAMAGED.encode()]
    unknown = b"(a value whose schema is in no definition of the schemas topic)"
    others = [(None, None), (b"{}", b"{}"), (head(9), unknown), (b"\0", unknown)]
    rows += [(len(rows) + place, value, "") for place, (value, _) in enumerate(others)]
    frame = spark.createDataFrame(rows, "place int, value binary, header string").repartition(2).sort("place")
    found = [None if row["value"] is None else bytes(row["value"]) for row in opened(frame, known).collect()]
    assert found == [*expected, *(made for _, made in others)]
    foreign = replace(known[0], written=(WrittenSchema(7, 'syntax = "proto3";', "protobuf"),))
    with pytest.raises(TopicUnreadable, match="a Protobuf schema that cdc did not write"):
        opened(frame, [foreign])


class Account:
    """A table whose topic is in Protobuf, and what somebody else writes into it."""

    def __init__(self, deployment: Deployment) -> None:
        (definition,) = [each for each in definitions(deployment) if each.topic == deployment.topic(TABLE)]
        ((number, schema, _),) = definition.written
        self._writer = ProtobufWriter(COLUMNS, schema, number)
        self._records = {each.key: each for each in deployment.records(TABLE)}
        self._damage = Damage(deployment)

    def row(self, number: int, *, note: bytes = b"note", balance: bytes | None = None) -> bytes:
        """A row as the bridge would write it."""
        balance = b"%d.50" % number if balance is None else balance
        return self._writer.encode((b"%d" % number, balance, note, b"0.1", b"2026-11-27 12:00:00+00"))

    def value(self, number: int) -> bytes:
        """The row that the bridge wrote."""
        return self._records[b'{"id":%d}' % number].value or b""

    def write(self, number: int, value: bytes | None) -> None:
        """Write a record with a header of the bridge."""
        key = b'{"id":%d}' % number
        header = self._records[key if key in self._records else b'{"id":1}'].header
        self._damage.write(TABLE, key, value, header=header)

    def done(self) -> None:
        """See all of them arrive."""
        self._damage.done()


@pytest.mark.timeout(900)
@pytest.mark.pg(16, matrix=False)
def test_damage_is_found_refused_and_healed(
    database: Database, deploy: Deploy, registry: RegistryServer, tmp_path: Path, spark: SparkSession
) -> None:
    database.execute(
        "CREATE TABLE account (id int PRIMARY KEY, balance numeric(12,2), note text, rate float8, at timestamptz)"
    )
    database.execute(
        f"INSERT INTO account SELECT n, n + 0.5, 'note', 0.1, '2026-11-27 12:00Z' FROM generate_series(1, {ROWS}) n"
    )
    deployment = in_protobuf(deploy, registry, topics={"partitions": 2})
    deployment.start_bridge()
    deployment.wait_backfilled(TABLE)
    account = Account(deployment)
    assert account.value(5) == account.row(5)
    account.write(7, account.row(7, note=b"nose"))
    account.write(8, account.row(8, balance=b"-8.50"))
    account.write(9, account.value(9)[:-2])
    account.write(10, head(999_999) + account.value(10)[6:])
    account.write(11, account.value(11) + b"\0")
    account.write(12, None)
    account.write(900, account.row(900))
    # A row in JSON is the same row.
    as_json = b'{"id":13,"balance":"13.50","note":"note","rate":0.1,"at":"2026-11-27 12:00:00+00"}'
    account.write(13, as_json)
    account.done()
    snapshots = Snapshots(spark, deployment, tmp_path / "snapshots")
    with pytest.raises(TopicUnreadable, match=r"\((Protobuf that is|a value whose schema)"):
        snapshots.take(TABLE)
    with pytest.raises(JobError, match=r"topic .*account, .* key .*\((Protobuf that is|a value whose schema)"):
        mirrors.run(spark, mirrors.job_for(deployment, tmp_path / "lake"))

    _, said = run_command(deployment, tmp_path / "report", "--repair", "--yes")
    found = from_json((tmp_path / "report" / "report.json").read_text(encoding="utf-8"))
    table = table_of(found, TABLE)
    assert (table.counts.missing_in_topic, table.counts.extra_in_topic, table.counts.value_mismatch) == (1, 1, 5), said
    told = {json.loads(each.key)["id"]: f"{each.cause} {each.other}" for each in table.samples}
    assert set(told) == {7, 8, 9, 10, 11, 12, 900}
    assert "nose" in told[7]
    assert all("(Protobuf that is" in told[number] for number in (9, 11)), told
    assert "(a value whose schema is in no" in told[10]
    healed = from_json((tmp_path / "report" / "after-repair" / "report.json").read_text(encoding="utf-8"))
    repair = table_of(healed, TABLE).repair
    assert repair is not None
    assert repair.still_different == 0, said
    with database.connect() as connection:
        rows = connection.execute("SELECT id, balance, note, rate, at FROM account ORDER BY id").fetchall()
    # pyspark returns timestamps in the machine's time zone, without naming it.
    copy = [(*row[:-1], row[-1].astimezone(UTC)) for row in snapshots.rows(TABLE)]
    assert copy == rows
    mirrors.run(spark, mirrors.job_for(deployment, tmp_path / "healed"))
    deployment.stop()
