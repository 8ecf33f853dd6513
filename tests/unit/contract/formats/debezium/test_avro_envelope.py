"""Debezium's envelope in Avro: the schema that Apicurio's converter registers for it, and values by that schema."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any, Final

import fastavro
import pytest

from cdc.base.errors import RegistryRefused
from cdc.base.lsn import LSN
from cdc.contract.change import Column, Relation, ReplicaIdentity
from cdc.contract.formats.debezium.avro_schema import envelope_name, envelope_schema, misread_events
from cdc.contract.formats.debezium.envelope import EnvelopeMaker
from cdc.contract.formats.opener import ValueOpener
from cdc.contract.formats.registered import registered
from cdc.contract.header import HeaderStamp
from cdc.contract.record import DebeziumModes, SchemaColumn, TableSchema, WrittenSchema
from cdc.contract.schema import table_schema

_COLUMNS: Final = (
    Column("id", 23, -1, "pg_catalog.int4", True),
    Column("v", 25, -1, "pg_catalog.text", False),
    Column("n", 1700, -1, "pg_catalog.numeric", False),
    Column("p", 1700, (10 << 16 | 2) + 4, "pg_catalog.numeric", False),
)
_MODES: Final = DebeziumModes()
_NOW: Final = 1795823637293877963
_REGISTERED: Final[dict[str, Any]] = {
    "type": "record", "name": "Envelope", "namespace": "my_shop.public.t",
    "fields": [
        {"name": "before", "type": ["null", {
            "type": "record", "name": "Value", "namespace": "my_shop.public.t",
            "fields": [
                {"name": "id", "type": "int"},
                {"name": "n", "type": ["null", {
                    "type": "bytes", "scale": 2, "precision": 10, "connect.version": 1,
                    "connect.parameters": {"scale": "2", "connect.decimal.precision": "10"},
                    "connect.name": "org.apache.kafka.connect.data.Decimal", "logicalType": "decimal",
                }], "default": None},
                {"name": "v", "type": ["null", {
                    "type": "record", "name": "VariableScaleDecimal", "namespace": "io.debezium.data",
                    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
                    "connect.doc": "Variable scaled decimal", "connect.version": 1,
                    "connect.name": "io.debezium.data.VariableScaleDecimal",
                }], "default": None},
                {"name": "va", "type": ["null", {
                    "type": "array", "items": ["null", "io.debezium.data.VariableScaleDecimal"],
                }], "default": None},
                {"name": "bits", "type": ["null", {
                    "type": "bytes", "connect.version": 1, "connect.parameters": {"length": "5"},
                    "connect.name": "io.debezium.data.Bits",
                }], "default": None},
                {"name": "sa", "type": ["null", {
                    "type": "array", "items": ["null", {"type": "int", "connect.type": "int16"}],
                }], "default": None},
                {"name": "m", "type": ["null", {
                    "type": "bytes", "scale": 2, "precision": 64, "connect.version": 1,
                    "connect.parameters": {"scale": "2"}, "connect.name": "org.apache.kafka.connect.data.Decimal",
                    "logicalType": "decimal",
                }], "default": None},
                {"name": "vec", "type": ["null", {
                    "type": "array", "items": "double", "connect.version": 1,
                    "connect.name": "io.debezium.data.DoubleVector",
                }], "default": None},
                {"name": "k", "type": {
                    "type": "string", "connect.version": 1, "connect.name": "io.debezium.data.Uuid",
                }},
            ],
            "connect.name": "my_shop.public.t.Value",
        }], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": {
            "type": "record", "name": "Source", "namespace": "io.debezium.connector.postgresql",
            "fields": [
                *({"name": name, "type": "string"} for name in ("version", "connector", "name")),
                {"name": "ts_ms", "type": "long"},
                {"name": "snapshot", "type": [{
                    "type": "string", "connect.version": 1,
                    "connect.parameters": {
                        "allowed": "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental",
                    },
                    "connect.default": "false", "connect.name": "io.debezium.data.Enum",
                }, "null"], "default": "false"},
                {"name": "db", "type": "string"},
                {"name": "sequence", "type": ["null", "string"], "default": None},
                *({"name": name, "type": ["null", "long"], "default": None} for name in ("ts_us", "ts_ns")),
                *({"name": name, "type": "string"} for name in ("schema", "table")),
                *({"name": name, "type": ["null", "long"], "default": None} for name in ("txId", "lsn", "xmin")),
                {"name": "origin", "type": ["null", "string"], "default": None},
                {"name": "origin_lsn", "type": ["null", "long"], "default": None},
            ],
            "connect.version": 1, "connect.name": "io.debezium.connector.postgresql.Source",
        }},
        {"name": "transaction", "type": ["null", {
            "type": "record", "name": "block", "namespace": "event",
            "fields": [
                {"name": "id", "type": "string"}, {"name": "total_order", "type": "long"},
                {"name": "data_collection_order", "type": "long"},
            ],
            "connect.version": 1, "connect.name": "event.block",
        }], "default": None},
        {"name": "op", "type": "string"},
        *({"name": name, "type": ["null", "long"], "default": None} for name in ("ts_ms", "ts_us", "ts_ns")),
    ],
    "connect.version": 2, "connect.name": "my_shop.public.t.Envelope",
}  # fmt: skip
"""What Apicurio's converter 2.6.13 made of the Connect schema of such a table."""


