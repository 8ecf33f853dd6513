"""Rows in Debezium's form are read as the JSON of the same rows, byte for byte, or are refused; in C as in Python."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Final

import pytest

from cdc.contract.change import Column, Relation, ReplicaIdentity, Row
from cdc.contract.debezium_modes import modes_of
from cdc.contract.formats.debezium.rows import DebeziumReader, DebeziumWriter
from cdc.contract.formats.debezium.types import debezium_type
from cdc.contract.formats.json_format import JSON
from cdc.contract.pgtypes import sql_type
from cdc.contract.record import DebeziumModes
from cdc.contract.schema import table_schema
from tests.support.servers import Database
from tests.support.soak import times
from tests.support.type_catalogue import VALUE_TYPES
from tests.support.value_catalogue import Catalogue, Type, printed_catalogue

SEED = int(os.environ.get("SEED", str(random.SystemRandom().randrange(1 << 32))))
_NAMES: Final = ("c", "C", "é", "%s", "%", "a b", "\\", '"', "before")
_MORE: Final[dict[str, tuple[str, ...]]] = {
    "numeric(5,0)": ("0", "-99999", "99999", "NaN", "-128", "128", "127", "-129"),
    "numeric(3,3)": ("0.999", "-0.001", "0"),
    "numeric(3,5)": ("0.00999", "NaN"),
    "numeric(3,-2)": ("12300", "NaN", "0"),
    "numeric(1000,500)": ("9" * 500 + "." + "9" * 500, "-0." + "0" * 499 + "1"),
    "bit(1)": ("0", "1"),
    "bit(9)": ("000000001", "100000000", "000000000"),
    "time(3)": ("23:59:59.999", "24:00:00", "00:00:00.1"),
    "time(0)": ("23:59:59",),
    "date": ("9999-12-31", "10000-01-01", "0001-12-31 BC", "1969-12-31", "1970-01-01"),
    "timestamp(0)": ("1969-12-31 23:59:59",),
    "timestamp": ("0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "10000-01-01", "1969-12-31 23:59:59.5"),
    "timestamptz": ("0001-01-01 00:00:00Z", "9999-12-31 23:59:59.999999Z", "1969-12-31 23:59:59.999999Z"),
    "timestamptz(0)": ("2026-01-01 00:00:00Z",),
    "timestamptz(2)": ("2026-01-01 00:00:00.1Z",),
    "interval": ("-1 years -2 mons +3 days -04:05:06", "1000:00:00", "-1 mons +1 day", "-04:05:06.7", "11 mons"),
    "interval day to second(3)": ("3 days 04:05:06.789",),
    "numeric(6,2)[]": ("{1.10,NULL,-2.00}", "{}", "{{1.00}}", "[2:3]={1.00,NaN}"),
    "numeric[]": ("{1.10,NaN,1e50}", "{1.10}"),
    "date[]": ("{2026-01-01,NULL}", "{infinity}"),
    "time[]": ("{10:00,24:00}", "{10:00:00.5}"),
    "timestamp[]": ('{"2026-01-01 00:00:00.123"}', "{-infinity}"),
    "timestamptz[]": ('{"2026-01-01 00:00:00+00",NULL}',),
    "interval[]": ('{"1 day","-1 mons"}',),
    "real[]": ("{1e-45,3.3,NaN,NULL}", "{{1,2}}"),
    "bigint[]": ("{-9223372036854775808,NULL,9223372036854775807}", "[5:5]={1}", "{}"),
    "boolean[]": ("[5:6]={t,f}", "{{t},{f}}", "{t,NULL}"),
    "json[]": ('{"{\\"a\\" : 1}"," 7 "}', '{" null "}', '{"\\"\\\\ud800\\""}'),
    "bit(3)[]": ("{010,NULL}",),
    "box[]": ("{}", "{(1,1),(0,0);(2,2),(1,1)}", "{NULL}"),
    "bytea[]": ("{}", '{"\\\\x00ff",""}'),
    "money[]": ('{"$1,234.11"}',),
    "mood[]": ("{}", "{NULL}", "[2:2]={ok}"),
}  # fmt: skip
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
    with printed_catalogue(database, SEED, _MORE) as found:
        yield found


def reader_of(columns: Sequence[Column], modes: DebeziumModes) -> DebeziumReader:
    relation = Relation(7, "My schema", "1 table", ReplicaIdentity.DEFAULT, tuple(columns))
    return DebeziumReader(table_schema(relation, (columns[0].name,), "t"), modes)


def random_table(rng: random.Random, catalogue: Catalogue) -> tuple[list[Type], list[Column]]:
    types = rng.choices([*catalogue.types.values()], k=rng.randint(1, 12))
    return types, [each.column(rng.choice(_NAMES) + str(i)) for i, each in enumerate(types)]


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
        types, columns = random_table(rng, catalogue)
        modes = rng.choice(ALL_MODES)
        writer, reader, json_writer = DebeziumWriter(columns, modes), reader_of(columns, modes), JSON.writer(columns)
        compiled = writer.compiled
        for _ in range(rng.randint(1, 20)):
            row: Row = tuple(None if rng.random() < 0.2 else rng.choice(each.texts) for each in types)
            try:
                value = writer.encode(row)
            except ValueError:
                assert any(writer.problem(place, cell) for place, cell in enumerate(row) if isinstance(cell, bytes))
                continue
            assert reader.json(value) == json_writer.encode(row), f"SEED={SEED} {columns} {row}"
            assert compiled is None or compiled.encode(row) in (value, None), f"SEED={SEED} {columns} {row}"
            read += 1
    assert read > 0


def test_damaged_rows_are_refused_or_are_rows(catalogue: Catalogue) -> None:
    rng = random.Random(SEED)
    refused = 0
    for _ in range(times(60, soak=2_000)):
        types, columns = random_table(rng, catalogue)
        modes = rng.choice(ALL_MODES)
        writer, reader = DebeziumWriter(columns, modes), reader_of(columns, modes)
        try:
            value = writer.encode(tuple(rng.choice(each.texts) for each in types))
        except ValueError:
            continue
        damaged = [value[:length] for length in range(len(value))][-300:]
        for _ in range(200):
            flipped = bytearray(value)
            for _ in range(rng.choice((1, 1, 2, 5))):
                flipped[rng.randrange(len(value))] = rng.choice((rng.randrange(256), *b'"[]{},:0-9enT'))
            damaged.append(bytes(flipped))
        for each in damaged:
            try:
                found = reader.json(each)
            except ValueError:
                refused += 1
            except Exception as error:  # noqa: BLE001 - that is what must not happen
                pytest.fail(f"SEED={SEED} {type(error).__name__} {error}: {columns} {each!r}")
            else:
                assert (found[:1], found[-1:]) == (b"{", b"}"), f"SEED={SEED}"
    assert refused > 0


def test_each_type_has_connects_schema(catalogue: Catalogue) -> None:
    for each in catalogue.types.values():
        for modes in ALL_MODES:
            schema = debezium_type(sql_type(each.column("c")), modes).schema
            assert schema["type"] in {
                "boolean", "int16", "int32", "int64", "float", "double", "string", "bytes", "array", "struct", "map",
            }  # fmt: skip


def test_the_catalogue_is_tried_whole(catalogue: Catalogue) -> None:
    assert set(catalogue.types) >= {*VALUE_TYPES, *_MORE}
