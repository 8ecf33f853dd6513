"""Keys in Avro and in JSON are one to one, for every type; a foreign reader reads what the key holds."""

from __future__ import annotations

import io
import json
import os
import random
from collections.abc import Iterator, Sequence
from typing import Any, Final

import fastavro
import pytest

from cdc.contract.change import Column, Relation, ReplicaIdentity
from cdc.contract.formats.avro.keys import AvroKeyReader, AvroKeyWriter, key_of_json, key_schema
from cdc.contract.formats.json_format import JSON
from cdc.contract.formats.registered import head
from cdc.contract.formats.topic_keys import TopicKeys, key_texts
from cdc.contract.json_members import member_texts
from cdc.contract.pgtypes import sql_type
from cdc.contract.record import TableSchema, WrittenSchema
from cdc.contract.schema import table_schema
from tests.support.servers import Database
from tests.support.soak import times
from tests.support.value_catalogue import Catalogue, Type, printed_catalogue

SEED = int(os.environ.get("SEED", str(random.SystemRandom().randrange(1 << 32))))
_ID: Final = 70_000
_NO_KEYS: Final = ("json", "json[]")
"""Types without an order, of which no column of a key can be."""


@pytest.fixture
def catalogue(database: Database) -> Iterator[Catalogue]:
    with printed_catalogue(database, SEED) as found:
        yield found


def definition(columns: Sequence[Column]) -> TableSchema:
    """The definition of a table all of whose columns are the key."""
    relation = Relation(7, "My schema", "1 table", ReplicaIdentity.DEFAULT, tuple(columns))
    key = [column.name for column in columns]
    text = key_schema(table_schema(relation, key, "t"), "the-bridge")
    return table_schema(relation, key, "t", key_schema=WrittenSchema(_ID, text, "avro"))


def foreign_fields(schema: TableSchema, key: bytes) -> list[Any]:
    """What fastavro reads; it has to read all of it."""
    assert schema.key_schema is not None
    rest = io.BytesIO(key[5:])
    found: Any = fastavro.schemaless_reader(rest, fastavro.parse_schema(json.loads(schema.key_schema.text)), None)
    assert not rest.read()
    return [*found.values()]


def shown(value: Any) -> bytes:
    """A value of a foreign reader as the server's text."""
    match value:
        case bool():
            return b"t" if value else b"f"
        case bytes():
            return b"\\x" + value.hex().encode()
    return str(value).encode()


def wanted(column: Column, text: bytes) -> bytes:
    """What a foreign reader has to show of a column: the server's text, or the JSON of an array."""
    in_json = member_texts(JSON.writer([column]).encode((text,)).decode())[column.name]
    return in_json.encode() if sql_type(column).endswith("[]") and in_json.startswith("[") else text


def keys_of(catalogue: Catalogue) -> list[Type]:
    return [each for name, each in catalogue.types.items() if name not in _NO_KEYS]


def test_every_value_of_every_type_is_one_key(catalogue: Catalogue) -> None:
    for each in keys_of(catalogue):
        columns = [each.column("c")]
        schema, in_json = definition(columns), JSON.writer(columns)
        writer, keys, found = AvroKeyWriter(columns, _ID), TopicKeys([schema]), dict[bytes, bytes]()
        for text in each.texts:
            raw = writer.encode((text,))
            assert raw.startswith(head(_ID))
            assert found.setdefault(raw, text) == text, each.name
            assert keys.json(raw) == in_json.encode((text,)), f"{each.name} {text!r}"
            assert keys.wire(keys.json(raw)) == raw, f"{each.name} {text!r}"
            assert key_texts(columns, raw) == key_texts(columns, in_json.encode((text,)))
            assert [*map(shown, foreign_fields(schema, raw))] == [wanted(columns[0], text)]
            assert writer.problem(0, text) == ""


def test_keys_of_several_columns(catalogue: Catalogue) -> None:
    rng, types = random.Random(SEED), keys_of(catalogue)
    for _ in range(times(300, soak=10_000)):
        chosen = rng.choices(types, k=rng.randint(1, 5))
        columns = [each.column(rng.choice(("c", "a b", "é", "%")) + str(i)) for i, each in enumerate(chosen)]
        schema, row = definition(columns), tuple(rng.choice(each.texts) for each in chosen)
        raw, keys = AvroKeyWriter(columns, _ID).encode(row), TopicKeys([schema])
        assert keys.json(raw) == JSON.writer(columns).encode(row)
        assert keys.wire(keys.json(raw)) == raw
        assert [*map(shown, foreign_fields(schema, raw))] == [*map(wanted, columns, row)]


def test_damaged_keys_are_refused_or_other_keys(catalogue: Catalogue) -> None:
    """What is read is written as the same bytes, so no two keys are read as one."""
    rng, types = random.Random(SEED), keys_of(catalogue)
    for _ in range(times(2_000, soak=100_000)):
        chosen = rng.choices(types, k=rng.randint(1, 3))
        columns = [each.column(f"c{i}") for i, each in enumerate(chosen)]
        writer, names = AvroKeyWriter(columns, _ID), [(column.name, sql_type(column)) for column in columns]
        raw = bytearray(writer.encode(tuple(rng.choice(each.texts) for each in chosen)))
        place = rng.randrange(5, len(raw) + 1)
        raw[place : place + rng.randrange(2)] = rng.randbytes(rng.randrange(3))
        try:
            found = AvroKeyReader(names).json(bytes(raw))
        except ValueError:
            continue
        assert key_of_json(names, found) == bytes(raw[5:])


@pytest.mark.parametrize(
    ("was", "now"),
    [
        (("int2", -1), ("int4", -1)),
        (("int4", -1), ("int8", -1)),
        (("varchar", 9), ("varchar", 99)),
        (("varchar", 9), ("text", -1)),
        (("numeric", (5 << 16 | 2) + 4), ("numeric", (9 << 16 | 2) + 4)),
        (("timestamp", 0), ("timestamp", 6)),
    ],
)
def test_a_type_that_grows_keeps_schema_and_keys(was: tuple[str, int], now: tuple[str, int]) -> None:
    old, new = ([Column("c", 0, modifier, f"pg_catalog.{name}", True)] for name, modifier in (was, now))
    assert definition(old).key_schema == definition(new).key_schema
    text = {"int2": b"-7", "int4": b"-7", "numeric": b"1.50", "timestamp": b"2026-01-02 03:04:05"}.get(was[0], b"x")
    assert AvroKeyWriter(old, 1).encode((text,)) == AvroKeyWriter(new, 1).encode((text,))


def test_the_twin_in_c_writes_the_same_keys(catalogue: Catalogue) -> None:
    for each in keys_of(catalogue):
        columns = [each.column("c"), Column("d", 0, -1, "pg_catalog.int8", True)]
        writer = AvroKeyWriter(columns, _ID)
        for text in each.texts:
            row = (text, b"-3")
            assert writer.compiled.encode(row) in (None, writer.encode(row))
