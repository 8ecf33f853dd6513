"""JSON values → COPY text: each form, the fast way and the slow way alike."""

from __future__ import annotations

import json
import random
from typing import Any

import orjson
import pytest

from cdc.contract.change import Column
from cdc.contract.formats.format import ReadColumn
from cdc.contract.formats.values import converter
from cdc.contract.header import with_null_documents
from cdc.contract.pgtypes import sql_type
from cdc.contract.ports import StoredRecord
from cdc.sink.postgres.rows import RowForm
from cdc.sink.rejections import RecordRejected

HEADER = b"v=1;op=u;lsn=0/A;seq=1;xid=7;ts=1;schema=00000000000000aa"


def stored(value: bytes | None, key: bytes = b'{"id":1}', header: bytes = HEADER) -> StoredRecord:
    return StoredRecord("t", 3, 41, key, value, header)


def form(*sql_types: str, **named: str) -> RowForm:
    columns = {f"c{i}": sql_type for i, sql_type in enumerate(sql_types)} | named
    return RowForm(read(columns), definitions={"00000000000000aa": list(columns)})


def read(columns: dict[str, str]) -> list[ReadColumn]:
    return [
        ReadColumn(name, sql_type, ";" if sql_type.startswith("box") else ",") for name, sql_type in columns.items()
    ]


@pytest.mark.parametrize(
    ("type_name", "literal", "value"),
    [
        ("pg_catalog._json", r'{" {\"a\" : 1} ","[ 1 ]",NULL," 2","3 "}', '[ {"a" : 1} ,[ 1 ],null, 2,3 ]'),
        ("pg_catalog._json", "{}", "[]"),
        ("pg_catalog._json", "{{1,2},{3,4}}", '"{{1,2},{3,4}}"'),
        ("pg_catalog._jsonb", "{null,1}", '"{null,1}"'),
        ("public._positive", "{1,2,NULL}", '["1","2",null]'),
    ],
)
def test_arrays_as_the_contract_has_them_come_back_unchanged(type_name: str, literal: str, value: str) -> None:
    """Blanks around an element of json[] were lost; of a domain's array the elements are strings."""
    column = Column("c0", 0, -1, type_name, False)
    assert converter(column)(literal.encode()).decode() == value
    assert text_of(sql_type(column), value).replace("\\\\", "\\") == literal


def text_of(sql_type: str, value: str) -> str:
    """COPY text of one value, which must not depend on the way taken: rows with a document ``null`` go one by one."""
    source = b'{"c0":' + value.encode() + b"}"
    fast = b"".join(form(sql_type).blocks([stored(source)]))
    slowly = RowForm(read({"c0": sql_type}), definitions={"00000000000000aa": ["another"]})
    slow = b"".join(slowly.blocks([stored(source, header=with_null_documents(HEADER, [0]))]))
    assert slow == fast
    return fast.decode().removesuffix("\n")


