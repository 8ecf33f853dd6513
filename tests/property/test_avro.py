"""Avro values are read as the JSON of the same rows, byte for byte, and by a foreign reader as what the rows held."""

from __future__ import annotations

import io
import json
import os
import random
import struct
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import fastavro
import psycopg
import pytest

from cdc.contract.change import Column
from cdc.contract.formats.avro.reader import AvroReader
from cdc.contract.formats.avro.schema import avro_schema
from cdc.contract.formats.avro.types import avro_type
from cdc.contract.formats.avro.writer import AvroWriter
from cdc.contract.formats.json_format import JSON
from cdc.contract.formats.names import mangled
from cdc.contract.formats.registered import Beyond
from cdc.contract.pgtypes import sql_type
from tests.support.servers import Database
from tests.support.soak import times
from tests.support.value_catalogue import (
    Catalogue,
    Type,
    definition_of,
    printed_catalogue,
    random_row,
    random_table,
)

SEED = int(os.environ.get("SEED", str(random.SystemRandom().randrange(1 << 32))))
_ID: Final = 70_000


@pytest.fixture
def catalogue(database: Database) -> Iterator[Catalogue]:
    with printed_catalogue(database, SEED) as found:
        yield found


def schema_of(columns: Sequence[Column], key: tuple[str, ...] = (), *, beyond: Beyond = "text") -> str:
    return avro_schema(definition_of(columns, key), "the-bridge", beyond=beyond)


def foreign_row(schema: str, value: bytes) -> dict[str, Any]:
    """What fastavro reads; it has to read all of it."""
    parsed = fastavro.parse_schema(json.loads(schema))
    rest = io.BytesIO(value[5:])
    row = fastavro.schemaless_reader(rest, parsed, None)
    assert not rest.read()
    assert isinstance(row, dict)
    return row


def test_without_texts_a_value_is_the_same_or_is_refused(catalogue: Catalogue) -> None:
    refused: dict[str, list[bytes]] = {}
    for name, each in catalogue.types.items():
        columns = [each.column("c")]
        schema = schema_of(columns, beyond="refuse")
        (field,) = json.loads(schema)["fields"]
        assert field["type"] == ["null", avro_type(sql_type(columns[0])).schema]
        writer, reader, json_writer = AvroWriter(columns, schema, _ID), AvroReader(schema), JSON.writer(columns)
        holding = AvroWriter(columns, schema_of(columns), _ID)
        for text in each.texts:
            held = holding.encode((text,))
            if problem := writer.problem(0, text):
                with pytest.raises(ValueError, match=r"topics\.beyond: text"):
                    writer.encode((text,))
                assert "topics.beyond: text" in problem
                assert held[5:6] == b"\x04"
                refused.setdefault(name, []).append(text)
            else:
                assert writer.encode((text,)) == held, f"{name} {text!r}"
                assert reader.json(held) == json_writer.encode((text,)), f"{name} {text!r}"
    assert refused["date"] == [text for text in catalogue.types["date"].texts if len(text) != 10]
    assert refused["time"] == refused["time(3)"] == [b"24:00:00"]
    assert refused["numeric(12,3)"] == [b"NaN"]
    assert refused["integer[]"] == [b"{{1,2},{3,4}}", b"[0:2]={7,8,9}", b"{{{1}}}"]
    assert refused["jsonb[]"] == [b'{"null",NULL}', b"{{1,2},{3,4}}"]
    assert {"timestamp", "timestamptz", "mood[]", "text[]", "box[]", "numeric(6,2)[]"} <= set(refused)
    assert not {"boolean", "integer", "real", "double precision", "numeric", "text", "interval", "uuid"} & set(refused)


def test_a_foreign_reader_reads_the_same_rows(catalogue: Catalogue) -> None:
    rng = random.Random(SEED)
    for _ in range(times(30, soak=600)):
        types, columns, key = random_table(rng, catalogue)
        schema = schema_of(columns, key)
        row = random_row(rng, types, columns, key)
        found = foreign_row(schema, AvroWriter(columns, schema, _ID).encode(row))
        assert list(found) == [mangled(column.name) for column in columns], f"SEED={SEED}"
        for each, cell, value in zip(types, row, found.values(), strict=True):
            expected = None if cell is None else Foreign(catalogue, each).value(cell)  # type: ignore[arg-type]
            assert repr(value) == repr(expected), f"SEED={SEED} {each.name} {cell!r}"


def test_a_foreign_reader_reads_every_value(catalogue: Catalogue) -> None:
    for name, each in catalogue.types.items():
        columns = [each.column("c")]
        schema, foreign = schema_of(columns), Foreign(catalogue, each)
        writer = AvroWriter(columns, schema, _ID)
        for text in each.texts:
            (value,) = foreign_row(schema, writer.encode((text,))).values()
            expected = foreign.value(text)
            assert repr(value) == repr(expected), f"{name} {text!r}"  # so that NaN equals NaN, and -0 not 0


class Foreign:
    """What a foreign reader should find for a text, by what the server and psycopg say of it."""

    def __init__(self, catalogue: Catalogue, of: Type) -> None:
        self._connection = catalogue.connection
        self._type = of
        self._form = avro_type(sql_type(of.column("c"))).schema

    def value(self, text: bytes) -> Any:
        if not isinstance(self._form, dict) or self._form["type"] != "array":
            return self._of(self._form, text.decode(), self._type.name)
        element = self._form["items"][1]
        if self._type.name == "texts":  # a domain over an array
            base, of_elements = "text[]", "text"
        else:
            base, of_elements = self._type.name, self._type.name.removesuffix("[]")
        ((is_flat, elements),) = self._connection.execute(
            f"SELECT coalesce(array_ndims(v), 0) IN (0, 1) AND coalesce(array_lower(v, 1), 1) = 1,"
            # format() rather than a cast, which takes the blanks from a char(n); num_nonnulls() tells (,) from NULL
            f" ARRAY(SELECT CASE num_nonnulls(v[n]) WHEN 1 THEN format('%%s', v[n]) END"
            f" FROM generate_subscripts(v, 1) n ORDER BY n)"
            f" FROM (SELECT %s::text::{base} v) x".encode(),
            (text.decode(),),
        ).fetchall()
        if not is_flat or (base.startswith("json") and any((each or "").strip() == "null" for each in elements)):
            return text.decode()
        try:
            return [
                None if each is None else self._of(element, each, of_elements, is_element=True) for each in elements
            ]
        except OverflowError:
            return text.decode()

    def _of(self, form: Any, text: str, sql_name: str, *, is_element: bool = False) -> Any:
        if form == "string":
            return text
        if form == "float":
            return struct.unpack("<f", struct.pack("<f", self._of("double", text, "double precision")))[0]
        try:
            with self._connection.transaction():
                # In text form, as the stream has it
                ((value,),) = self._connection.execute(f"SELECT %s::text::{sql_name}".encode(), (text,)).fetchall()
        except psycopg.DataError as error:  # psycopg, too, holds only years from 1 to 9999
            if is_element:
                raise OverflowError from error
            return text
        if isinstance(value, Decimal) and not value.is_finite():
            if is_element:
                raise OverflowError
            return text
        if text.startswith("24:"):  # psycopg has another opinion on midnight than PostgreSQL
            if is_element:
                raise OverflowError
            return text
        return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo is not None else value
