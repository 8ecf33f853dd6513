"""Protobuf values are read as the JSON of the same rows, byte for byte, and by Google's reader as the same rows."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import pytest

from cdc.contract.change import Column
from cdc.contract.formats.json_format import JSON
from cdc.contract.formats.protobuf.reader import ProtobufReader
from cdc.contract.formats.protobuf.schema import protobuf_schema, read_schema
from cdc.contract.formats.protobuf.wire import HEAD_BYTES
from cdc.contract.formats.protobuf.writer import ProtobufWriter
from cdc.contract.formats.registered import Beyond
from cdc.contract.json_members import member_texts
from cdc.lab.proof.protobuf_fields import compiled, reader_of
from cdc.lab.proof.server_text import FormError
from tests.support.servers import Database
from tests.support.soak import times
from tests.support.value_catalogue import Catalogue, damaged, definition_of, printed_catalogue, random_row, random_table

SEED = int(os.environ.get("SEED", str(random.SystemRandom().randrange(1 << 32))))
_ID: Final = 70_000


@pytest.fixture
def catalogue(database: Database) -> Iterator[Catalogue]:
    with printed_catalogue(database, SEED) as found:
        yield found


def schema_of(columns: Sequence[Column], key: tuple[str, ...] = (), *, beyond: Beyond = "text") -> str:
    return protobuf_schema(definition_of(columns, key), "the-bridge", beyond=beyond)


def test_without_texts_a_value_is_the_same_or_is_refused(catalogue: Catalogue) -> None:
    refused: dict[str, list[bytes]] = {}
    for name, each in catalogue.types.items():
        columns = [each.column("c")]
        schema, holding = schema_of(columns, beyond="refuse"), schema_of(columns)
        writer, reader, json_writer = ProtobufWriter(columns, schema, _ID), ProtobufReader(schema), JSON.writer(columns)
        with_texts = ProtobufWriter(columns, holding, _ID)
        (column,) = read_schema(holding).columns
        for text in each.texts:
            if problem := writer.problem(0, text):
                with pytest.raises(ValueError, match=r"topics\.beyond: text"):
                    writer.encode((text,))
                assert "topics.beyond: text" in problem
                made = compiled(holding).message()
                made.ParseFromString(with_texts.encode((text,))[HEAD_BYTES:])
                assert [field.number for field, _ in made.ListFields()] == [column.text_number]
                refused.setdefault(name, []).append(text)
            else:
                assert writer.encode((text,)) == with_texts.encode((text,)), f"{name} {text!r}"
                assert reader.json(writer.encode((text,))) == json_writer.encode((text,)), f"{name} {text!r}"
    assert refused["timestamptz"] == [text for text in catalogue.types["timestamptz"].texts if not is_plain(text)]
    assert refused["integer[]"] == [b"{{1,2},{3,4}}", b"[0:2]={7,8,9}", b"{{{1}}}"]
    assert refused["jsonb[]"] == [b'{"null",NULL}', b"{{1,2},{3,4}}"]
    assert {"mood[]", "text[]", "box[]", "timestamptz[]"} <= set(refused)
    assert {name for name in refused if not name.endswith("[]")} <= {"timestamptz", "texts", "timestamptz(3)"}


def is_plain(text: bytes) -> bool:
    """Whether a timestamp is in the years 1 to 9999."""
    return text[4:5] == b"-" and text[:4].isdigit() and not text.endswith(b"BC")


def test_random_rows_are_read_alike_by_us_and_by_google(catalogue: Catalogue) -> None:
    rng = random.Random(SEED)
    for _ in range(times(60, soak=1_000)):
        types, columns, key = random_table(rng, catalogue)
        if rng.random() < 0.5:  # numbers of columns that were added and dropped
            numbers = rng.sample(range(1, 1_600), len(columns))
            columns = [replace(each, number=number) for each, number in zip(columns, numbers, strict=True)]
        schema = schema_of(columns, key)
        writer, reader, json_writer = ProtobufWriter(columns, schema, _ID), ProtobufReader(schema), JSON.writer(columns)
        foreign = reader_of(schema)
        for _ in range(rng.randint(1, 20)):
            row = random_row(rng, types, columns, key)
            value = writer.encode(row)
            assert reader.json(value) == json_writer.encode(row), f"SEED={SEED} {schema} {row}"
            found = foreign(value[HEAD_BYTES - 1 :]) or {}
            assert [*found] == [column.name for column in columns]
            expected = member_texts(json_writer.encode(row).decode())
            for name, text in found.items():
                assert same(text, expected[name]), f"SEED={SEED} {name} {text!r} {expected[name]!r} {schema}"


def same(text: bytes, expected: str) -> bool:
    """Whether a foreign reader's text is the JSON, or the text of an array that is not flat."""
    if text.decode().strip() == expected:
        return True
    found, wanted = json.loads(text), json.loads(expected)
    return found == wanted or (isinstance(found, str) and found.startswith(("{", "[")) and isinstance(wanted, list))


def test_what_is_read_of_damaged_values_google_reads(catalogue: Catalogue) -> None:
    rng = random.Random(SEED)
    read = 0
    for _ in range(times(20, soak=600)):
        types, columns, key = random_table(rng, catalogue)
        schema = schema_of(columns, key)
        reader, foreign = ProtobufReader(schema), reader_of(schema)
        value = ProtobufWriter(columns, schema, _ID).encode(random_row(rng, types, columns, key))
        for each in (*damaged(rng, value), value + value[HEAD_BYTES:]):
            try:
                reader.json(each)
            except ValueError:
                continue
            read += 1
            try:
                foreign(each[HEAD_BYTES - 1 :])
            except FormError as error:
                pytest.fail(f"SEED={SEED} {error}: {schema} {each!r}")
    assert read > 0
