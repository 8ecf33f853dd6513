"""Spark's expressions make of Avro values what the bridge's reader of Avro makes of them: the JSON, byte for byte."""

from __future__ import annotations

import json
import os
import random
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import eq
from typing import Final

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdc.contract.change import Column, Relation, ReplicaIdentity, Row
from cdc.contract.floats import double_text, single_text
from cdc.contract.formats.avro.binary import varint
from cdc.contract.formats.avro.reader import AvroReader
from cdc.contract.formats.avro.schema import avro_schema
from cdc.contract.formats.avro.writer import AvroWriter
from cdc.contract.formats.registered import Beyond, head
from cdc.contract.json_members import members
from cdc.contract.record import TableSchema, WrittenSchema
from cdc.contract.schema import table_schema
from cdc.spark.errors import TopicUnreadable
from cdc.spark.values.avro import opened
from tests.support.servers import Database
from tests.support.value_catalogue import Catalogue, printed_catalogue

SEED = int(os.environ.get("SEED", str(random.SystemRandom().randrange(1 << 32))))
KEY: Final = Column("id", 23, -1, "pg_catalog.int4", True)
TEXT: Final = Column("t", 25, -1, "pg_catalog.text", False)
TEXTS: Final = Column("a", 1009, -1, "pg_catalog._text", False)
DOUBLE: Final = Column("d", 701, -1, "pg_catalog.float8", False)
SINGLE: Final = Column("f", 700, -1, "pg_catalog.float4", False)
DATE: Final = Column("day", 1082, -1, "pg_catalog.date", False)
PRICE: Final = Column("price", 1700, (12 << 16 | 2) + 4, "pg_catalog.numeric", False)
BOOLEAN: Final = Column("b", 16, -1, "pg_catalog.bool", False)
MOMENT: Final = Column("at", 1184, -1, "pg_catalog.timestamptz", False)
_NAMES: Final = ("c", "C", "é", "%s", "${env:HOME}", "a b", "\\", '"', "'", "`", "_u5f_", "1", "f0", "end")


@dataclass
class Written:
    """Values of several tables, and the definitions that tell how to read them."""

    definitions: list[TableSchema] = field(default_factory=list)
    values: list[tuple[bytes | None, str | None]] = field(default_factory=list)
    expected: list[bytes | None] = field(default_factory=list)

    def add(
        self, columns: Sequence[Column], rows: Iterable[Row], key: tuple[str, ...] = (), beyond: Beyond = "text",
        number: int | None = None,
    ) -> None:  # fmt: skip
        """Add rows with a schema of their own."""
        number = 70_000 + len(self.definitions) if number is None else number
        relation = Relation(7, "My schema", "1 table", ReplicaIdentity.DEFAULT, tuple(columns))
        definition = table_schema(relation, key, "t")
        schema = avro_schema(definition, "the-bridge", beyond=beyond)
        writer, reader = AvroWriter(columns, schema, number), AvroReader(schema)
        for row in rows:
            value = writer.encode(row)
            self.values.append((value, f"v=1;op=c;lsn=0/1;seq=1;xid=1;ts=1;schema={definition.fingerprint}"))
            self.expected.append(reader.json(value))
        self.definitions.append(replace(definition, format="avro", written=(WrittenSchema(number, schema, "avro"),)))

    def read(self, spark: SparkSession) -> list[bytes | None]:
        """What Spark makes of them, in their order."""
        return [None if row["value"] is None else bytes(row["value"]) for row in self.opened(spark).collect()]

    def opened(self, spark: SparkSession) -> DataFrame:
        """The same as a DataFrame."""
        rows = [(place, value, header) for place, (value, header) in enumerate(self.values)]
        # Written by one stage and read by another, so that Spark does not fold everything while it plans.
        frame = spark.createDataFrame(rows, "place int, value binary, header string").repartition(2).sort("place")
        return opened(frame, self.definitions)


@pytest.fixture
def catalogue(database: Database) -> Iterator[Catalogue]:
    with printed_catalogue(database, SEED) as found:
        yield found


