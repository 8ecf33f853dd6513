"""Values written and read in C equal those of Python byte for byte, or are declined."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from cdc.base import compiled
from cdc.contract.change import Column, Relation, ReplicaIdentity, Row
from cdc.contract.formats.format import NOT_ENCODABLE
from cdc.contract.formats.protobuf.reader import ProtobufReader
from cdc.contract.formats.protobuf.schema import protobuf_schema
from cdc.contract.formats.protobuf.writer import ProtobufWriter
from cdc.contract.formats.registered import Beyond
from cdc.contract.schema import table_schema
from tests.support import random_rows
from tests.support.soak import times

SEED = int(os.environ.get("SEED", str(random.SystemRandom().randrange(1 << 32))))
_MODULE = "cdc.contract.formats._protobuf_rows"
_WIDEST = 64

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(compiled.twin(_MODULE) is None, reason="nothing was compiled"),
]


def tables(rng: random.Random, count: int) -> Iterator[tuple[list[Column], str]]:
    """Random columns, with the schema of a table that has them."""
    for _ in range(count):
        columns = [*random_rows.columns(rng)][:_WIDEST]
        relation = Relation(1, "public", "t", ReplicaIdentity.DEFAULT, tuple(columns))
        beyond: Beyond = rng.choice(("refuse", "text"))
        yield columns, protobuf_schema(table_schema(relation, (columns[0].name,), "t"), "shop", beyond=beyond)


def test_values_are_written_alike_or_declined() -> None:
    rng = random.Random(SEED)
    taken = declined = 0
    for columns, schema in tables(rng, times(150, soak=5_000)):
        writer = ProtobufWriter(columns, schema, 7)
        in_c = writer.compiled
        for _ in range(20):
            row = random_rows.row(rng, columns)
            found = in_c.encode(row)
            if found is None:
                declined += 1
            else:
                taken += 1
                assert (found, ()) == (_written(writer, row), writer.null_documents(row)), (SEED, columns, row)
    assert taken > declined / 2, "declining everything would be right, too"


def test_values_are_read_alike_or_declined() -> None:
    rng = random.Random(SEED)
    taken = declined = 0
    for columns, schema in tables(rng, times(150, soak=5_000)):
        writer, reader = ProtobufWriter(columns, schema, 7), ProtobufReader(schema)
        for _ in range(20):
            value = _written(writer, random_rows.row(rng, columns))
            for each in [] if value is None else [value, *_damaged(rng, value)]:
                found, expected = reader.in_c(each), _read(reader, each)
                if found is None:
                    declined += 1
                else:
                    taken += 1
                    assert found == expected, (SEED, columns, each)
    assert taken > declined / 4, "declining everything would be right, too"


def _damaged(rng: random.Random, value: bytes) -> Iterator[bytes]:
    if len(value) > 5:
        flipped = bytearray(value)
        flipped[rng.randrange(5, len(value))] ^= 1 << rng.randrange(8)
        yield bytes(flipped)
        yield value[: rng.randrange(5, len(value))]
        yield value + rng.randbytes(1)


def _written(writer: ProtobufWriter, row: Row) -> bytes | None:
    try:
        return writer.encode(row)
    except NOT_ENCODABLE:
        return None


def _read(reader: ProtobufReader, value: bytes) -> bytes | None:
    try:
        return reader.in_python(value)
    except ValueError:
        return None
