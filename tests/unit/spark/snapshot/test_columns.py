"""Types and values of a snapshot's columns; what a type cannot hold is told beside it, never changed."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from cdc.contract.record import SchemaColumn
from cdc.spark.snapshot.columns import form_of
from cdc.spark.snapshot.rows import RowDecoder


@pytest.mark.parametrize(
    ("sql_type", "arrow"),
    [
        ("int2", pa.int16()),
        ("oid", pa.int64()),
        ("bool", pa.bool_()),
        ("float4", pa.float32()),
        ("numeric(12,2)", pa.decimal128(12, 2)),
        ("numeric(38,0)", pa.decimal128(38, 0)),
        ("numeric(39,0)", pa.string()),
        ("numeric(5,-2)", pa.string()),
        ("numeric(2,5)", pa.string()),
        ("numeric", pa.string()),
        ("date", pa.date32()),
        ("timestamp(3)", pa.timestamp("us")),
        ("timestamptz", pa.timestamp("us", tz="UTC")),
        ("bytea", pa.binary()),
        ("jsonb", pa.string()),
        ("uuid", pa.string()),
        ("int4[]", pa.list_(pa.int32())),
        ("bool[]", pa.list_(pa.bool_())),
        ("numeric(6,2)[]", pa.list_(pa.string())),
        ("jsonb[]", pa.string()),
        ('"public"."mood"', pa.string()),
    ],
)
def test_types(sql_type: str, arrow: pa.DataType) -> None:
    assert form_of(sql_type).arrow == arrow


@pytest.mark.parametrize(
    ("sql_type", "raw", "value"),
    [
        ("int8", "9223372036854775807", 2**63 - 1),
        ("float8", '"NaN"', "nan"),
        ("numeric(12,2)", '"-0.50"', Decimal("-0.50")),
        ("numeric", '"1e100"', "1e100"),
        ("date", '"2026-02-28"', date(2026, 2, 28)),
        ("timestamp", '"0001-01-01 00:00:00.5"', datetime(1, 1, 1, 0, 0, 0, 500_000)),
        ("timestamptz", '"9999-12-31 23:59:59.999999+00"', datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)),
        ("bytea", '"\\\\x00ff"', b"\x00\xff"),
        ("json", ' {"a" : 1.50}', ' {"a" : 1.50}'),
        ("text", '"a\\nb"', "a\nb"),
        ("int4[]", "[1,null,-3]", [1, None, -3]),
        ("text[]", '["",null,"null"]', ["", None, "null"]),
        ("jsonb[]", "[[1],null]", "[[1],null]"),
    ],
)
def test_values(sql_type: str, raw: str, value: Any) -> None:
    read = form_of(sql_type).read(raw)
    assert read == value or str(read) == value


@pytest.mark.parametrize(
    ("sql_type", "raw", "text"),
    [
        ("numeric(12,3)", '"NaN"', "NaN"),
        ("numeric(3,1)", '"1234.5"', "1234.5"),
        ("date", '"infinity"', "infinity"),
        ("date", '"5874897-12-31"', "5874897-12-31"),
        ("date", '"0001-01-01 BC"', "0001-01-01 BC"),
        ("timestamp", '"294276-12-31 23:59:59.999999"', "294276-12-31 23:59:59.999999"),
        ("timestamp", '"4713-12-31 00:00:00 BC"', "4713-12-31 00:00:00 BC"),
        ("timestamptz", '"21016-11-04 06:51:30.123456+00"', "21016-11-04 06:51:30.123456+00"),
        ("timestamptz", '"-infinity"', "-infinity"),
        ("int4[]", "[[1,2],[3,4]]", "[[1,2],[3,4]]"),
        ("int4[]", '"[0:1]={7,8}"', "[0:1]={7,8}"),
        ("int2", "40000", "40000"),
        ("int4", '"was text"', "was text"),
    ],
)
def test_what_is_beyond_a_type_is_told_beside_it(sql_type: str, raw: str, text: str) -> None:
    decoder = RowDecoder((SchemaColumn("c", sql_type),), {})
    (row,) = decoded(decoder, '{"c":' + raw + "}")
    assert row == {"c": None, "_beyond": [("c", text)]}


def test_a_document_null_is_no_null_and_a_missing_column_is() -> None:
    columns = (SchemaColumn("id", "int4"), SchemaColumn("doc", "jsonb"), SchemaColumn("added", "text"))
    decoder = RowDecoder(columns, {"beef": ("id", "doc")})
    header = "v=1;op=u;lsn=0/1;seq=1;xid=1;ts=1;schema=beef"
    assert decoded(decoder, '{"id":1,"doc":null}', header) == [{"id": 1, "doc": None, "added": None, "_beyond": None}]
    (row,) = decoded(decoder, '{"id":1,"doc":null,"gone":5}', header + ";json_null=1")
    assert row["doc"] == "null"


def test_a_column_may_be_called_as_ours() -> None:
    decoder = RowDecoder((SchemaColumn("_beyond", "int4"),), {})
    assert decoder.spark_schema().fieldNames() == ["_beyond", "_beyond_"]
    assert decoder.spark_schema()["_beyond"].metadata == {"sql_type": "int4"}


def decoded(decoder: RowDecoder, value: str, header: str = "v=1;op=c") -> list[dict[str, Any]]:
    batch = pa.RecordBatch.from_pydict({"value": [value.encode()], "header": [header]})
    return [row for each in decoder.decode(iter([batch])) for row in each.to_pylist()]