def differing(written: Written, found: Sequence[bytes | None]) -> list[str]:
    """Values that Spark reads unlike the bridge's reader; Java spells a few floating point numbers in its own way."""
    return [
        f"SEED={SEED}: {value!r} is {expected!r}, not {got!r}"
        for (value, _), expected, got in zip(written.values, written.expected, found, strict=True)
        if expected != got and not same_numbers(expected, got)
    ]


def same_numbers(expected: bytes | None, found: bytes | None) -> bool:
    def packed(form: str, text: str) -> bytes | str:
        try:
            return struct.pack(form, float(text))
        except OverflowError:
            return text

    # Only what differs is parsed: documents may be deeper than a parser goes
    here, there = members(expected or b"{}"), members(found or b"{}")
    if here.keys() != there.keys():
        return False
    pairs = [[bytes(each[name]) for each in (here, there)] for name in here]
    parsed = [
        [[json.loads(each, parse_float=partial(packed, form)) for form in "fd"] for each in pair]
        for pair in pairs
        if pair[0] != pair[1]
    ]
    return all(any(map(eq, *pair)) for pair in parsed)


@pytest.mark.parametrize("key", [(), ("c",)], ids=["value", "key"])
def test_every_value(catalogue: Catalogue, spark: SparkSession, key: tuple[str, ...]) -> None:
    written = Written()
    for each in catalogue.types.values():
        nulls: list[Row] = [] if key else [(None,)]
        written.add([each.column("c")], [*((text,) for text in each.texts), *nulls], key)
    found = written.read(spark)
    assert differing(written, found) == []
    assert sum(map(bytes.__ne__, written.expected, found)) < len(found) / 100  # type: ignore[arg-type]


def test_random_rows(catalogue: Catalogue, spark: SparkSession) -> None:
    rng = random.Random(SEED)
    written = Written()
    for _ in range(40):
        types = rng.choices([*catalogue.types.values()], k=rng.randint(1, 20))
        columns = [each.column(rng.choice(_NAMES) + str(i)) for i, each in enumerate(types)]
        key = tuple(column.name for column in columns if rng.random() < 0.2)
        rows = [
            tuple(
                None if column.name not in key and rng.random() < 0.2 else rng.choice(each.texts)
                for each, column in zip(types, columns, strict=True)
            )
            for _ in range(8)
        ]
        written.add(columns, rows, key)
    assert differing(written, written.read(spark)) == []


def test_every_character_is_escaped_as_the_contract_says(spark: SparkSession) -> None:
    written = Written()
    characters = [chr(n).encode() for n in range(1, 300)] + [
        "\U0001f600\x01\U0001f600".encode(),
        b"",
        "\u2028".encode(),
    ]
    written.add([TEXT], [(each,) for each in characters])
    written.add([TEXT], [(b"a" + each + b"b",) for each in characters], ("t",))
    assert written.read(spark) == written.expected


def test_numbers_of_all_sizes(spark: SparkSession) -> None:
    rng = random.Random(SEED)
    written = Written()
    doubles = [struct.unpack("<d", rng.randbytes(8))[0] for _ in range(500)]
    doubles += [
        sign * digits * 10.0**exponent for exponent in range(-20, 25) for digits in (1, 1.5) for sign in (1, -1)
    ]
    singles = [struct.unpack("<f", struct.pack("<f", each))[0] for each in doubles if abs(each) < 1e38]
    written.add([DOUBLE], [(double_text(each).encode(),) for each in doubles])
    written.add([SINGLE], [(single_text(struct.pack("<f", each)).encode(),) for each in singles])
    numeric = Column("n", 1700, (38 << 16 | 30) + 4, "pg_catalog.numeric", False)
    texts = [
        f"{rng.choice(('-', ''))}{rng.randrange(10 ** rng.randint(1, 8))}.{rng.randrange(10**30):030d}"
        for _ in range(99)
    ]
    written.add([numeric], [(each.encode(),) for each in texts])
    found = written.read(spark)
    assert differing(written, found) == []
    assert sum(map(bytes.__ne__, written.expected, found)) < len(found) / 20  # type: ignore[arg-type]


