"""The schema of a table: its exact text, what is read from it, how it goes on, and which others are refused."""

from __future__ import annotations

import re

import pytest

from cdc.contract.change import Column
from cdc.contract.formats.protobuf.schema import is_same_schema, misread, protobuf_schema, read_schema, succeeding
from cdc.contract.formats.protobuf.types import protobuf_type
from cdc.contract.pgtypes import BUILTIN_NAMES, sql_type
from cdc.lab.proof.protobuf_fields import compiled
from tests.unit.contract.formats.avro.tables import column
from tests.unit.contract.formats.protobuf.tables import schema_of, spelled

ORDERS = (
    column("id", "int8", number=1),
    column("Größe", "numeric", number=3),
    column("placed_at", "timestamptz", number=4),
    column("tags", "_text", number=5),
    column("note", "text"),
)
TEXT = """\
syntax = "proto3";
package shop.public;
import "google/protobuf/timestamp.proto";
// {"table":["public","orders"],"key":["id"],"fingerprint":"40aad82928afb054","beyond":"text"}
message orders {
  // {"name":"id","type":"int8","number":1}
  int64 id = 1;
  // {"name":"Gr\\u00f6\\u00dfe","type":"numeric","number":3}
  optional string Gr_uf6__udf_e = 3 [json_name = "Größe"];
  // {"name":"placed_at","type":"timestamptz","number":4}
  optional .google.protobuf.Timestamp placed_at = 4 [json_name = "placed_at"];
  optional string placed_at_text = 10004 [json_name = "placed_at_text"];
  // {"name":"tags","type":"text[]","number":5}
  optional .shop.public.StringArray tags = 5;
  optional string tags_text = 10005 [json_name = "tags_text"];
  // {"name":"note","type":"text"}
  optional string note = 20000;
}
message StringArray {
  message Element { optional string value = 1; }
  repeated Element elements = 1;
}
"""


def numbers(schema: str) -> dict[str, int]:
    return {each.name: each.number for each in read_schema(schema).columns}


def test_a_schema_says_it_all() -> None:
    assert schema_of(*ORDERS, key=("id",)) == TEXT
    assert "_text" not in schema_of(*ORDERS, key=("id",), beyond="refuse")


def test_google_reads_the_names_of_the_table() -> None:
    fields = compiled(TEXT).message.DESCRIPTOR.fields
    assert [each.json_name for each in fields] == [
        *("id", "Größe", "placed_at", "placed_at_text", "tags", "tags_text", "note"),
    ]


def test_the_table_is_restored() -> None:
    found = read_schema(schema_of(*ORDERS, key=("note", "id"), name="my-bridge"))
    assert found.bridge == "my-bridge"
    assert (found.table.namespace, found.table.name, found.table.key) == ("public", "orders", ("note", "id"))
    assert [(each.name, each.sql_type, each.number) for each in found.table.columns] == [
        *(("id", "int8", 1), ("Größe", "numeric", 3), ("placed_at", "timestamptz", 4)),
        *(("tags", "text[]", 5), ("note", "text", 0)),
    ]
    assert protobuf_schema(found.table, found.bridge, "text") == schema_of(
        *ORDERS, key=("note", "id"), name="my-bridge"
    )


@pytest.mark.parametrize(
    ("sql", "protobuf"),
    [
        *(("bool", "bool"), ("int2", "int32"), ("int4", "int32"), ("int8", "int64"), ("oid", "int64")),
        *(("float4", "float"), ("float8", "double"), ("bytea", "bytes"), ("json", "string"), ("jsonb", "string")),
        *(("numeric(10,2)", "string"), ("date", "string"), ("timestamp", "string"), ("uuid", "string")),
        ("timestamptz(3)", ".google.protobuf.Timestamp"),
        ('"public"."timestamptz"', "string"),
    ],
)
def test_types(sql: str, protobuf: str) -> None:
    assert protobuf_type(sql).element == protobuf


def test_every_builtin_type_has_a_schema_that_google_compiles() -> None:
    columns = [Column(f"c{oid}", oid, -1, name, False) for oid, name in BUILTIN_NAMES.items()]
    for key in ((), tuple(each.name for each in columns)):
        for text in (schema_of(*columns, key=key), schema_of(*columns, key=key, beyond="refuse")):
            assert compiled(text)
            assert [each.sql_type for each in read_schema(text).columns] == [sql_type(each) for each in columns]


