"""Rows of envelopes in Avro hold what those in JSON do, for a reader of others and for ours; in C as in Python.

The reader of others is fastavro. It knows nothing of a schema's properties, so what it finds is compared with the JSON
that Kafka Connect's converter makes of the same values.
"""

from __future__ import annotations

import base64
import io
import json
import math
import os
import random
import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final

import fastavro
import pytest

from cdc.contract.change import Column
from cdc.contract.formats.avro.fields import FieldsReader
from cdc.contract.formats.debezium.avro_rows import DebeziumAvroWriter, row_reader
from cdc.contract.formats.debezium.avro_schema import envelope_schema
from cdc.contract.formats.debezium.rows import DebeziumWriter
from cdc.contract.formats.json_format import JSON
from cdc.contract.record import DebeziumModes
from tests.property.test_debezium_values import ALL_MODES
from tests.support.servers import Database
from tests.support.soak import times
from tests.support.value_catalogue import (
    Catalogue,
    damaged,
    definition_of,
    printed_catalogue,
    random_row,
    random_table,
)

_MOST: Final = 3.5e38
"""No float of four bytes is so large."""
SEED: Final = int(os.environ.get("SEED", str(random.SystemRandom().randrange(1 << 32))))


@pytest.fixture
def catalogue(database: Database) -> Iterator[Catalogue]:
    with printed_catalogue(database, SEED) as found:
        yield found


class Side:
    """A table in certain modes: its writers in Avro and JSON, and its readers."""

    def __init__(self, columns: Sequence[Column], modes: DebeziumModes, key: tuple[str, ...] = ()) -> None:
        definition = definition_of(columns, key)
        text = envelope_schema(definition, modes)
        self.writer = DebeziumAvroWriter(columns, modes, text)
        self.in_json = DebeziumWriter(columns, modes)
        self.reader: FieldsReader = row_reader(definition, modes)
        self._schema = json.loads(text)["fields"][0]["type"][1]
        self._columns = columns

    def told(self, value: bytes) -> list[Any]:
        """What fastavro finds, as Connect's converter for JSON shows it."""
        body = io.BytesIO(value)
        found: Any = fastavro.schemaless_reader(body, fastavro.parse_schema(_bare(self._schema)), None)
        assert not body.read()
        return [_connect(each) for each in found.values()]

    def shown(self, value: bytes) -> list[Any]:
        """The same of the row in JSON."""
        return [*json.loads(value).values()]


def _bare(schema: Any) -> Any:
    """A schema without logical types: fastavro has no name for decimals of more digits than Python's context."""
    if isinstance(schema, dict):
        return {name: _bare(each) for name, each in schema.items() if name != "logicalType"}
    return [_bare(each) for each in schema] if isinstance(schema, list) else schema


def _connect(value: Any) -> Any:
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return {name: _connect(each) for name, each in value.items()}
        case list():
            return [_connect(each) for each in value]
        case float() if not math.isfinite(value):
            return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    return value


def _is_alike(told: Any, shown: Any) -> bool:
    """Whether two values are the same; a float of four bytes has fewer digits in JSON."""
    if isinstance(told, float) and isinstance(shown, int | float):
        return told == shown or (abs(told) < _MOST and _single(told) == _single(shown))
    if isinstance(told, list) and isinstance(shown, list):
        return len(told) == len(shown) and all(map(_is_alike, told, shown))
    return type(told) is type(shown) and bool(told == shown)


def _single(number: float) -> bytes:
    return struct.pack("<f", number)


@pytest.mark.parametrize("modes", ALL_MODES, ids=lambda modes: "-".join(map(str, modes[:4])))
def test_every_value_is_in_avro_what_it_is_in_json(catalogue: Catalogue, modes: DebeziumModes) -> None:
    held = 0
    for name, each in catalogue.types.items():
        columns = [each.column("c")]
        side, json_writer = Side(columns, modes), JSON.writer(columns)
        compiled = side.writer.compiled
        for text in each.texts:
            assert bool(side.writer.problem(0, text)) == bool(side.in_json.problem(0, text)), f"{name} {text!r}"
            if side.writer.problem(0, text):
                with pytest.raises(ValueError):  # noqa: PT011 - what it says is asked for with ``problem``
                    side.writer.encode((text,))
                assert compiled is None or compiled.encode((text,)) is None, f"{name} {text!r}"
                continue
            value = side.writer.encode((text,))
            assert compiled is None or compiled.encode((text,)) in (value, None), f"{name} {text!r}"
            told, shown = side.told(value), side.shown(side.in_json.encode((text,)))
            assert _is_alike(told, shown), f"{name} {text!r}: {told} {shown}"
            expected = json_writer.encode((text,)), len(value)
            assert side.reader.in_python(value, 0) == expected, f"{name} {text!r} {value!r}"
            assert side.reader.in_c(value, 0) in (expected, None), f"{name} {text!r} {value!r}"
            assert side.writer.null_documents((text,)) == json_writer.null_documents((text,))
            held += 1
    assert held > 100


def test_random_rows_are_read_as_json_has_them_and_damaged_ones_alike(catalogue: Catalogue) -> None:
    rng = random.Random(SEED)
    read = refused = 0
    for _ in range(times(30, soak=1_000)):
        types, columns, key = random_table(rng, catalogue)
        side, json_writer = Side(columns, rng.choice(ALL_MODES), key), JSON.writer(columns)
        compiled = side.writer.compiled
        for _ in range(10):
            row = random_row(rng, types, columns, key)
            try:
                value = side.writer.encode(row)
            except ValueError:
                continue
            assert compiled is None or compiled.encode(row) in (value, None), f"SEED={SEED} {columns} {row}"
            assert side.reader.read(value, 0) == (json_writer.encode(row), len(value)), f"SEED={SEED} {columns} {row}"
            read += 1
            if rng.random() < 0.9:
                continue
            for each in damaged(rng, value):
                refused += _is_refused(side.reader, each)
    assert read > 0
    assert refused > 0


def _is_refused(reader: FieldsReader, value: bytes) -> bool:
    """Whether a row is refused; in C it is then declined, and otherwise the same or declined."""
    try:
        expected = reader.in_python(value, 0)
    except ValueError:
        assert reader.in_c(value, 0) is None, f"SEED={SEED} {value!r}"
        return True
    assert reader.in_c(value, 0) in (expected, None), f"SEED={SEED} {value!r}"
    return False
