"""Values in Protobuf: the jobs read each as the bridge's reader does, and notice the damage that it notices."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from dataclasses import replace
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
from cdc.spark.errors import TopicUnreadable
from cdc.spark.values.avro import opened
from cdc.spark.values.protobuf import DAMAGED, ProtobufDecoder
from tests.support.servers import Database
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


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (Column("a", 1020, -1, "pg_catalog._box", False, 2), b"{{(1,1),(0,0);(2,2),(0,0)};{(1,1),(0,0);NULL}}"),
        (Column("a", 1009, -1, "pg_catalog._text", False, 2), b'{{a;b,"c,d"},{NULL,"\\"x"}}'),
        (Column("a", 70_000, -1, 'public."_Odd type"', False, 2), b"{a"),
        (Column("a", 70_000, -1, 'public."_Odd type"', False, 2), b"b,c"),
    ],
)
def test_texts_of_arrays_are_read_as_the_bridge_reads_them(column: Column, text: bytes) -> None:
    """The delimiter is that of the type, and what only has the name of an array is a text."""
    relation = Relation(7, "public", "t", ReplicaIdentity.DEFAULT, (KEY, column))
    schema = protobuf_schema(table_schema(relation, ("id",), "t"), "shop", "text")
    value = ProtobufWriter((KEY, column), schema, 7).encode((b"1", text))
    assert json.loads(ProtobufDecoder(schema).object(value)) == json.loads(ProtobufReader(schema).json(value))


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
