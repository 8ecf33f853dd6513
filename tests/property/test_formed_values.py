"""Rows in other forms than JSON's default are read as the JSON of the same rows, byte for byte; in C as in Python."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, Final

import pytest

from cdc.contract.change import Column, Relation, ReplicaIdentity, Row
from cdc.contract.formats.formed.cells import OTHER_FORMS
from cdc.contract.formats.formed.rows import FormedReader, FormedWriter
from cdc.contract.formats.json_format import JSON
from cdc.contract.json_members import members
from cdc.contract.kinds import Kind, kind_of
from cdc.contract.pgtypes import sql_type
from cdc.contract.record import ColumnForm, TableSchema, ValueForms
from cdc.contract.schema import parse_schema, schema_value, table_schema
from tests.support.servers import Database
from tests.support.soak import times
from tests.support.type_catalogue import VALUE_TYPES
from tests.support.value_catalogue import Catalogue, Type, printed_catalogue

SEED = int(os.environ.get("SEED", str(random.SystemRandom().randrange(1 << 32))))
_FORMS: Final[tuple[ColumnForm, ...]] = ("iso", "number", "base64", "string")
_NAMES: Final = ("c", "C", "é", "%s", "%", "a b", "\\", '"', "payload")
_MORE: Final[dict[str, tuple[str, ...]]] = {
    "numeric": ("1.10", "0.1", "-0.10", "999999999999999", "9999999999999999", "123456789012345.6", "1e300", "1e-300",
                "1e-400", "1e-290", "0.00000000000000000001", "1.00000000000000000000", "NaN", "Infinity", "-1"),
    "numeric(3,-2)": ("12300", "NaN", "0"),
    "numeric(1000,500)": ("9" * 500 + "." + "9" * 500, "-0." + "0" * 499 + "1"),
    "timestamp": ("0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "10000-01-01", "294276-01-01", "0044-03-15 BC",
                  "-infinity"),
    "timestamptz": ("0001-01-01 00:00:00Z", "9999-12-31 23:59:59.9Z", "10000-01-01Z", "0044-03-15 BC", "infinity"),
    "timestamptz(0)": ("2026-01-01 00:00:00Z",),
    "numeric(6,2)[]": ("{1.10,NULL,-2.00}", "{}", "{{1.00},{NULL}}", "[2:3]={1.00,NaN}"),
    "numeric[]": ("{1.10,NaN,1e50,NULL}",),
    "timestamp[]": ('{"2026-01-01 00:00:00.123",-infinity,NULL}', '{{"2026-01-01 00:00:00"}}', "[0:0]={infinity}"),
    "timestamptz[]": ('{"2026-01-01 00:00:00+00",NULL}',),
    "json": (" null ", '  {"a" : 1}\n', '"null"', "null", '{"a":1,"a":2}', '"\\ud800"', "1.10", "[1,\t2]  "),
    "jsonb": ("null", '{"payload": {"a": 1}}', '"x"'),
    "json[]": ('{"{\\"a\\" : 1}"," 7 "}', '{" null ",NULL}', '{"\\"\\\\ud800\\""}', '{{"1"},{"[2]"}}', "[2:2]={1}"),
    "bytea[]": ("{}", '{"\\\\x00ff","",NULL}', '{{"\\\\x"}}'),
    "boolean[]": ("[5:6]={t,f}", "{{t},{f}}", "{t,NULL}"),
    "real[]": ("{1e-45,3.3,NaN,NULL}", "{{1,2}}"),
    "mood[]": ("{}", "{NULL}", "[2:2]={ok}"),
}  # fmt: skip


@pytest.fixture
def catalogue(database: Database) -> Iterator[Catalogue]:
    with printed_catalogue(database, SEED, _MORE) as found:
        yield found


def form_of(column: Column) -> ColumnForm:
    """The form that a column can have; empty if it has only the default one."""
    return OTHER_FORMS.get(kind_of(sql_type(column)).kind, "")


def formed(columns: Sequence[Column], forms: ValueForms) -> TableSchema:
    """The definition, as readers get it."""
    relation = Relation(7, "My schema", "1 table", ReplicaIdentity.DEFAULT, tuple(columns))
    made = table_schema(relation, (columns[0].name,), "t", forms)
    found = parse_schema(schema_value(made))
    assert found == made
    return found


def for_connect(columns: Sequence[Column]) -> ValueForms:
    """All forms that go together with Connect's schemas."""
    forms = {column.name: form_of(column) for column in columns}
    return ValueForms({name: form for name, form in forms.items() if form not in ("", "number")}, True)


def random_table(rng: random.Random, catalogue: Catalogue) -> tuple[list[Type], list[Column]]:
    types = rng.choices([*catalogue.types.values()], k=rng.randint(1, 12))
    return types, [each.column(rng.choice(_NAMES) + str(i)) for i, each in enumerate(types)]


def random_forms(rng: random.Random, columns: Sequence[Column]) -> ValueForms:
    if rng.random() < 0.3:
        return for_connect(columns)
    return ValueForms({each.name: form for each in columns if (form := form_of(each)) and rng.random() < 0.7})


def test_every_value_is_read_as_json_has_it(catalogue: Catalogue) -> None:
    tried: set[str] = set()
    for name, each in catalogue.types.items():
        columns = [each.column("c")]
        form = form_of(columns[0])
        schema = formed(columns, ValueForms({"c": form} if form else {}))
        writer, reader, json_writer = FormedWriter(columns, schema), FormedReader(schema), JSON.writer(columns)
        compiled = writer.compiled
        for text in each.texts:
            value, plain = writer.encode((text,)), json_writer.encode((text,))
            assert reader.json(value) == plain, f"{name} {text!r} {value!r}"
            assert compiled is None or compiled.encode((text,)) in (value, None), f"{name} {text!r}"
            assert writer.null_documents((text,)) == json_writer.null_documents((text,))
            assert writer.problem(0, text) == ""
            if not form:
                assert value == plain
            elif value != plain:
                tried.add(form)
    assert tried == set(_FORMS)


