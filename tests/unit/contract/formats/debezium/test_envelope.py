"""Debezium's envelopes: made of records that are ready, as Debezium 3.7.0 wrote them, and opened again."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from cdc.base.lsn import LSN
from cdc.contract.change import Column, Relation, ReplicaIdentity
from cdc.contract.debezium_modes import mark_of, modes_of
from cdc.contract.formats.debezium.envelope import EnvelopeMaker, EnvelopeReader
from cdc.contract.formats.debezium.rows import DebeziumWriter
from cdc.contract.formats.opener import ValueOpener
from cdc.contract.header import HeaderStamp, envelope_of
from cdc.contract.record import DebeziumModes, EventParts, TableSchema
from cdc.contract.schema import parse_schema, schema_value, table_schema

_COLUMNS: Final = (
    Column("id", 23, -1, "pg_catalog.int4", True),
    Column("v", 25, -1, "pg_catalog.text", False),
    Column("n", 1700, -1, "pg_catalog.numeric", False),
)
_MODES: Final = DebeziumModes()
_NOW: Final = 1795823637293877963
# As Debezium wrote it, but for the second part of the sequence, which is a position in the WAL there
_INSERTED: Final = (
    b'{"before":null,"after":{"id":201,"v":"y","n":{"scale":1,"value":"GQ=="}},"source":{"version":"3.7.0.Final",'
    b'"connector":"postgresql","name":"shop","ts_ms":1795823636937,"snapshot":"false","db":"source",'
    b'"sequence":"[\\"22905672\\",\\"1\\"]","ts_us":1795823636937943,"ts_ns":1795823636937943000,"schema":"public",'
    b'"table":"f","txId":770,"lsn":22905672,"xmin":null,"origin":null,"origin_lsn":null},"transaction":null,"op":"c",'
    b'"ts_ms":1795823637293,"ts_us":1795823637293877,"ts_ns":1795823637293877963}'
)


def definition(modes: DebeziumModes = _MODES) -> TableSchema:
    relation = Relation(7, "public", "f", ReplicaIdentity.DEFAULT, _COLUMNS)
    return replace(table_schema(relation, ("id",), "shop.public.f"), envelope=modes)


def maker(modes: DebeziumModes = _MODES) -> EnvelopeMaker:
    made = EnvelopeMaker("shop", "source", "3.7.0.Final", lambda: _NOW)
    made.learn(definition(modes), _COLUMNS, modes)
    return made


def header(op: str, seq: int = 1, *, xid: int | None = 770) -> bytes:
    snap = None if xid is not None else "1:1:"
    return HeaderStamp(LSN(22905672), xid, 1795823636937943, snap).header(op, seq, definition().fingerprint)


def row(number: int, v: bytes | None = b"y", n: bytes | None = b"2.5") -> bytes:
    return DebeziumWriter(_COLUMNS, _MODES).encode((b"%d" % number, v, n))


def test_an_insert_is_as_debezium_writes_it() -> None:
    ((value, marked),) = maker().values(b'{"id":201}', row(201), header("c"), None)
    assert value == _INSERTED
    assert marked == header("c") + b";envelope=precise.adaptive.bytes.json.plain"


def test_a_delete_is_an_event_and_a_tombstone() -> None:
    (deleted, marked), (tombstone, plain) = maker().values(b'{"id":201}', None, header("d"), None)
    assert deleted is not None
    assert deleted.startswith(b'{"before":{"id":201,"v":null,"n":null},"after":null,"source":{')
    assert b'"op":"d"' in deleted
    assert (tombstone, plain) == (None, header("d"))
    assert envelope_of(marked) == b"precise.adaptive.bytes.json.plain"
    assert envelope_of(plain) is None
    (whole, _), _ = maker().values(b'{"id":201}', None, header("d"), row(201))
    assert whole is not None
    assert whole.startswith(b'{"before":' + row(201) + b',"after":null,')


@pytest.mark.parametrize(
    ("kind", "key", "before"),
    [
        ("bool", b'{"id":true}', b'{"id":true}'),
        ("_bool", b'{"id":[true,null,false]}', b'{"id":[true,null,false]}'),
        ("date", b'{"id":"2026-01-31"}', b'{"id":20484}'),
        ("date", b'{"id":"tomorrow"}', None),
    ],
)
def test_a_delete_tells_a_key_of_any_type_or_nothing(kind: str, key: bytes, before: bytes | None) -> None:
    columns = (Column("id", 0, -1, f"pg_catalog.{kind}", True),)
    relation = Relation(7, "public", "f", ReplicaIdentity.DEFAULT, columns)
    schema = replace(table_schema(relation, ("id",), "shop.public.f"), envelope=_MODES)
    made = EnvelopeMaker("shop", "source", "3.7.0.Final", lambda: _NOW)
    made.learn(schema, columns, _MODES)
    stamp = HeaderStamp(LSN(22905672), 770, 1795823636937943)
    *events, (*_, tombstone, _, _) = made.records([("t", key, None, stamp.header("d", 1, schema.fingerprint), None)])
    assert tombstone is None
    assert [value.partition(b',"after"')[0] for _, _, value, _, _ in events if value] == (
        [] if before is None else [b'{"before":' + before]
    )


def test_an_event_of_an_outbox_among_rows_leaves_as_it_is() -> None:
    event = ("events", b"7", b"paid", header("c"), EventParts(b"id", True, (("type", b"paid"),)))
    made = maker().records([("t", b'{"id":201}', row(201), header("c"), None), event, ("t", b"", None, b"", None)])
    assert made[1:] == [event, ("t", b"", None, b"", None)]
    assert (made[0][2] or b"").startswith(b'{"before":null,"after":{"id":201')


def test_a_changed_key_is_a_delete_and_an_insert() -> None:
    made = maker()
    (deleted, _), (tombstone, _) = made.values(b'{"id":201}', None, header("u"), row(201))
    ((inserted, _),) = made.values(b'{"id":202}', row(202), header("u"), row(201))
    ((updated, _),) = made.values(b'{"id":202}', row(202, b"z"), header("u", 2), row(202))
    assert tombstone is None
    assert b'"op":"d"' in (deleted or b"")
    assert b'"op":"c"' in (inserted or b"")
    assert (inserted or b"").startswith(b'{"before":null,"after":{"id":202')
    assert b'"op":"u"' in (updated or b"")
    assert (updated or b"").startswith(b'{"before":' + row(202) + b',"after":' + row(202, b"z"))


def test_a_row_of_a_backfill() -> None:
    ((value, _),) = maker().values(b'{"id":1}', row(1), header("r", xid=None), None)
    assert value is not None
    for part in (b'"op":"r"', b'"snapshot":"incremental"', b'"sequence":"[null,\\"22905672\\"]"', b'"txId":null'):
        assert part in value


def test_what_has_no_envelope_stays_as_it_is() -> None:
    made = maker()
    assert made.values(b"k", b"v", b"", None) == ((b"v", b""),)
    foreign = header("t").replace(definition().fingerprint.encode(), b"f" * 16)
    assert made.values(b'{"id":1}', None, foreign, None) == ((None, foreign),)
    assert made.values(b'{"other":1}', None, header("t"), None) == ((None, header("t")),)


@pytest.mark.parametrize("has_schemas", [False, True])
def test_envelopes_are_opened(has_schemas: bool) -> None:
    modes = DebeziumModes(schemas=has_schemas)
    made, opener = maker(modes), ValueOpener([definition(modes)])
    assert opener.is_needed
    ((value, marked),) = made.values(b'{"id":201}', row(201), header("c"), None)
    assert value is not None
    assert value.startswith(b'{"schema":{' if has_schemas else b'{"before":')
    assert opener.row(value, marked) == b'{"id":201,"v":"y","n":"2.5"}'
    (deleted, marked), _ = made.values(b'{"id":201}', None, header("d"), None)
    assert deleted is not None
    assert opener.row(deleted, marked) is None
    assert opener.row(b'{"id":1}', header("c")) == b'{"id":1}'
    with pytest.raises(ValueError, match="not an envelope of Debezium"):
        opener.row(value[:-10], marked)


def test_an_opener_asks_again_for_a_definition_that_it_does_not_know() -> None:
    ((value, marked),) = maker().values(b'{"id":201}', row(201), header("c"), None)
    assert value is not None
    assert ValueOpener([], lambda: [definition()]).row(value, marked) == b'{"id":201,"v":"y","n":"2.5"}'
    with pytest.raises(ValueError, match="which the schemas topic lacks"):
        ValueOpener([]).row(value, marked)


def test_a_topic_that_left_the_envelope_still_needs_an_opener() -> None:
    left = replace(definition(), envelope=None, was_enveloped=True)
    ((value, marked),) = maker().values(b'{"id":201}', row(201), header("c"), None)
    assert value is not None
    assert ValueOpener([left]).row(value, marked) == b'{"id":201,"v":"y","n":"2.5"}'


def test_a_row_of_another_shape_is_refused() -> None:
    reader = EnvelopeReader(definition(), mark_of(_MODES).encode())
    for after, said in (
        (b'{"id":1,"v":"y"}', "no member 'n'"),
        (b'{"id":1,"v":"y","n":null,"m":1}', "4 members"),
        (b'{"id":1,"v":"y","n":"2.5"}', "column 'n'"),
        (b"[]", "not a JSON object"),
    ):
        with pytest.raises(ValueError, match=said):
            reader.json(b'{"op":"c","after":' + after + b"}")


def test_floats_in_an_array_are_read_or_refused() -> None:
    columns = (Column("id", 23, -1, "pg_catalog.int4", True), Column("f", 1022, -1, "pg_catalog._float8", False))
    relation = Relation(7, "public", "f", ReplicaIdentity.DEFAULT, columns)
    reader = EnvelopeReader(table_schema(relation, ("id",), "t"), mark_of(_MODES).encode())
    for array in (b'[1.5,null,"NaN","-Infinity",-0,1e+20]', b"[]", b"null"):
        assert reader.json(b'{"op":"c","after":{"id":1,"f":%b}}' % array) == b'{"id":1,"f":%b}' % array
    for array in (b'["NbN"]', b'["1.5"]', b"[[1.5]]", b'"{1.5}"', b"[true]"):
        with pytest.raises(ValueError, match="column 'f'"):
            reader.json(b'{"op":"c","after":{"id":1,"f":%b}}' % array)


def test_modes_are_one_word() -> None:
    modes = DebeziumModes("string", "isostring", "base64-url-safe", "map", schemas=True)
    assert mark_of(modes) == "string.isostring.base64-url-safe.map.schemas"
    assert modes_of(mark_of(modes)) == modes
    for mark in ("", "string", "string.isostring.hex.map.some", "exact.isostring.hex.map.plain"):
        with pytest.raises(ValueError, match="a newer version of cdc"):
            modes_of(mark)


def test_a_definition_keeps_its_envelope() -> None:
    for each in (definition(), replace(definition(), envelope=None, was_enveloped=True)):
        assert parse_schema(schema_value(each)) == each