NAMES = [
    *("A b", "a B", "a_u20_B", "a_b", "aB", "ab", "AB", "1", "_1", "[x]", " [x]", "]", "at", "at_text", "atText"),
    *('"', "\\", "\n\t\x01\x7f", "%s", "//", "/*", "é", "\U0001f600", "message", "optional", "string", "google"),
    *("StringArray", "Element", "public", "reserved", "a__b", "_", "__", "extensions", "json_name", "9"),
]


@pytest.mark.parametrize("table", ["t", "StringArray", "string", "message", "1 \n//", "Element", "Timestamp"])
def test_any_names_will_do(table: str) -> None:
    parts = [f"{name} text[] {place}" for place, name in enumerate(NAMES, 1)]
    schema = spelled(*parts, "moments timestamptz 901", table=table, beyond="text")
    found = read_schema(schema)
    assert [each.name for each in found.columns] == [*NAMES, "moments"]
    fields = compiled(schema).message.DESCRIPTOR.fields
    assert len({field.json_name for field in fields}) == len(fields) == 2 * len(found.columns)
    own = [field.json_name for field in fields if field.number < 10_000]
    assert own == [f" {name}" if name.endswith("[x]") else name for name in found.table.key + tuple(NAMES[1:])] + [
        "moments"
    ]


def test_a_field_has_its_columns_number() -> None:
    assert numbers(spelled("id int4 1", "b text 7", "a text 3")) == {"id": 1, "b": 7, "a": 3}


def test_what_has_no_number_is_out_of_the_way() -> None:
    found = read_schema(spelled("id int4 0", "a text 2", "b text[] 0", "c text 2", "d text 20000", beyond="text"))
    assert [(each.number, each.text_number) for each in found.columns] == [
        *((20_000, 0), (2, 0), (20_002, 20_003), (20_004, 0), (20_006, 0)),
    ]


def test_a_number_once_given_never_belongs_to_another_column() -> None:
    first = spelled("id int4 1", "a text 2", "b text[] 3", beyond="text")
    dropped = succeeding(first, spelled("id int4 1", "b text[] 3", beyond="text"))
    assert "  reserved 2;\n" in dropped
    assert '  reserved "a";\n' in dropped
    again = succeeding(dropped, spelled("id int4 1", "a text 4"))
    assert numbers(again) == {"id": 1, "a": 4}
    assert "  reserved 2, 3, 10003;\n" in again
    assert '  reserved "b", "b_text";\n' in again
    assert succeeding(again, spelled("id int4 1", "a text 4")) == again
    compiled(again)


def test_a_column_that_is_renamed_keeps_its_number() -> None:
    first = spelled("id int4 1", "a text 2")
    renamed = succeeding(first, spelled("id int4 1", "b text 2", "a text 3"))
    assert numbers(renamed) == {"id": 1, "b": 2, "a": 3}
    assert "reserved" not in renamed


def test_a_number_in_doubt_changes_no_field() -> None:
    """Readers of the former schema would miss the column: to them its field would be another one."""
    first = spelled("id int4 1", "a text 2", "b text 3")
    in_doubt = succeeding(first, spelled("id int4 0", "a text 0", "c text 0", "b text 0"))
    assert numbers(in_doubt) == {"id": 1, "a": 2, "c": 20_000, "b": 3}
    certain = succeeding(in_doubt, spelled("id int4 1", "a text 2", "c text 4", "b text 3"))
    assert numbers(certain) == {"id": 1, "a": 2, "c": 20_000, "b": 3}
    renamed = succeeding(certain, spelled("id int4 1", "a text 2", "d text 4", "b text 3"))
    assert numbers(renamed) == {"id": 1, "a": 2, "d": 20_000, "b": 3}
    another = succeeding(certain, spelled("id int4 1", "a text 2", "c text 9", "b text 3"))
    assert numbers(another) == {"id": 1, "a": 2, "c": 9, "b": 3}
    assert "  reserved 20000;\n" in another
    with_texts = succeeding(another, spelled("id int4 1", "a text 2", "b text 3", "e text[] 0", beyond="text"))
    assert numbers(with_texts)["e"] == 20_002
    for each in (in_doubt, certain, renamed, another, with_texts):
        compiled(each)


def test_a_number_that_an_earlier_column_had_is_not_given_again() -> None:
    """The stream may name a column that has been dropped, and the catalog one that came in its place."""
    first = spelled("id int4 1", "a text 5")
    other = succeeding(first, spelled("id int4 1", "b text 6"))
    assert numbers(succeeding(other, spelled("id int4 1", "b text 6", "c text 5"))) == {"id": 1, "b": 6, "c": 20_000}