def test_a_number_comes_back_from_a_double_and_all_else_is_a_string(catalogue: Catalogue) -> None:
    numbers = strings = 0
    for name, each in catalogue.types.items():
        columns = [each.column("c")]
        if kind_of(sql_type(columns[0]))[:2] != (Kind.DECIMAL, False):
            continue
        writer = FormedWriter(columns, formed(columns, ValueForms({"c": "number"})))
        for text in each.texts:
            found = json.loads(writer.encode((text,)))["c"]
            if isinstance(found, str):
                strings += 1
                assert found == text.decode()
                assert text[-1:] in b"Ny" or len(text) > 15, name
            else:
                numbers += 1
                assert Decimal(repr(found)) == Decimal(text.decode()), f"{name} {text!r}"
    assert min(numbers, strings) > 10


def _fits(value: Any, field: dict[str, Any]) -> bool:
    """Whether Kafka's JsonConverter takes a value as it is."""
    if value is None:
        return bool(field["optional"])
    if field["type"] == "array":
        return isinstance(value, list) and all(_fits(each, field["items"]) for each in value)
    types: dict[str, type | tuple[type, ...]] = {
        "boolean": bool, "string": str, "bytes": str, "float": (int, float), "double": (int, float),
        "int16": int, "int32": int, "int64": int,
    }  # fmt: skip
    return isinstance(value, types[field["type"]])


def test_what_has_connects_schema_fits_it_or_is_refused(catalogue: Catalogue) -> None:
    refused: dict[str, list[bytes]] = {}
    for name, each in catalogue.types.items():
        columns = [each.column("id"), each.column("c")]
        schema = formed(columns, for_connect(columns))
        writer, reader, json_writer = FormedWriter(columns, schema), FormedReader(schema), JSON.writer(columns)
        compiled = writer.compiled
        for row in [(each.texts[0], text) for text in each.texts]:
            if any(writer.problem(place, text) for place, text in enumerate(row)):
                with pytest.raises(ValueError):  # noqa: PT011 - what it says is asked for with ``problem``
                    writer.encode(row)
                assert compiled is None or compiled.encode(row) is None
                refused.setdefault(name, []).append(row[1])
                continue
            value = writer.encode(row)
            assert reader.json(value) == json_writer.encode(row), f"{name} {row} {value!r}"
            assert compiled is None or compiled.encode(row) in (value, None)
            found = json.loads(value)
            assert [*found] == ["schema", "payload"]
            for field in found["schema"]["fields"]:
                assert _fits(found["payload"][field["field"]], field), f"{name} {value!r}"
    for name in ("boolean", "integer", "text", "jsonb", "uuid", "bytea", "numeric", "timestamptz", "inet"):
        assert name not in refused, refused[name]
    assert b"NaN" in refused["real"]
    assert {b"{{1,2},{3,4}}", b"[0:2]={7,8,9}"} <= set(refused["integer[]"])


def test_random_rows_are_read_as_json_has_them(catalogue: Catalogue) -> None:
    rng = random.Random(SEED)
    read = 0
    for _ in range(times(150, soak=5_000)):
        types, columns = random_table(rng, catalogue)
        schema = formed(columns, random_forms(rng, columns))
        writer, reader, json_writer = FormedWriter(columns, schema), FormedReader(schema), JSON.writer(columns)
        compiled = writer.compiled
        for _ in range(rng.randint(1, 20)):
            row: Row = tuple(None if rng.random() < 0.2 else rng.choice(each.texts) for each in types)
            try:
                value = writer.encode(row)
            except ValueError:
                assert any(writer.problem(place, cell) for place, cell in enumerate(row) if isinstance(cell, bytes))
                continue
            members(value)
            assert reader.json(value) == json_writer.encode(row), f"SEED={SEED} {columns} {row}"
            assert compiled is None or compiled.encode(row) in (value, None), f"SEED={SEED} {columns} {row}"
            read += 1
    assert read > 0


def test_damaged_rows_are_refused_or_are_rows(catalogue: Catalogue) -> None:
    rng = random.Random(SEED)
    refused = 0
    for _ in range(times(60, soak=2_000)):
        types, columns = random_table(rng, catalogue)
        schema = formed(columns, random_forms(rng, columns))
        writer, reader = FormedWriter(columns, schema), FormedReader(schema)
        try:
            value = writer.encode(tuple(rng.choice(each.texts) for each in types))
        except ValueError:
            continue
        damaged = [value[:length] for length in range(len(value))][-300:]
        for _ in range(200):
            flipped = bytearray(value)
            for _ in range(rng.choice((1, 1, 2, 5))):
                flipped[rng.randrange(len(value))] = rng.choice((rng.randrange(256), *b'"[]{},:0-9enTZ'))
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


def test_the_forms_are_in_the_fingerprint() -> None:
    columns = [Column("id", 23, -1, "pg_catalog.int4", True), Column("n", 1700, -1, "pg_catalog.numeric", False)]
    forms = (ValueForms(), ValueForms({"n": "number"}), ValueForms({}, True))
    assert len({formed(columns, each).fingerprint for each in forms}) == len(forms)


def test_the_catalogue_is_tried_whole(catalogue: Catalogue) -> None:
    assert set(catalogue.types) >= {*VALUE_TYPES, *_MORE}