@pytest.mark.parametrize(
    ("sql_type", "value", "text"),
    [
        ("text", '"plain"', "plain"),
        ("text", '""', ""),
        ("text", "null", "\\N"),
        ("text", '"null"', "null"),
        ("text", r'"\\N"', r"\\N"),
        ("text", r'"a\tb\nc\rd\\e"', r"a\tb\nc\rd\\e"),
        ("text", r'"\\."', r"\\."),
        ("text", '"\\u0001\\u001f\\u2028é𝔘"', "\x01\x1f\u2028é𝔘"),
        ("varchar(10)", r'"\\u0000 is not a NUL"', r"\\u0000 is not a NUL"),
        ("int8", "-9223372036854775808", "-9223372036854775808"),
        ("int4", "null", "\\N"),
        ("oid", "4294967295", "4294967295"),
        ("bool", "true", "true"),
        ("bool", "false", "false"),
        ("bool", "null", "\\N"),
        ("float8", "-0", "-0"),
        ("float8", "1e-7", "1e-7"),
        ("float8", "1.7976931348623157e+308", "1.7976931348623157e+308"),
        ("float4", '"NaN"', "NaN"),
        ("float8", '"-Infinity"', "-Infinity"),
        ("numeric(12,2)", '"1.10"', "1.10"),
        ("timestamptz", '"infinity"', "infinity"),
        ("bytea", r'"\\xdeadbeef"', r"\\xdeadbeef"),
        ("jsonb", '{"a": 1.10, "b": [null, "x"]}', '{"a": 1.10, "b": [null, "x"]}'),
        ("json", '{"a" : 1,\n "a":\t2}', r'{"a" : 1,\n "a":\t2}'),
        ("json", r'"\u00e9\n"', r'"\\u00e9\\n"'),
        ("json", r'{"x": "\u0000"}', r'{"x": "\\u0000"}'),
        ("jsonb", "12345678901234567890.10", "12345678901234567890.10"),
        ("jsonb", "[]", "[]"),
        ("jsonb", "null", "\\N"),
        ("int4[]", "[1,null,-3]", "{1,NULL,-3}"),
        ("int4[]", "[[1,2],[3,4]]", "{{1,2},{3,4}}"),
        ("int4[]", '"[0:2]={7,8,9}"', "[0:2]={7,8,9}"),
        ("bool[]", "[true,null,false]", "{true,NULL,false}"),
        ("float8[]", '[1e-7,-0,"NaN"]', '{1e-7,-0,"NaN"}'),
        ("text[]", "[]", "{}"),
        ("text[]", "null", "\\N"),
        ("text[]", '["a","b c","{x}"]', '{a,"b c","{x}"}'),
        ("text[]", '["plain","NULL",""]', '{plain,"NULL",""}'),
        ("text[]", '["plain","nullable"]', "{plain,nullable}"),
        ("ltree[]", '["a.b","c"]', "{a.b,c}"),  # as array_out spells it: the replica may hold it as text
        ("text[]", '["b","null"]', '{b,"null"}'),
        ("text[]", '["b","x y"]', '{b,"x y"}'),
        ("text[]", r'[null,"NULL","","q\"q","back\\slash","\n"]', r'{NULL,"NULL","","q\\"q","back\\\\slash","\n"}'),
        ("text[]", '[["a"],["b"]]', "{{a},{b}}"),
        ("numeric(6,2)[]", '["1.10",null]', "{1.10,NULL}"),
        ("box[]", '["(1,1),(0,0)","(2,2),(1,1)"]', "{(1,1),(0,0);(2,2),(1,1)}"),
        ("jsonb[]", '[{"a": 1.10},null,"s",[1, 2]]', r'{"{\\"a\\": 1.10}",NULL,"\\"s\\"","[1, 2]"}'),
        ("jsonb[]", r'"{{\"{}\"}}"', '{{"{}"}}'),
    ],
)
def test_forms(sql_type: str, value: str, text: str) -> None:
    assert text_of(sql_type, value) == text


@pytest.mark.parametrize(
    ("sql_type", "value", "text"),
    [
        ("text", "5", "5"),
        ("text", "1.10", "1.10"),
        ("text", "true", "true"),
        ("text", '{"was": "json"}', '{"was": "json"}'),
        ("text", '["was","array"]', '["was","array"]'),
        ("int4", '"42"', "42"),
        ("int8", "1e3", "1e3"),
        ("text[]", "[1,2]", "{1,2}"),
    ],
)
def test_values_written_under_another_type(sql_type: str, value: str, text: str) -> None:
    assert text_of(sql_type, value) == text


def test_rows_columns_and_missing_members() -> None:
    both = form(id="int4", name="text", more="text")
    records = [
        stored(b'{"id":1,"name":"a","more":"x"}'),
        stored(b'{"name":"b","id":2}'),
        stored(b'{"id":3,"name":null}'),
    ]
    lines = b"".join(both.blocks(records)).splitlines()
    assert sorted(lines) == [b"1\ta\tx", b"2\tb\t\\N", b"3\t\\N\t\\N"]