def table(*columns: tuple[str, str], key: tuple[str, ...] = ("id",), topic: str = "shop.public.t") -> TableSchema:
    """A definition with these columns and their types."""
    named = tuple(SchemaColumn(name, sql_type) for name, sql_type in (("id", "int4"), *columns))
    return TableSchema("f" * 16, "public", "t", topic, key, named)


def schema_of(sql_type: str, modes: DebeziumModes = _MODES) -> str:
    """The schema of a table with one column of this type beside its key."""
    return envelope_schema(table(("c", sql_type)), modes)


def definition(*, schema_id: int = 5, modes: DebeziumModes = _MODES) -> TableSchema:
    """The definition of a table that is written in Avro."""
    relation = Relation(7, "public", "f", ReplicaIdentity.DEFAULT, _COLUMNS)
    found = table_schema(relation, ("id",), "shop.public.f")
    text = envelope_schema(found, modes)
    return replace(found, envelope=modes, format="avro", written=(WrittenSchema(schema_id, text, "avro"),))


def made(op: str = "c", old: bytes | None = None, *, is_gone: bool = False) -> tuple[bytes, bytes]:
    """The value and the header of the first record of a change."""
    maker, of = EnvelopeMaker("shop", "source", "3.7.0.Final", lambda: _NOW), definition()
    maker.learn(of, _COLUMNS, _MODES)
    stamp = HeaderStamp(LSN(22905672), None if op == "r" else 770, 1795823636937943, "1:1:" if op == "r" else None)
    header = stamp.header(op, 1, of.fingerprint)
    value, marked = maker.values(b'{"id":201}', None if is_gone else row(), header, old)[0]
    assert value is not None
    return value, marked


def row(*cells: bytes | None) -> bytes:
    """A row in Avro."""
    given = cells or (b"201", "ü".encode(), b"2.50", b"-12.34")
    return registered("avro", _MODES).writer(_COLUMNS, definition().written[0].text, 5).encode(given)


def told(value: bytes) -> Any:
    """What fastavro reads."""
    body = io.BytesIO(value[5:])
    found = fastavro.schemaless_reader(body, fastavro.parse_schema(json.loads(definition().written[0].text)), None)
    assert not body.read()
    return found


def test_the_schema_is_the_one_that_the_converter_registers() -> None:
    columns = (
        ("n", "numeric(10,2)"), ("v", "numeric"), ("va", "numeric[]"), ("bits", "bit(5)"), ("sa", "int2[]"),
        ("m", "money"), ("vec", '"public"."vector"'), ("k", "uuid"),
    )  # fmt: skip
    of = table(*columns, key=("id", "k"), topic="my-shop.public.t")
    assert json.loads(envelope_schema(of, _MODES)) == _REGISTERED
    assert envelope_name(of) == "my_shop.public.t.Envelope"


def test_names_are_adjusted_as_debezium_does() -> None:
    found = envelope_schema(table(("a b", "text"), ("1st", "text"), ("a.b-𝔘", "text"), ("größe", "text")), _MODES)
    fields = json.loads(found)["fields"][0]["type"][1]["fields"]
    assert [each["name"] for each in fields] == ["id", "a_b", "_1st", "a_b___", "gr__e"]


def test_two_columns_with_one_name_are_refused() -> None:
    with pytest.raises(RegistryRefused, match="columns 'a b' and 'a_b' are both 'a_b' in Avro"):
        envelope_schema(table(("a b", "text"), ("a_b", "text")), _MODES)


@pytest.mark.parametrize("sql_type", ["numeric(5,-2)", "numeric(3,5)"])
def test_a_decimal_with_a_scale_that_avro_does_not_have_is_bytes_to_readers(sql_type: str) -> None:
    found = json.loads(schema_of(sql_type))
    fastavro.parse_schema(found)
    kind = found["fields"][0]["type"][1]["fields"][1]["type"][1]
    assert "logicalType" not in kind
    assert kind["connect.name"] == "org.apache.kafka.connect.data.Decimal"