@pytest.mark.parametrize(
    ("was", "now"),
    [
        *(("int4", "int8"), ("int8", "int4"), ("int4", "bool"), ("text", "bytea"), ("int4", "text")),
        *(("float4", "float8"), ("text", "text[]"), ("timestamptz", "text"), ("text[]", "bytea[]")),
        *(("timestamp", "timestamptz"), ("int4[]", "int8[]")),
    ],
)
def test_other_types_of_a_field_are_told(was: str, now: str) -> None:
    former, new = spelled("id int4 1", f"a {was} 2"), spelled("id int4 1", f"a {now} 2")
    assert misread(former, new) == (f"column a was {was} and is {now}",)
    assert misread(former, spelled("id int4 1", f"a {now} 3")) == ()


@pytest.mark.parametrize(
    ("was", "now"),
    [
        *(("text", "varchar(5)"), ("numeric(6,2)", "numeric(8,3)"), ("date", "timestamp"), ("int2", "int4")),
        *(("json", "text"), ("oid", "int8"), ("uuid[]", "text[]"), ("timestamptz(3)", "timestamptz")),
    ],
)
def test_the_same_type_of_a_field_is_read_as_it_is(was: str, now: str) -> None:
    assert misread(spelled("id int4 1", f"a {was} 2"), spelled("id int4 1", f"b {now} 2")) == ()


def test_a_registry_may_lay_it_out_anew() -> None:
    anew = re.sub(r"\s*\n\s*", "\n\n      ", TEXT.replace(" = ", "  =\n").replace("; }", ";\n}"))
    assert is_same_schema(TEXT, anew)
    assert is_same_schema(TEXT, "// Proto schema formatted by Wire, do not edit.\n/* // { */\n" + TEXT)
    assert is_same_schema(TEXT, re.sub(" *//.*\n", "", TEXT)), "a registry may drop the comments"
    assert not is_same_schema(TEXT, TEXT.replace('"numeric"', '"text"')), "the comments are a part of it"
    for one, other in (("= 3", "= 4"), ("int64", "int32"), ("Größe", "größe"), ("optional string note", "string note")):
        assert not is_same_schema(TEXT, TEXT.replace(one, other)), one
    assert not is_same_schema(TEXT, "{}")


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ("package shop.public;\n", "", "package"),
        ("package shop.public", "package shop", "package"),
        ("package shop.public", "package _u110000_.public", r"character|chr"),
        ("package shop.public", "package shop.other", "package shop.other"),
        ("message orders", "message Orders", "message Orders"),
        ('// {"table"', '// "table"', "the message is not a JSON object"),
        ('// {"table":["public","orders"],', "// {", "the message has no table"),
        ('["public","orders"]', '["public"]', "not a namespace and a name"),
        ('["public","orders"]', '["public",1]', "does not consist of names"),
        ('"key":["id"]', '"key":"id"', "the message has no key"),
        ('"key":["id"]', '"key":["note"]', "int64 id"),
        ('"number":1}', '"number":"1"}', "field 1 has no number"),
        ('"type":"int8"', '"type":8', "field 1 has no type"),
        ('"type":"int8"', '"type":"int4"', "int64 id"),
        ('// {"name":"tags"', '// {"name":', "field 4 is not a JSON object"),
        ('// {"name":"note"', '// {"name":"id"', "two fields have the same name"),
        ("optional string note", "string note", "string note"),
        ("= 10004", "= 10005", "placed_at_text"),
        ("note = 20000;", "note = 20000 [deprecated = true];", "deprecated"),
        ("message StringArray", "message Strings", "Strings"),
        ("Element { optional", "Element { string more = 2; optional", "more"),
        ('"proto3"', '"proto2"', "proto2"),
        ('import "google/protobuf/timestamp.proto";\n', "", "timestamp|//"),
    ],
)
def test_other_schemas_are_refused(one: str, other: str, said: str) -> None:
    assert one in TEXT
    with pytest.raises(ValueError, match=said):
        read_schema(TEXT.replace(one, other))


@pytest.mark.parametrize("schema", ["", "{}", "\0", "message t {}"])
def test_what_is_no_schema_is_refused(schema: str) -> None:
    with pytest.raises(ValueError, match="not written by cdc"):
        read_schema(schema)


def test_as_many_columns_as_a_table_can_have() -> None:
    schema = spelled(*(f"c{number} int2 {number}" for number in range(1, 1_601)))
    assert len(compiled(schema).message.DESCRIPTOR.fields) == 1_600
    assert succeeding(schema, schema) == schema
