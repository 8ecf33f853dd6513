"""Values with a JSON Schema are the JSON of the same rows after a head, and a foreign validator takes each of them."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator, Sequence
from typing import Any

import jsonschema_rs
import pytest

from cdc.contract.change import Column
from cdc.contract.formats.format import NOT_ENCODABLE
from cdc.contract.formats.json_format import JSON
from cdc.contract.formats.json_schema.schema import json_schema
from cdc.contract.formats.json_schema.values import DescribedWriter
from cdc.contract.formats.registered import head
from cdc.contract.json_members import member_texts
from tests.support import random_rows
from tests.support.servers import Database
from tests.support.soak import times
from tests.support.value_catalogue import Catalogue, definition_of, printed_catalogue, random_row, random_table

SEED = int(os.environ.get("SEED", str(random.SystemRandom().randrange(1 << 32))))
_ID = 0x25FF0A00


@pytest.fixture
def catalogue(database: Database) -> Iterator[Catalogue]:
    with printed_catalogue(database, SEED) as found:
        yield found


def schema_of(columns: Sequence[Column], key: tuple[str, ...] = ()) -> str:
    return json_schema(definition_of(columns, key), "the-bridge", "refuse")


def validator(schema: str) -> jsonschema_rs.Draft7Validator:
    """Formats are checked, too, though draft 7 leaves that to the reader; draft 7 itself does not know uuid."""
    formats = {"uuid": lambda text: len(text) == 36 and text.count("-") == 4}
    return jsonschema_rs.Draft7Validator(json.loads(schema), formats=formats, validate_formats=True)


def parsed(row: bytes) -> dict[str, Any]:
    """The row, with nothing in place of documents that are too deep for Python."""
    found: dict[str, Any] = {}
    for name, text in member_texts(row.decode()).items():
        try:
            found[name] = json.loads(text)
        except RecursionError:
            found[name] = None
    return found


@pytest.mark.parametrize("key", [(), ("c",)], ids=["value", "key"])
def test_every_value_is_the_json_and_valid(catalogue: Catalogue, key: tuple[str, ...]) -> None:
    for name, each in catalogue.types.items():
        columns = [each.column("c")]
        schema = schema_of(columns, key)
        writer, json_writer = DescribedWriter(columns, schema, _ID), JSON.writer(columns)
        foreign = validator(schema)
        for text in each.texts:
            value, row = writer.encode((text,)), json_writer.encode((text,))
            assert value == head(_ID) + row
            assert foreign.is_valid(parsed(row)), f"{name} {text!r}"
        is_document = each.column("c").type_name in ("pg_catalog.json", "pg_catalog.jsonb")
        assert foreign.is_valid({"c": None}) is (not key or is_document), name
        assert not foreign.is_valid({"c": parsed(row)["c"], "d": 1}), "the row has no other columns"
        assert is_document or not foreign.is_valid({"c": {}}), name


def test_random_rows_are_valid(catalogue: Catalogue) -> None:
    rng = random.Random(SEED)
    for _ in range(times(60, soak=2_000)):
        types, columns, key = random_table(rng, catalogue)
        schema = schema_of(columns, key)
        writer, foreign, json_writer = DescribedWriter(columns, schema, _ID), validator(schema), JSON.writer(columns)
        for _ in range(rng.randint(1, 20)):
            row = random_row(rng, types, columns, key)
            value = writer.encode(row)
            assert value == head(_ID) + json_writer.encode(row), f"SEED={SEED} {row}"
            assert foreign.is_valid(parsed(value[5:])), f"SEED={SEED} {schema} {row}"


def test_values_are_written_in_c_alike_or_declined() -> None:
    rng = random.Random(SEED)
    taken = declined = 0
    for _ in range(times(60, soak=2_000)):
        columns = random_rows.columns(rng)
        writer = DescribedWriter(columns, schema_of(columns), rng.randrange(1 << 32))
        if (compiled := writer.compiled) is None:
            pytest.skip("nothing was compiled")
        for _ in range(20):
            row = random_rows.row(rng, columns)
            found = compiled.encode(row)
            if found is None:
                declined += 1
                continue
            taken += 1
            try:
                expected: bytes | None = writer.encode(row)
            except NOT_ENCODABLE:
                expected = None
            assert (found, ()) == (expected, writer.null_documents(row)), (SEED, columns, row)
    assert taken > declined, "declining everything would be right, too"
