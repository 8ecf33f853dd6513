"""Records of ``__progress`` and ``__schemas``: written, read back, and refused when they are not ours."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cdc.base.errors import DecodeError
from cdc.base.lsn import LSN
from cdc.contract.change import Column, Relation, ReplicaIdentity
from cdc.contract.known_topic import KnownTopic, known_topic_value, named_topic, parse_known_topic
from cdc.contract.membership import Membership, member_table, membership_value, parse_membership
from cdc.contract.progress import parse_progress, progress_value, stream_key
from cdc.contract.record import Lead, Position, Progress, RowRule, SourceIdentity, TableSchema, WrittenSchema
from cdc.contract.schema import fingerprint, numbered, parse_schema, schema_key, schema_value, table_schema

PROGRESS = Progress(
    LSN.parse("16/B374D848"), None, 1_795_190_486_566_123, SourceIdentity("7428123456789012345", 1, 16384), (734,)
)
ORDERS = Relation(
    16384,
    "public",
    "orders",
    ReplicaIdentity.DEFAULT,
    (
        Column("id", 20, -1, "pg_catalog.int8", True),
        Column("price", 1700, (12 << 16 | 2) + 4, "pg_catalog.numeric", False),
        Column("tags", 1009, -1, "pg_catalog._text", False),
    ),
)


@pytest.mark.parametrize("partial", [None, Position(LSN(0x16_B374_D900), 70_000)])
def test_progress_comes_back(partial: Position | None) -> None:
    progress = replace(PROGRESS, partial=partial)
    assert parse_progress(progress_value(progress)) == progress


def test_messages_of_a_part_come_back_and_are_part_of_the_contract() -> None:
    partial = Position(LSN.parse("16/B374D900"), 0)
    progress = replace(PROGRESS, partial=partial, messages=3)
    assert parse_progress(progress_value(progress)) == progress
    assert json.loads(progress_value(progress))["partial"] == {"lsn": "16/B374D900", "seq": 0, "messages": 3}
    assert json.loads(progress_value(replace(progress, messages=0)))["partial"] == {"lsn": "16/B374D900", "seq": 0}


@pytest.mark.parametrize("is_open", [True, False])
def test_a_lead_comes_back_and_is_part_of_the_contract(is_open: bool) -> None:
    progress = replace(PROGRESS, lead=Lead(LSN.parse("16/B374D900"), is_open))
    assert parse_progress(progress_value(progress)) == progress
    assert json.loads(progress_value(progress))["lead"] == {"sent": "16/B374D900", "open": is_open}


def test_progress_is_part_of_the_contract() -> None:
    assert stream_key("cdc_shop") == b'{"stream":"cdc_shop"}'
    assert json.loads(progress_value(PROGRESS)) == {
        "v": 1,
        "lsn": "16/B374D848",
        "partial": None,
        "commit_ts": 1_795_190_486_566_123,
        "source": {"system_identifier": "7428123456789012345", "timeline": 1, "database_oid": 16384},
        "unseen": [734],
    }


@pytest.mark.parametrize(
    "change", [{"v": 2}, {"lsn": "x"}, {"partial": {}}, {"commit_ts": "1"}, {"source": None}, {"unseen": ["1"]}]
)
def test_foreign_progress(change: dict[str, object]) -> None:
    value = json.dumps(json.loads(progress_value(PROGRESS)) | change).encode()
    with pytest.raises(DecodeError, match="progress record"):
        parse_progress(value)


@pytest.mark.parametrize("value", [b"", b"null", b"[]", b"{}", b"\xff"])
@pytest.mark.parametrize("parse", [parse_progress, parse_schema])
def test_values_of_another_kind(parse: object, value: bytes) -> None:
    with pytest.raises(DecodeError, match="version 1"):
        parse(value)  # type: ignore[operator]  # a value that is refused


@pytest.mark.parametrize("key", [b'{"topic":', b'{"topic":"\xff"}', b'{"topic":1}', b'{"topic":null,"a":2}'])
def test_a_key_that_names_no_topic(key: bytes) -> None:
    """Whoever read the progress topic met an error of the JSON parser, also at the tombstone of such a record."""
    assert named_topic(key) is None
    assert member_table(key.replace(b"topic", b"published")) is None
    assert named_topic(b'{"stream":"a"}') is member_table(None) is None


def test_schema_comes_back() -> None:
    schema = table_schema(ORDERS, ("id",), "shop.public.orders")
    assert parse_schema(schema_value(schema)) == schema
    assert json.loads(schema_value(schema)) == {
        "v": 1,
        "fingerprint": schema.fingerprint,
        "namespace": "public",
        "name": "orders",
        "topic": "shop.public.orders",
        "key": ["id"],
        "columns": [
            {"name": "id", "type": "int8", "number": 0, "type_oid": 20},
            {"name": "price", "type": "numeric(12,2)", "number": 0, "type_oid": 1700},
            {"name": "tags", "type": "text[]", "number": 0, "type_oid": 1009},
        ],
        "relation": 16384,
    }
    assert schema_key(schema.fingerprint) == b'{"schema":"%b"}' % schema.fingerprint.encode()


def test_a_definition_names_the_schemas_of_its_values() -> None:
    plain = table_schema(ORDERS, ("id",), "shop.public.orders")
    schema = replace(plain, format="avro", written=(WrittenSchema(7, "{}", "avro"), WrittenSchema(9, "[]", "avro")))
    assert parse_schema(schema_value(schema)) == schema
    found = json.loads(schema_value(schema))
    assert found["format"] == "avro"
    assert found["written"] == [[7, "{}", "avro"], [9, "[]", "avro"]]
    assert found.keys() - json.loads(schema_value(plain)).keys() == {"format", "written"}


def test_a_definition_of_an_old_version_knows_less() -> None:
    value = json.loads(schema_value(table_schema(ORDERS, ("id",), "t")))
    del value["relation"]
    for column in value["columns"]:
        del column["number"], column["type_oid"]
    schema = parse_schema(json.dumps(value).encode())
    assert schema.relation_id == 0
    assert {(each.number, each.type_oid, each.labels) for each in schema.columns} == {(0, 0, ())}


def test_labels_of_an_enum_come_back_and_only_for_keys() -> None:
    mood = Column("m", 20_000, -1, "public.mood", True, 3, ((1, "a"), (2, "b")))
    relation = replace(ORDERS, columns=(mood, replace(mood, name="n")))
    schema = table_schema(relation, ("m",), "t")
    assert parse_schema(schema_value(schema)) == schema
    assert [each.labels for each in schema.columns] == [((1, "a"), (2, "b")), ()]
    assert [each.number for each in schema.columns] == [3, 3]


def test_numbers_of_columns_are_taken_where_they_are_certain() -> None:
    schema = table_schema(ORDERS, ("id",), "t")
    today = {"id": 1, "price": 5, "gone": 6, "tags": 7}

    def numbers(now: dict[str, int], before: TableSchema | None = None, of: TableSchema = schema) -> list[int]:
        return [each.number for each in numbered(of, now, before).columns]

    assert numbers(today) == [0, 5, 7], "keys have theirs from the rows"
    assert numbers({"price": 5, "id": 1, "tags": 7}) == [0, 0, 0], "another order: the columns are not today's"
    assert numbers({"id": 1, "price": 5}) == [0, 0, 0]
    before = replace(schema, columns=(*schema.columns[:2], replace(schema.columns[2], number=3)))
    assert numbers(today, before) == [0, 5, 3], "the stream may still bring rows of the old column"
    assert numbers(today, replace(before, fingerprint="another")) == [0, 5, 7]
    read = replace(schema, columns=(schema.columns[0], replace(schema.columns[1], number=9), schema.columns[2]))
    assert numbers(today, before, read) == [0, 9, 3], "read together with rows"


def test_fingerprint_is_for_ever() -> None:
    assert fingerprint(ORDERS, ("id",)) == "20000a04d5edb5a8"


def test_fingerprint_tells_what_matters_apart() -> None:
    wider = replace(ORDERS, columns=(*ORDERS.columns, Column("x", 25, -1, "pg_catalog.text", False)))
    retyped = replace(ORDERS, columns=(*ORDERS.columns[:1], replace(ORDERS.columns[1], type_modifier=-1)))
    shapes = [
        fingerprint(ORDERS, ("id",)),
        fingerprint(ORDERS, ("id", "price")),
        fingerprint(ORDERS, ("price", "id")),
        fingerprint(replace(ORDERS, name="order"), ("id",)),
        fingerprint(replace(ORDERS, namespace="other"), ("id",)),
        fingerprint(replace(ORDERS, columns=ORDERS.columns[::-1]), ("id",)),
        fingerprint(wider, ("id",)),
        fingerprint(retyped, ("id",)),
    ]
    assert len(set(shapes)) == len(shapes)


def test_fingerprint_leaves_out_what_does_not() -> None:
    whole = replace(
        ORDERS,
        relation_id=1,
        replica_identity=ReplicaIdentity.FULL,
        columns=tuple(replace(column, in_identity=True) for column in ORDERS.columns),
    )
    assert fingerprint(whole, ("id",)) == fingerprint(ORDERS, ("id",))
    assert table_schema(ORDERS, ("id",), "a").fingerprint == table_schema(ORDERS, ("id",), "b").fingerprint


@pytest.mark.parametrize(
    "change",
    [
        {"v": 2},
        {"key": [1]},
        {"columns": [{"name": "a"}]},
        {"columns": [{"name": "a", "type": "int4", "number": 1.5}]},
        {"columns": [{"name": "a", "type": "int4", "labels": [[1e300, "x"]]}]},
        {"relation": "7"},
        {"format": "xml"},
        {"format": 1},
        {"written": [[1]]},
        {"written": [["1", "{}"]]},
        {"written": [[1, None]]},
        {"topic": None},
    ],
)
def test_foreign_schema(change: dict[str, object]) -> None:
    value = json.dumps(json.loads(schema_value(table_schema(ORDERS, ("id",), "t"))) | change).encode()
    with pytest.raises(DecodeError, match="schema record"):
        parse_schema(value)


def test_what_the_bridge_notes_of_topics_and_publications_comes_back() -> None:
    topic, membership = KnownTopic("id", (0, 3), (5, 9)), Membership(1, "2", 3, 4, ("a", "b"))
    assert parse_known_topic(known_topic_value(topic)) == topic
    assert parse_membership(membership_value(membership)) == membership
    for parse in (parse_known_topic, parse_membership):
        with pytest.raises(DecodeError, match="record is not of topic contract version 1") as caught:
            parse(b'{"v":2}')
        assert "progress topic" in caught.value.remedy


def test_a_condition_comes_back_and_is_part_of_the_contract() -> None:
    filtered = replace(ORDERS, rows=RowRule("(price > 1)", 16999))
    schema = table_schema(filtered, ["id"], "shop.public.orders")
    assert schema.fingerprint != fingerprint(ORDERS, ["id"])
    assert parse_schema(schema_value(schema)) == schema
    assert json.loads(schema_value(schema))["rows"] == {"condition": "(price > 1)", "entry": 16999}
    assert "rows" not in json.loads(schema_value(table_schema(ORDERS, ["id"], "shop.public.orders")))
