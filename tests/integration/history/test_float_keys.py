"""Keys of floating point, asked for by their value: the record's key has them as PostgreSQL prints them."""

from __future__ import annotations

import math
import random
import struct

import pytest

from cdc.encode.written_key import key_json
from cdc.history.key import record_key
from cdc.record import SchemaColumn, TableSchema
from tests.support.servers import Database

EDGES = [0.0, -0.0, 1.0, -1.5, 1e-4, 9.9e-5, 1e5, 1e6, 999999.0, 1e14, 1e15, 123456789012345680.0, 1e22, 0.1, 1.1]
LIMITS = {"float4": [3.4028235e38, -1.4e-45], "float8": [1.7976931348623157e308, -5e-324, 29876985936393048.0]}


@pytest.mark.parametrize(("sql_type", "form"), [("float4", ">f"), ("float8", ">d")])
def test_a_key_of_floating_point_is_found_by_its_value(database: Database, sql_type: str, form: str) -> None:
    rng = random.Random(7)
    some = [struct.unpack(form, rng.randbytes(struct.calcsize(form)))[0] for _ in range(2_000)]
    values = [*EDGES, *LIMITS[sql_type], math.inf, -math.inf, math.nan, *(each for each in some if math.isfinite(each))]
    query = f"SELECT v::{sql_type}::text FROM unnest(%s::float8[]) WITH ORDINALITY AS t(v, n) ORDER BY n"
    printed = [text for (text,) in database.execute(query, [values])]
    table = TableSchema("0" * 16, "public", "t", "t", ("k",), (SchemaColumn("k", sql_type),))
    found = [record_key(key_json([value], [("k", sql_type)]), [table]) for value in values]
    in_topic = [record_key(f'{{"k":"{text}"}}', [table]) for text in printed]
    assert found == in_topic
    assert key_json([1e300], [("k", "float4")]) == '{"k":1e+300}', "no such value"
    assert in_topic[:3] == [b'{"k":0}', b'{"k":-0}', b'{"k":1}']
