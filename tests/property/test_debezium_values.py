"""Rows in Debezium's form are read as the JSON of the same rows, byte for byte, or are refused; in C as in Python."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Final

import pytest

from cdc.contract.change import Column
from cdc.contract.debezium_modes import modes_of
from cdc.contract.formats.debezium.rows import DebeziumReader, DebeziumWriter
from cdc.contract.formats.debezium.types import debezium_type
from cdc.contract.formats.json_format import JSON
from cdc.contract.pgtypes import sql_type
from cdc.contract.record import DebeziumModes
from tests.support.servers import Database
from tests.support.soak import times
from tests.support.value_catalogue import Catalogue, definition_of, printed_catalogue, random_row, random_table

SEED = int(os.environ.get("SEED", str(random.SystemRandom().randrange(1 << 32))))
ALL_MODES: Final = [
    modes_of(".".join((decimal, time, binary, hstore, "plain")))
    for decimal, (time, binary, hstore) in product(
        ("precise", "string"),
        (
            ("adaptive", "bytes", "json"),
            ("adaptive_time_microseconds", "base64", "map"),
            ("isostring", "base64-url-safe", "json"),
            ("microseconds", "hex", "map"),
            ("nanoseconds", "bytes", "json"),
        ),
    )
]


@pytest.fixture
def catalogue(database: Database) -> Iterator[Catalogue]:
    with printed_catalogue(database, SEED) as found:
        yield found


def reader_of(columns: Sequence[Column], modes: DebeziumModes) -> DebeziumReader:
    return DebeziumReader(definition_of(columns, (columns[0].name,)), modes)


@pytest.mark.parametrize("modes", ALL_MODES, ids=lambda modes: "-".join(map(str, modes[:4])))
def test_every_value_is_read_as_json_has_it_or_is_refused(catalogue: Catalogue, modes: DebeziumModes) -> None:
    refused: dict[str, list[bytes]] = {}
    for name, each in catalogue.types.items():
        columns = [each.column("c")]
        writer, reader, json_writer = DebeziumWriter(columns, modes), reader_of(columns, modes), JSON.writer(columns)
        compiled = writer.compiled
        for text in each.texts:
            if writer.problem(0, text):
                with pytest.raises(ValueError):  # noqa: PT011 - what it says is asked for with ``problem``
                    writer.encode((text,))
                assert compiled is None or compiled.encode((text,)) is None
                refused.setdefault(name, []).append(text)
                continue
            value = writer.encode((text,))
            json.loads(value)
            assert compiled is None or compiled.encode((text,)) in (value, None), f"{name} {text!r}"
            assert reader.json(value) == json_writer.encode((text,)), f"{name} {text!r} {value!r}"
            assert writer.null_documents((text,)) == json_writer.null_documents((text,))
    for name in ("boolean", "integer", "real", "text", "jsonb", "uuid", "bytea", "bit(5)", "money", "timetz", "inet"):
        assert name not in refused, refused[name]
    assert ("numeric(12,3)" in refused) == (modes.decimal == "precise")
    assert refused["integer[]"] == [b"{{1,2},{3,4}}", b"[0:2]={7,8,9}", b"{{{1}}}"]
    assert {b"infinity", b"0001-12-31 BC"} <= set(refused["date"])
    assert ("time" in refused) == (modes.time == "isostring")


def test_random_rows_are_read_as_json_has_them(catalogue: Catalogue) -> None:
    rng = random.Random(SEED)
    read = 0
    for _ in range(times(100, soak=3_000)):
        types, columns, _ = random_table(rng, catalogue)
        modes = rng.choice(ALL_MODES)
        writer, reader, json_writer = DebeziumWriter(columns, modes), reader_of(columns, modes), JSON.writer(columns)
        compiled = writer.compiled
        for _ in range(rng.randint(1, 20)):
            row = random_row(rng, types, columns, ())
            try:
                value = writer.encode(row)
            except ValueError:
                assert any(writer.problem(place, cell) for place, cell in enumerate(row) if isinstance(cell, bytes))
                continue
            assert reader.json(value) == json_writer.encode(row), f"SEED={SEED} {columns} {row}"
            assert compiled is None or compiled.encode(row) in (value, None), f"SEED={SEED} {columns} {row}"
            read += 1
    assert read > 0


def test_each_type_has_connects_schema(catalogue: Catalogue) -> None:
    for each in catalogue.types.values():
        for modes in ALL_MODES:
            schema = debezium_type(sql_type(each.column("c")), modes).schema
            assert schema["type"] in {
                "boolean", "int16", "int32", "int64", "float", "double", "string", "bytes", "array", "struct", "map",
            }  # fmt: skip
