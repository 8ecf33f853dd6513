"""Typed values of a lake, and texts of ``_beyond``, as PostgreSQL prints them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from cdc.contract.jobspec.deployment import ColumnKind, JobColumn, JobTable
from cdc.spark.replicas.lake_texts import LakeRows, hashes_of, whole_rows
from cdc.spark.replicas.texts import StoredRows


def table(*columns: tuple[str, ColumnKind], delimiter: str = ",") -> JobTable:
    described = tuple(
        JobColumn(name=f"c{n}", sql_type=sql_type, kind=kind, is_array=sql_type.endswith("[]"), delimiter=delimiter)
        for n, (sql_type, kind) in enumerate(columns)
    )
    return JobTable(namespace="n", name="t", topic="x", key=("c0",), columns=described)


def text_of(sql_type: str, kind: ColumnKind, value: Any, beyond: str | None = None, delimiter: str = ",") -> str | None:
    texts = {} if beyond is None else {"c0": beyond}
    return LakeRows(table((sql_type, kind), delimiter=delimiter)).texts([value], texts)[0]


@pytest.mark.parametrize(
    ("sql_type", "kind", "value", "text"),
    [
        ("bool", "bool", True, "t"), ("int8", "number", -(2**63), "-9223372036854775808"),
        ("float8", "number", -0.0, "-0"), ("float4", "number", 0.10000000149011612, "0.1"),
        ("numeric(12,3)", "text", Decimal("0.200"), "0.200"), ("numeric", "text", "1e100", "1e100"),
        ("date", "text", date(1, 1, 1), "0001-01-01"), ("bytea", "text", b"\x00\xff", "\\x00ff"),
        ("timestamp", "text", datetime(2026, 11, 20, 12, 13, 14, 120000), "2026-11-20 12:13:14.12"),
        ("timestamptz", "text", datetime(2026, 11, 20, 12), "2026-11-20 12:00:00+00"),
        ("jsonb", "json", '{"a": 1.50}', '{"a": 1.50}'), ("text", "text", None, None),
        ("int4[]", "number", [1, None, -2], "{1,NULL,-2}"), ("int4[]", "number", [], "{}"),
        ("bool[]", "bool", [True, False], "{t,f}"),
        ("float4[]", "number", [0.10000000149011612, float("nan")], "{0.1,NaN}"),
        ("text[]", "text", ["a,b", 'q"\\', "NULL", "", None], '{"a,b","q\\"\\\\","NULL","",NULL}'),
        ("jsonb[]", "json", '[{"a": 1},[1,2],null]', '{"{\\"a\\": 1}","[1,2]",NULL}'),
        ("jsonb[]", "json", '"{NULL,\\"null\\"}"', '{NULL,"null"}'),
    ],
)  # fmt: skip
def test_a_value(sql_type: str, kind: ColumnKind, value: Any, text: str | None) -> None:
    assert text_of(sql_type, kind, value) == text


@pytest.mark.parametrize(
    ("sql_type", "kind", "beyond", "text"),
    [
        ("numeric(12,3)", "text", "NaN", "NaN"), ("date", "text", "infinity", "infinity"),
        ("timestamptz", "text", "4714-12-31 23:59:59+00 BC", "4714-12-31 23:59:59+00 BC"),
        ("int4[]", "number", "[[1,2],[3,null]]", "{{1,2},{3,NULL}}"),
        ("int4[]", "number", "[-1:0]={1,2}", "[-1:0]={1,2}"), ("text[]", "text", '[["a b"]]', '{{"a b"}}'),
    ],
)  # fmt: skip
def test_a_text_that_the_type_cannot_hold(sql_type: str, kind: ColumnKind, beyond: str, text: str) -> None:
    assert text_of(sql_type, kind, None, beyond) == text


def test_arrays_of_boxes_have_another_delimiter() -> None:
    assert text_of("box[]", "text", ["(1,1),(0,0)", None], delimiter=";") == "{(1,1),(0,0);NULL}"


def test_a_value_beside_its_text_in_beyond_is_no_value_of_the_source() -> None:
    assert text_of("date", "text", date(2026, 1, 1), "2026-01-01") not in ("2026-01-01", None)


def batch(texts: Sequence[str | None], beyond: Sequence[dict[str, str] | None]) -> pa.RecordBatch:
    moments = pa.array([datetime(2026, 1, 1, tzinfo=UTC)] * len(texts), pa.timestamp("us", tz="UTC"))
    columns = [pa.array(range(len(texts))), pa.array(["{}"] * len(texts)), pa.array(texts), moments]
    held = pa.array(beyond, pa.map_(pa.string(), pa.string()))
    return pa.record_batch([*columns, held], names=["key_hash", "key", "c0", "c1", "c2"])


def test_batches_become_hashes_and_whole_rows() -> None:
    described = table(("text", "text"), ("timestamptz", "text"))
    whole = batch(["a", None], [None, {"c0": "b", "gone": "x"}])
    (found,) = whole_rows(described)(iter([whole]))
    moment = "2026-01-01 00:00:00+00"
    assert found.column("source_columns").to_pylist() == [f'["a", "{moment}"]', f'["b", "{moment}"]']
    (hashes,) = hashes_of(described)(iter([whole.select(["key_hash", "c0", "c1", "c2"])]))
    stored = StoredRows(described)
    wanted = [stored.hashes(["a", moment])[1], stored.hashes(["b", moment])[1]]
    assert hashes.to_pydict() == {"key_hash": [0, 1], "value_hash": wanted}
