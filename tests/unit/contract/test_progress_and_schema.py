"""Records of ``__progress`` and ``__schemas``: written, read back, and refused when they are not ours."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cdc.base.errors import DecodeError
from cdc.base.lsn import LSN
from cdc.contract.change import Column, Relation, ReplicaIdentity
from cdc.contract.known_topic import named_topic
from cdc.contract.membership import member_table
from cdc.contract.progress import parse_progress, progress_value, stream_key
from cdc.contract.record import Lead, Position, Progress, SourceIdentity
from cdc.contract.schema import fingerprint, parse_schema, schema_key, schema_value, table_schema

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
        {"topic": None},
    ],
)
def test_foreign_schema(change: dict[str, object]) -> None:
    value = json.dumps(json.loads(schema_value(table_schema(ORDERS, ("id",), "t"))) | change).encode()
    with pytest.raises(DecodeError, match="schema record"):
        parse_schema(value)
