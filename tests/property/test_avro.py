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

from cdc.contract.change import Column, Relation, ReplicaIdentity, Row
from cdc.contract.formats.avro.reader import AvroReader
from cdc.contract.formats.avro.schema import avro_schema
from cdc.contract.formats.avro.types import avro_type
from cdc.contract.formats.avro.writer import AvroWriter
from cdc.contract.formats.json_format import JSON
from cdc.contract.formats.names import mangled
from cdc.contract.formats.registered import Beyond, head
from cdc.contract.pgtypes import sql_type
from cdc.contract.schema import table_schema
from tests.support.servers import Database
from tests.support.soak import times
from tests.support.type_catalogue import VALUE_TYPES
from tests.support.value_catalogue import Catalogue, Type, printed_catalogue

SEED = int(os.environ.get("SEED", str(random.SystemRandom().randrange(1 << 32))))
_ID: Final = 70_000
_NAMES: Final = ("c", "C", "é", "%s", "%", "a b", "\\", '"', "_u5f_", "1", "_ué")
_MORE: Final[dict[str, tuple[str, ...]]] = {
    "numeric(5,0)": ("0", "-99999", "99999", "NaN"),
    "numeric(3,3)": ("0.999", "-0.001", "0"),
    "numeric(3,5)": ("0.00999", "NaN"),
    "numeric(3,-2)": ("12300", "NaN"),
    "numeric(1000,500)": ("9" * 500 + "." + "9" * 500, "-0." + "0" * 499 + "1"),
    "numeric(19,4)": ("92233720368547.7580", "-92233720368547.7581", "12.8", "-12.8", "0.0128", "0.0127"),
    "time(3)": ("23:59:59.999", "24:00:00", "00:00:00.1"),
    "date": ("9999-12-31", "10000-01-01", "0001-12-31 BC", "1969-12-31", "1970-01-01"),
    "timestamp": (
        "0001-01-01 00:00:00",
        "9999-12-31 23:59:59.999999",
        "10000-01-01",
        "0001-12-31 BC",
        "1969-12-31 23:59:59.5",
    ),
    "timestamptz": (
        "0001-01-01 00:00:00Z",
        "9999-12-31 23:59:59.999999Z",
        "10000-01-01Z",
        "1969-12-31 23:59:59.999999Z",
    ),
    "numeric(6,2)[]": ("{1.10,NULL,-2.00}", "{}", "{{1.00}}", "[2:3]={1.00,NaN}"),
    "numeric[]": ("{1.10,NaN,1e50}",),
    "date[]": ("{2026-01-01,NULL}", "{infinity}", '{"0044-03-15 BC"}'),
    "time[]": ("{10:00,24:00}", "{10:00:00.5}"),
    "timestamp[]": ('{"2026-01-01 00:00:00.123"}', "{-infinity}"),
    "timestamptz[]": ('{"2026-01-01 00:00:00+00",NULL}', '{"0044-03-15 00:00:00+00 BC"}'),
    "real[]": ("{1e-45,3.3,NaN,NULL}", "{{1,2}}"),
    "bigint[]": ("{-9223372036854775808,NULL,9223372036854775807,63,64,-64,-65,8191,8192}",),
    "boolean[]": ("[5:6]={t,f}", "{{t},{f}}"),
    "json[]": ('{"{\\"a\\" : 1}"," 7 "}', '{" null "}', '{"\\"\\\\ud800\\""}'),
    "char(3)[]": ('{ab,NULL,""}',),
    '"char"[]': ("{a,b}",),
    "name[]": ("{a,null}",),
    "box[]": ("{}", "[3:3]={(1,1),(0,0)}", "{NULL}"),
    "int2vector[]": ('{"1 2","3"}',),
    "interval[]": ('{"1 day","-1 mons"}',),
    "mood[]": ("{}", "{NULL}", "[2:2]={ok}"),
    "bytea[]": ("{}", "[2:2]={NULL}"),
}  # fmt: skip


@pytest.fixture
def catalogue(database: Database) -> Iterator[Catalogue]:
    with printed_catalogue(database, SEED, _MORE) as found:
        yield found