@pytest.mark.parametrize(
    ("was", "now", "is_misread"),
    [
        ("text", "uuid", False),
        ("text", "jsonb", False),
        ("int4", "int8", False),
        ("int2", "float8", False),
        ("numeric(5,2)", "numeric(9,2)", False),
        ("int4", "text", False),
        ("text[]", "uuid[]", False),
        ("numeric(5,2)", "numeric(9,3)", True),
        ("numeric(5,2)", "text", True),
        ("text", "bytea", True),
        ("timestamp(3)", "timestamp", True),
        ("int8", "timestamp", True),
        ("date", "int4", True),
        ("bit(5)", "bit(6)", True),
        ("bytea", "numeric(5,2)", True),
        ("numeric(5,2)[]", "numeric(5,1)[]", True),
    ],
)
def test_what_readers_would_misread(was: str, now: str, is_misread: bool) -> None:
    assert bool(misread_events(schema_of(was), schema_of(now))) is is_misread
    assert not misread_events(schema_of(was), schema_of(was))


def test_a_misread_column_is_named() -> None:
    (said,) = misread_events(schema_of("timestamp(3)"), schema_of("timestamp"))
    assert said == ('column c was long ("io.debezium.time.Timestamp") and is long ("io.debezium.time.MicroTimestamp")')
    former, now = schema_of("timestamp"), schema_of("timestamp", DebeziumModes(time="nanoseconds"))
    assert misread_events(former, now)


def test_an_insert_is_an_envelope_to_others() -> None:
    value, marked = made()
    assert value[:5] == b"\0\0\0\0\x05"
    assert marked.endswith(b";envelope=precise.adaptive.bytes.json.plain")
    found = told(value)
    assert {**found["after"], "p": str(found["after"]["p"])} == {
        "id": 201, "v": "ü", "n": {"scale": 2, "value": b"\x00\xfa"}, "p": "-12.34",
    }  # fmt: skip
    assert found["source"] == {
        "version": "3.7.0.Final", "connector": "postgresql", "name": "shop", "ts_ms": 1795823636937,
        "snapshot": "false", "db": "source", "sequence": '["22905672","1"]', "ts_us": 1795823636937943,
        "ts_ns": 1795823636937943000, "schema": "public", "table": "f", "txId": 770, "lsn": 22905672, "xmin": None,
        "origin": None, "origin_lsn": None,
    }  # fmt: skip
    rest = {name: found[name] for name in ("before", "transaction", "op", "ts_ms", "ts_us", "ts_ns")}
    assert rest == {
        "before": None, "transaction": None, "op": "c", "ts_ms": 1795823637293, "ts_us": 1795823637293877,
        "ts_ns": _NOW,
    }  # fmt: skip


def test_rows_before_a_change_and_rows_of_a_backfill() -> None:
    found = told(made("u", row())[0])
    assert (found["op"], found["before"]) == ("u", found["after"])
    found = told(made("d", is_gone=True)[0])
    assert (found["op"], found["before"], found["after"]) == ("d", {"id": 201, "v": None, "n": None, "p": None}, None)
    found = told(made("r")[0])
    assert (found["op"], found["source"]["snapshot"], found["source"]["txId"]) == ("r", "incremental", None)
    assert found["source"]["sequence"] == '[null,"22905672"]'


def test_envelopes_are_opened() -> None:
    opener = ValueOpener([definition()])
    assert opener.is_needed
    for value, marked in (made(), made("u", row()), made("r")):
        assert opener.row(value, marked) == '{"id":201,"v":"ü","n":"2.50","p":"-12.34"}'.encode()
    assert opener.row(*made("d", is_gone=True)) is None


def test_an_opener_asks_again_for_a_schema_that_it_does_not_know() -> None:
    value, marked = made()
    former = definition(schema_id=4)
    assert ValueOpener([former], lambda: [definition()]).row(value, marked) is not None
    with pytest.raises(ValueError, match="the value has schema 5, which is in no definition"):
        ValueOpener([former]).row(value, marked)


def test_an_envelope_without_its_mark_or_with_another_schema_is_refused() -> None:
    value, marked = made()
    with pytest.raises(ValueError, match="not written by cdc"):
        ValueOpener([definition()]).row(value, marked.partition(b";envelope=")[0])
    foreign = WrittenSchema(5, schema_of("text"), "avro")
    with pytest.raises(ValueError, match="a newer version of cdc writes"):
        ValueOpener([replace(definition(), written=(foreign,))]).row(value, marked)


def test_damaged_envelopes_are_refused() -> None:
    value, marked = made("u", row())
    opener = ValueOpener([definition()])
    for length in range(5, len(value)):
        with pytest.raises(ValueError, match=r"\w"):
            opener.row(value[:length], marked)
    for damaged, said in (
        (value + b"\0", "1 bytes follow the envelope"),
        (value[:5] + b"\x04" + value[6:], "no such branch"),
        (value[:5] + b"\0\0" + made()[0][5 + 2 + len(row()) :], "an envelope without a row"),
    ):
        with pytest.raises(ValueError, match=said):
            opener.row(damaged, marked)