def test_many_rows_are_one_text() -> None:
    rng = random.Random(7)
    strings = ["", "\\", "\\N", "a\tb", "\n", "x" * 2000, "é", "null", '"', "\\u0000"]
    rows = [[i, rng.choice(strings), rng.choice([None, rng.choice(strings)])] for i in range(5_000)]
    sources = [orjson.dumps(dict(zip(("id", "a", "b"), row, strict=True))) for row in rows]
    copied = b"".join(form(id="int8", a="text", b="text").blocks([stored(each) for each in sources])).decode()
    lines = copied.removesuffix("\n").split("\n")
    assert [[unescape(field) for field in line.split("\t")] for line in lines] == [
        [str(row[0]), *row[1:]] for row in rows
    ]


def unescape(field: str) -> str | None:
    if field == "\\N":
        return None
    pieces = field.split("\\\\")
    return "\\".join(piece.replace("\\n", "\n").replace("\\t", "\t").replace("\\r", "\r") for piece in pieces)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "is empty"),
        (b"null", "the JSON word null"),
        (b"[]", "Expected `object`"),
        (b'{"id":1', "truncated"),
        (b'{"id":1,"name":"\xff"}', "utf-8"),
        (b'{"id":1,"name":"a\\u0000b"}', "column 'name' has a NUL"),
        (b'{"id":1,"name":"x","color":"red","age":5}', "in no definition of the schemas topic: age, color"),
        (b'{"id":1,"name":"\\ud800 alone"}', "malformed"),
        (b'{"id":1,"tags":' + b"[" * 5_000 + b"]" * 5_000 + b"}", "recursion"),
    ],
)
def test_poison_is_named(value: bytes, reason: str) -> None:
    poison = stored(value, key=b'{"id":7}')
    good = [stored(b'{"id":%d,"name":"ok"}' % i) for i in range(50)]
    with pytest.raises(RecordRejected) as caught:
        list(form(id="int4", name="text", tags="text[]").blocks([*good[:20], poison, *good[20:]]))
    assert reason.lower() in caught.value.reason.lower()
    assert caught.value.record is poison
    assert "topic 't' partition 3 offset 41 key {\"id\":7}" in caught.value.message


def test_document_null_is_told_from_sql_null() -> None:
    table = form(id="int4", doc="jsonb", raw="json")
    value = b'{"id":1,"doc":null,"raw":null}'
    assert b"".join(table.blocks([stored(value)])) == b"1\t\\N\t\\N\n"
    assert b"".join(table.blocks([stored(value, header=HEADER + b";json_null=1")])) == b"1\tnull\t\\N\n"
    assert b"".join(table.blocks([stored(value, header=HEADER + b";json_null=1,2")])) == b"1\tnull\tnull\n"
    for wrong in (HEADER.replace(b"aa", b"bb") + b";json_null=1", HEADER + b";json_null=9"):
        with pytest.raises(RecordRejected, match="definition"):
            list(table.blocks([stored(value, header=wrong)]))


def test_keys() -> None:
    key = RowForm([ReadColumn("region", "text", ","), ReadColumn("n", "int8", ",")])
    records = [stored(None, key=b'{"region":"e\\tu","n":7}'), stored(None, key=b'{"region":"us","n":8}')]
    assert b"".join(key.blocks(records, of_key=True)) == b"e\\tu\t7\nus\t8\n"


def test_members_left_out() -> None:
    table = RowForm([ReadColumn("id", "int4", ",")], ["computed"])
    assert b"".join(table.blocks([stored(b'{"id":1,"computed":[{"any":"thing"}]}')])) == b"1\n"


def test_column_may_be_called_anything() -> None:
    names: list[str] = ["c0", "class", 'q"uote', "dot.ted", "ünï", "", " ", "id"]
    row: dict[str, Any] = dict.fromkeys(names, "v")
    table = RowForm([ReadColumn(name, "text", ",") for name in names])
    assert b"".join(table.blocks([stored(json.dumps(row).encode())])) == b"\t".join([b"v"] * len(names)) + b"\n"