def schema_of(columns: Sequence[Column], key: tuple[str, ...] = (), *, beyond: Beyond = "text") -> str:
    relation = Relation(7, "My schema", "1 table", ReplicaIdentity.DEFAULT, tuple(columns))
    return avro_schema(table_schema(relation, key, "t"), "the-bridge", beyond=beyond)


def foreign_row(schema: str, value: bytes) -> dict[str, Any]:
    """What fastavro reads; it has to read all of it."""
    parsed = fastavro.parse_schema(json.loads(schema))
    rest = io.BytesIO(value[5:])
    row = fastavro.schemaless_reader(rest, parsed, None)
    assert not rest.read()
    assert isinstance(row, dict)
    return row


def random_table(rng: random.Random, catalogue: Catalogue) -> tuple[list[Type], list[Column], tuple[str, ...]]:
    types = rng.choices([*catalogue.types.values()], k=rng.randint(1, 12))
    columns = [each.column(rng.choice(_NAMES) + str(i)) for i, each in enumerate(types)]
    return types, columns, tuple(column.name for column in columns if rng.random() < 0.2)


def random_row(rng: random.Random, types: Sequence[Type], columns: Sequence[Column], key: tuple[str, ...]) -> Row:
    return tuple(
        None if column.name not in key and rng.random() < 0.2 else rng.choice(each.texts)
        for each, column in zip(types, columns, strict=True)
    )


@pytest.mark.parametrize("key", [(), ("c",)], ids=["value", "key"])
def test_every_value_is_read_as_json_has_it(catalogue: Catalogue, key: tuple[str, ...]) -> None:
    for name, each in catalogue.types.items():
        columns = [each.column("c")]
        schema = schema_of(columns, key)
        writer, reader, json_writer = AvroWriter(columns, schema, _ID), AvroReader(schema), JSON.writer(columns)
        for text in each.texts:
            value = writer.encode((text,))
            assert value.startswith(head(_ID))
            assert reader.json(value) == json_writer.encode((text,)), f"{name} {text!r}"
            assert writer.problem(0, text) == ""
            assert writer.null_documents((text,)) == json_writer.null_documents((text,))


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


def test_random_rows_are_read_as_json_has_them(catalogue: Catalogue) -> None:
    rng = random.Random(SEED)
    for _ in range(times(60, soak=2_000)):
        types, columns, key = random_table(rng, catalogue)
        schema = schema_of(columns, key)
        writer, reader, json_writer = AvroWriter(columns, schema, _ID), AvroReader(schema), JSON.writer(columns)
        for _ in range(rng.randint(1, 20)):
            row = random_row(rng, types, columns, key)
            assert reader.json(writer.encode(row)) == json_writer.encode(row), f"SEED={SEED} {schema} {row}"


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


def test_damaged_values_are_refused_or_are_rows(catalogue: Catalogue) -> None:
    rng = random.Random(SEED)
    refused = read = 0
    for _ in range(times(60, soak=2_000)):
        types, columns, key = random_table(rng, catalogue)
        schema = schema_of(columns, key, beyond=rng.choice(("refuse", "text")))
        writer, reader = AvroWriter(columns, schema, _ID), AvroReader(schema)
        try:
            value = writer.encode(random_row(rng, types, columns, key))
        except ValueError:
            continue
        damaged = [value[:length] for length in range(len(value))][-400:]
        for _ in range(300):
            flipped = bytearray(value)
            for _ in range(rng.choice((1, 1, 1, 2, 5))):
                flipped[rng.randrange(len(value))] = rng.choice((rng.randrange(256), 0xFF, 0x80, 0, 1, 2, 4))
            damaged.append(bytes(flipped))
        damaged.append(value + rng.randbytes(rng.randint(1, 3)))
        for each in damaged:
            try:
                found = reader.json(each)
            except ValueError:
                refused += 1
            except Exception as error:  # noqa: BLE001 - that is what must not happen
                pytest.fail(f"SEED={SEED} {type(error).__name__} {error}: {schema} {each!r}")
            else:
                text = found.decode()
                assert (text[0], text[-1]) == ("{", "}"), f"SEED={SEED}"
                read += 1
    assert refused > 0
    assert read > 0


def test_the_catalogue_is_tried_whole(catalogue: Catalogue) -> None:
    assert set(catalogue.types) >= {*VALUE_TYPES, *_MORE}
    assert all(each.texts for each in catalogue.types.values())
