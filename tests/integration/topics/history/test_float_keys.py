"""Keys of floating point, asked for by their value: the record's key has them as PostgreSQL prints them."""

from __future__ import annotations

import math
import random
import struct

import pytest

from cdc.base.errors import ConfigError
from cdc.contract.formats.written_key import key_json
from cdc.contract.record import SchemaColumn, TableSchema
from cdc.topics.history.key import record_key
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
    in_topic = [f'{{"k":{text}}}' if text[-1].isdigit() else f'{{"k":"{text}"}}' for text in printed]
    assert [key.decode() for key in found] == in_topic
    with pytest.raises(ConfigError, match=r"k is float., not '1e\+400': it is out of range"):
        record_key("k=1e+400", [table])
    assert in_topic[:3] == ['{"k":0}', '{"k":-0}', '{"k":1}']