def test_what_cannot_be_read_is_no_object_and_says_why(spark: SparkSession) -> None:
    written = Written()
    written.add([KEY, TEXT, DOUBLE, TEXTS], [(b"1", b"abc", b"1.5", b"{x,NULL}")], ("id",), number=7)
    (value, header), (whole,) = written.values[0], written.expected
    assert value is not None
    huge = [varint(size) for size in (1 << 26, 1 << 30, (1 << 31) - 10, 1 << 31, 1 << 40, -1, -(1 << 31))]
    damaged = [
        *(value[:length] for length in range(1, len(value))),
        value + b"\0",
        value + value,
        head(8) + value[5:],
        *(head(7) + varint(1) + b"\2" + size + b"abc" for size in huge),
        *(head(7) + varint(1) + b"\0\0\2" + size + b"\0\0" for size in huge),
    ]
    others: list[bytes | None] = [None, b"", whole, b"null"]
    written.values = [(each, header) for each in [*damaged, *others, value]]
    found = written.read(spark)
    assert found[len(damaged) :] == [*others, whole]
    assert {each[:1] for each in found[: len(damaged)] if each is not None} == {b"("}
    assert found[2] == b"(a value whose schema is in no definition of the schemas topic)"
    assert found[len(value)] == b"(Avro that is cut or damaged)"


def test_damaged_values_are_refused_or_are_the_rows_that_the_bridge_reads(spark: SparkSession) -> None:
    rng = random.Random(SEED)
    written = Written()
    columns = [KEY, TEXT, DOUBLE, TEXTS, DATE, PRICE, BOOLEAN, MOMENT]
    row = (b"1", b"abc", b"1.5", b"{x,NULL}", b"2026-11-27", b"-1.10", b"t", b"2026-11-27 01:02:03.5+00")
    written.add(columns, [row], ("id",), number=7)
    (value, header), reader = written.values[0], AvroReader(written.definitions[0].written[0].text)
    assert value is not None
    written.values, written.expected = [], []
    for _ in range(2_000):
        changed = bytearray(value)
        for _ in range(rng.randint(1, 3)):
            changed[rng.randrange(5, len(changed))] = rng.randrange(256)
        written.values.append((bytes(changed), header))
        try:
            written.expected.append(reader.json(bytes(changed)))
        except ValueError:
            written.expected.append(None)
    found = written.read(spark)
    written.expected = [
        got if expected is None and not is_object(got) else expected
        for expected, got in zip(written.expected, found, strict=True)
    ]
    # An integer may have more bytes than it needs; Java takes it, and so do most readers of the topic.
    assert len(differing(written, found)) < 20


def is_object(value: bytes | None) -> bool:
    try:
        return type(json.loads(value or b"")) is dict
    except ValueError:
        return False


def test_an_id_that_two_schemas_have_had(spark: SparkSession) -> None:
    """A registry that was restored gives an id again."""
    written = Written()
    written.add([KEY, TEXT], [(b"1", b"abc")], ("id",), number=7)
    written.add([KEY, DATE], [(b"1", b"2026-11-27")], ("id",), number=7)
    written.add([KEY, DATE], [(b"1", b"2026-11-27")], ("id",), number=8)
    assert written.read(spark) == written.expected


def test_a_table_of_as_many_columns_as_the_server_allows(spark: SparkSession) -> None:
    written = Written()
    kinds = [(TEXT, b"a"), (DOUBLE, b"0.5"), (TEXTS, b"{a}"), (DATE, b"2026-11-27"), (PRICE, b"1.10"), (MOMENT, None)]
    columns = [replace(kinds[n % len(kinds)][0], name=f"column {n}") for n in range(1_600)]
    written.add(columns, [tuple(kinds[n % len(kinds)][1] for n in range(1_600))] * 3)
    assert written.read(spark) == written.expected


def test_a_schema_of_somebody_else_is_refused(spark: SparkSession) -> None:
    written = Written()
    written.add([KEY], [(b"1",)], ("id",))
    union = '{"fields":[{"name":"a","type":["int","string","null"],"pg":{"name":"a","type":"int4"}}]}'
    for schema in ('"string"', "{", '{"type":"record","fields":[{"name":"a","type":"int"}]}', union):
        foreign = replace(written.definitions[0], written=(WrittenSchema(7, schema, "avro"),))
        with pytest.raises(TopicUnreadable, match="an Avro schema that cdc did not write"):
            opened(written.opened(spark), [foreign])
