"""Values, byte for byte: what each type's texts are written as, what is refused, and what damage is noticed."""

from __future__ import annotations

import json
import random
import struct
from typing import Any

import fastavro
import pytest

from cdc.contract.change import UNCHANGED_TOAST, Column, Row
from cdc.contract.formats.avro.binary import read_varint, varint
from cdc.contract.formats.avro.reader import AvroReader
from cdc.contract.formats.avro.writer import AvroWriter
from cdc.contract.formats.cells import BeyondType
from cdc.contract.formats.format import NOT_ENCODABLE
from cdc.contract.formats.json_format import JSON
from cdc.contract.formats.registered import check_head, head
from cdc.contract.pgtypes import BUILTIN_NAMES
from tests.unit.contract.formats.avro.tables import NUMERIC_10_2, column, schema_of

HEAD = b"\x00\x00\x00\x00\x07"
INT = column("c", "int4")
# By hand, from the specification: the branch 1 of the union, then the value
GOLDEN: list[tuple[str, str, str, str]] = [
    ("bool", "t", "02 01", "true"),
    ("bool", "f", "02 00", "false"),
    ("int2", "-32768", "02 ffff03", "-32768"),
    ("int4", "0", "02 00", "0"),
    ("int4", "-1", "02 01", "-1"),
    ("int4", "1", "02 02", "1"),
    ("int4", "-64", "02 7f", "-64"),
    ("int4", "64", "02 8001", "64"),
    ("int4", "8192", "02 808001", "8192"),
    ("int4", "2147483647", "02 feffffff0f", "2147483647"),
    ("int4", "-2147483648", "02 ffffffff0f", "-2147483648"),
    ("int8", "9223372036854775807", "02 feffffffffffffffff01", "9223372036854775807"),
    ("int8", "-9223372036854775808", "02 ffffffffffffffffff01", "-9223372036854775808"),
    ("oid", "4000000000", "02 80a0d9e61d", "4000000000"),
    ("float4", "1.5", "02 0000c03f", "1.5"),
    ("float4", "3.3", "02 33335340", "3.3"),
    ("float4", "-0", "02 00000080", "-0"),
    ("float4", "NaN", "02 0000c07f", '"NaN"'),
    ("float8", "0.1", "02 9a9999999999b93f", "0.1"),
    ("float8", "1e+20", "02 408cb5781daf1544", "1e+20"),
    ("float8", "-Infinity", "02 000000000000f0ff", '"-Infinity"'),
    ("numeric", "1.10", "02 08 312e3130", '"1.10"'),
    ("numeric", "NaN", "02 06 4e614e", '"NaN"'),
    ("numeric(10,2)", "0.00", "02 02 00", '"0.00"'),
    ("numeric(10,2)", "1.27", "02 02 7f", '"1.27"'),
    ("numeric(10,2)", "1.28", "02 04 0080", '"1.28"'),
    ("numeric(10,2)", "-1.28", "02 02 80", '"-1.28"'),
    ("numeric(10,2)", "-0.05", "02 02 fb", '"-0.05"'),
    ("numeric(10,2)", "99999999.99", "02 0a 02540be3ff", '"99999999.99"'),
    ("numeric(10,2)", "NaN", "04 06 4e614e", '"NaN"'),
    ("date", "1970-01-01", "02 00", '"1970-01-01"'),
    ("date", "1969-12-31", "02 01", '"1969-12-31"'),
    ("date", "2000-01-01", "02 9aab01", '"2000-01-01"'),
    ("date", "infinity", "04 10 696e66696e697479", '"infinity"'),
    ("date", "0044-03-15 BC", "04 1a 303034342d30332d3135204243", '"0044-03-15 BC"'),
    ("time", "00:00:00.000001", "02 02", '"00:00:00.000001"'),
    ("time", "00:00:01", "02 80897a", '"00:00:01"'),
    ("time", "24:00:00", "04 10 32343a30303a3030", '"24:00:00"'),
    ("timetz", "04:05:06-08", "02 16 30343a30353a30362d3038", '"04:05:06-08"'),
    ("timestamp", "1970-01-01 00:00:00.5", "02 c0843d", '"1970-01-01 00:00:00.5"'),
    ("timestamp", "1969-12-31 23:59:59.999999", "02 01", '"1969-12-31 23:59:59.999999"'),
    ("timestamptz", "1970-01-01 00:00:01+00", "02 80897a", '"1970-01-01 00:00:01+00"'),
    ("uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "02 48" + b"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11".hex(), ""),
    ("bytea", "\\x", "02 00", '"\\\\x"'),
    ("bytea", "\\x00ff", "02 04 00ff", '"\\\\x00ff"'),
    ("json", ' {"a" : 1}', "02 14 207b226122203a20317d", ' {"a" : 1}'),
    ("jsonb", "null", "02 08 6e756c6c", "null"),
    ("text", "", "02 00", '""'),
    ("text", 'é"', "02 06 c3a922", '"é\\""'),
    ("int4[]", "{}", "02 00", "[]"),
    ("int4[]", "{1,NULL,-3}", "02 06 0202 00 0205 00", "[1,null,-3]"),
    ("int4[]", "{{1},{2}}", "04 12 7b7b317d2c7b327d7d", "[[1],[2]]"),
    ("int4[]", "[2:2]={7}", "04 12 5b323a325d3d7b377d", '"[2:2]={7}"'),
    ("bool[]", "{t,NULL}", "02 04 0201 00 00", "[true,null]"),
    ("text[]", '{a,"b,c",NULL,"NULL"}', "02 08 020261 0206622c63 00 02084e554c4c 00", '["a","b,c",null,"NULL"]'),
    ("numeric(10,2)[]", "{1.00,NULL}", "02 04 020264 00 00", '["1.00",null]'),
    ("numeric(10,2)[]", "{NaN}", "04 0a 7b4e614e7d", '["NaN"]'),
    ("json[]", '{"[1, 2]",7}', "02 04 020c5b312c20325d 020237 00", "[[1, 2],7]"),
    ("json[]", "{NULL}", "02 02 00 00", "[null]"),
    ("json[]", '{"null"}', "04 10 7b226e756c6c227d", '"{\\"null\\"}"'),
    ("box[]", "{(1,1),(0,0);(2,2),(1,1)}", "02 04 021628312c31292c28302c3029 021628322c32292c28312c3129 00", ""),
    ("public.mood", "ok", "02 04 6f6b", '"ok"'),
    ("public._mood", "{ok,NULL}", "02 04 02046f6b 00 00", '["ok",null]'),
    ("public._mood", "{a b}", "04 0a 7b6120627d", '"{a b}"'),  # an enum's label: array_out would quote it
    ("public._mood", "ok", "04 04 6f6b", '"ok"'),
]  # fmt: skip


def of_type(spelled: str, name: str = "c") -> Column:
    """A column of a type, with the name of the stream: ``int4[]`` is ``_int4`` there."""
    base, bracket, _ = spelled.removesuffix("[]").partition("(")
    return column(name, f"_{base}" if spelled.endswith("[]") else base, NUMERIC_10_2 if bracket else -1)


def written(of: Column, cell: bytes | None, **how: Any) -> bytes:
    return AvroWriter([of], schema_of(of, **how), 7).encode((cell,))


@pytest.mark.parametrize(("spelled", "text", "hexadecimal", "shown"), GOLDEN)
def test_golden(spelled: str, text: str, hexadecimal: str, shown: str) -> None:
    of = of_type(spelled)
    value = written(of, text.encode())
    assert value.hex(" ") == (HEAD + bytes.fromhex(hexadecimal)).hex(" ")
    expected = JSON.writer([of]).encode((text.encode(),))
    assert AvroReader(schema_of(of)).json(value) == expected
    if shown:
        assert expected.decode() == f'{{"c":{shown}}}'


@pytest.mark.parametrize("type_name", sorted(set(BUILTIN_NAMES.values()) | {"public.mood", "public._mood"}))
def test_null_and_what_was_not_sent(type_name: str) -> None:
    of = column("c", type_name)
    assert written(of, None) == HEAD + b"\x00"
    assert AvroReader(schema_of(of)).json(HEAD + b"\x00") == b'{"c":null}'
    for row in ((UNCHANGED_TOAST,), (), (b"1", b"2")):
        with pytest.raises(NOT_ENCODABLE):
            AvroWriter([of], schema_of(of), 7).encode(row)


def test_keys_have_no_branch_unless_they_may_hold_a_text() -> None:
    assert written(INT, b"7", key=("c",)) == HEAD + b"\x0e"
    day = column("c", "date")
    assert written(day, b"1970-01-02", key=("c",), beyond="refuse") == HEAD + b"\x02"
    assert written(day, b"1970-01-02", key=("c",)) == HEAD + b"\x00\x02"
    assert written(day, b"-infinity", key=("c",)) == HEAD + b"\x02\x12-infinity"
    assert AvroReader(schema_of(day, key=("c",))).json(HEAD + b"\x02\x12-infinity") == b'{"c":"-infinity"}'
    with pytest.raises(ValueError, match="NULL in a key column"):
        written(INT, None, key=("c",))


@pytest.mark.parametrize(
    ("spelled", "text"),
    [
        ("numeric(10,2)", "NaN"),
        ("numeric(10,2)", "Infinity"),
        ("numeric(10,2)", "1.5"),
        ("numeric(10,2)", "1.500"),
        ("numeric(10,2)", "100000000.00"),
        ("numeric(10,2)", "-100000000.00"),
        ("numeric(10,2)", "9" * 5000),
        ("date", "infinity"),
        ("date", "10000-01-01"),
        ("date", "0044-03-15 BC"),
        ("timestamp", "-infinity"),
        ("timestamp", "0044-03-15 00:00:00 BC"),
        ("timestamp", "10000-01-01 00:00:00"),
        ("timestamptz", "10000-01-01 00:00:00+00"),
        ("timestamptz", "2026-01-01 00:00:00+02"),  # not in UTC: it would come back with another offset
        ("timestamptz", "2026-01-01 00:00:00"),
        ("timestamp", "2026-01-01 00:00:00.50"),
        ("timestamp", "2026-01-01 24:00:00"),
        ("timestamp", "2026-01-01T00:00:00"),
        ("timestamp", "2026-02-30 00:00:00"),
        ("date", "2026-W01-1"),
        ("date", "0000-01-01"),
        ("time", "00:00:60"),
        ("time", "00:00:00.10"),
        ("time", "24:00:00"),
        ("int4[]", "{{1}}"),
        ("int4[]", "[2:2]={1}"),
        ("date[]", "{infinity}"),
        ("numeric(10,2)[]", "{1.00,NaN}"),
        ("jsonb[]", '{"null"}'),
        ("public._mood", "ok"),
        ("public._mood", "{{ok}}"),
    ],
)
def test_what_is_beyond_a_type_is_text_or_refused(spelled: str, text: str) -> None:
    of, cell = of_type(spelled), text.encode()
    value = written(of, cell)
    assert value == HEAD + b"\x04" + varint(len(cell)) + cell
    assert AvroReader(schema_of(of)).json(value) == JSON.writer([of]).encode((cell,))
    refusing = AvroWriter([of], schema_of(of, beyond="refuse"), 7)
    with pytest.raises(BeyondType, match=r"does not fit into Avro's .*; with topics\.beyond: text, the field holds"):
        refusing.encode((cell,))
    assert "topics.beyond: text" in refusing.problem(0, cell)


@pytest.mark.parametrize(
    ("spelled", "cell"),
    [
        ("bool", b"maybe"),
        ("int4", b"2147483648"),
        ("int2", b"32768"),
        ("int8", b"9223372036854775808"),
        ("int4", b"x"),
        ("float8", b"x"),
        ("float4", b"1e39"),
        ("bytea", b"abc"),
        ("bytea", b"\\x0"),
        ("text", b"\xff"),
        ("date", b'"'),
        ("date", b"\xff"),
        ("bool[]", b"{maybe}"),
        ("text[]", b"{a"),
        ("text[]", b""),
        ("text[]", b"{\xff}"),
    ],
)
def test_what_is_not_of_a_type_is_a_problem_of_its_column(spelled: str, cell: bytes) -> None:
    of = of_type(spelled)
    for writer in (AvroWriter([of], schema_of(of), 7), AvroWriter([of], schema_of(of, beyond="refuse"), 7)):
        with pytest.raises(NOT_ENCODABLE):
            writer.encode((cell,))
        assert writer.problem(0, cell)
        assert not writer.problem(0, JSON_OF[spelled])


JSON_OF = {
    "bool": b"t", "int2": b"1", "int4": b"1", "int8": b"1", "float4": b"1", "float8": b"1", "bytea": b"\\x00",
    "text": b"a", "date": b"2026-01-01", "bool[]": b"{t}", "text[]": b"{a}",
}  # fmt: skip


def test_a_writer_has_no_template_and_knows_null_documents() -> None:
    columns = [column("a", "json"), column("b", "jsonb"), column("c", "_json")]
    writer = AvroWriter(columns, schema_of(*columns), 7)
    assert writer.bare_template is None
    assert writer.null_documents((b" null ", b"null", b"{}")) == (0, 1)
    assert writer.null_documents((None, UNCHANGED_TOAST, None)) == ()


def test_a_writer_needs_its_own_schema() -> None:
    for other in (column("d", "int4"), column("c", "int8")):
        with pytest.raises(ValueError, match="other columns"):
            AvroWriter([other], schema_of(INT), 7)
    for number in (-1, 1 << 32):
        with pytest.raises(ValueError, match="not a schema id"):
            AvroWriter([INT], schema_of(INT), number)


def test_schema_ids() -> None:
    assert HEAD == head(7) == b"\0\0\0\0\7"
    assert head(0xFFFFFFFF) == b"\0\xff\xff\xff\xff"
    for value in (b"", b"\0\0\0\0", b'{"a":1}'):
        with pytest.raises(ValueError, match="Confluent's wire format"):
            check_head(value)
        with pytest.raises(ValueError, match="Confluent's wire format"):
            AvroReader(schema_of(INT)).json(value)


@pytest.mark.parametrize(
    ("spelled", "hexadecimal", "said"),
    [
        ("int4", "", "ends too early"),
        ("int4", "02", "ends too early"),
        ("int4", "02 80", "ends too early"),
        ("float4", "02 000000", "ends too early"),
        ("float8", "02 00000000000000", "ends too early"),
        ("int4", "02 02 00", "1 bytes follow the last column"),
        ("int4", "04 02", "no branch 4"),
        ("date", "06 02", "no branch 6"),
        ("int4", "01", "no branch 1"),
        ("bool", "02 02", "not a boolean"),
        ("text", "02 01 61", "a length is negative"),
        ("text", "02 04 61", "longer than the rest"),
        ("bytea", "02 feffffffffffffffff01", "longer than the rest"),
        ("text", "02 02 ff", "utf-8"),
        ("json", "02 02 ff", "utf-8"),
        ("int4", "02 80 80 80 80 80 80 80 80 80 80 01", "longer than 10 bytes"),
        ("int8", "02 ff ff ff ff ff ff ff ff ff 7f", "more than 64 bits"),
        ("int4", "02 80 00", "longer than it needs"),
        ("int4", "02 80 80 80 80 10", "more than 32 bits"),
        ("int2", "02 80 80 04", "more than 16 bits"),
        ("numeric(10,2)", "02 00", "not a decimal of at most 10 digits"),
        ("numeric(10,2)", "02 0a 02540be400", "not a decimal of at most 10 digits"),
        ("date", "02 ffffffff0f", "outside the years 1 to 9999"),
        ("date", "02 c282e602", "outside the years 1 to 9999"),
        ("timestamp", "02 feffffffffffffffff01", "outside the years 1 to 9999"),
        ("timestamptz", "02 ffffffffffffffffff01", "outside the years 1 to 9999"),
        ("time", "02 01", "not a time of day"),
        ("time", "02 80e0ba84bf05", "not a time of day"),
        ("int4[]", "02 03 04 02 02 02 02 00", "a number of elements is negative"),
        ("int4[]", "02 feffffffffffffffff01", "more than the rest"),
        ("int4[]", "02 02 04 02 00", "no branch 4"),
        ("int4[]", "02 02 02 02", "ends too early"),
        ("int4[]", "04 06 7b787d", "not the text of an array"),
        ("bool[]", "04 06 7b787d", "not the text of an array"),
        ("text[]", "04 00", "not the text of an array"),
    ],
)
def test_damage_is_noticed(spelled: str, hexadecimal: str, said: str) -> None:
    reader = AvroReader(schema_of(of_type(spelled, "größe")))
    with pytest.raises(ValueError, match=said) as caught:
        reader.json(HEAD + bytes.fromhex(hexadecimal))
    assert "'größe'" in str(caught.value) or "follow" in said


@pytest.mark.parametrize("spelled", ["int4[]", "text[]", "public._mood", "json[]"])
@pytest.mark.parametrize("depth", [300, 3_000])
def test_arrays_that_are_nested_too_deep_are_refused_or_read(spelled: str, depth: int) -> None:
    of, text = of_type(spelled), b"{" * depth + b"1" + b"}" * depth
    try:
        found = AvroReader(schema_of(of)).json(HEAD + b"\x04" + varint(len(text)) + text)
    except ValueError:
        return
    assert found[:5] == b'{"c":'


def test_an_array_may_come_in_several_blocks() -> None:
    of = of_type("int4[]")
    assert AvroReader(schema_of(of)).json(HEAD + bytes.fromhex("02 02 0202 04 0204 00 00")) == b'{"c":[1,2,null]}'


def test_varints() -> None:
    rng = random.Random(7)
    numbers = [sign * (1 << bits) + more for bits in range(63) for sign in (1, -1) for more in (-1, 0, 1)]
    for number in (*numbers, -(1 << 63), (1 << 63) - 1, *(rng.randrange(-(1 << 63), 1 << 63) for _ in range(1_000))):
        raw = varint(number)
        assert read_varint(b"x" + raw + b"y", 1) == (number, 1 + len(raw))
        rest, found = (number << 1) ^ (number >> 63), bytearray()
        while rest > 0x7F:
            found.append(rest & 0x7F | 0x80)
            rest >>= 7
        assert raw == bytes((*found, rest))


def test_names_that_are_no_identifiers_or_differ_in_case_only() -> None:
    names = ("a", "A", "é", "E", "%s", "%b", '"', "\\", "a b", "1", "_u31_", "select", "x" * 63)
    columns = [column(name, "int4") for name in names]
    row = tuple(b"%d" % number for number in range(len(names)))
    value = AvroWriter(columns, schema_of(*columns), 7).encode(row)
    assert AvroReader(schema_of(*columns)).json(value) == JSON.writer(columns).encode(row)
    assert json.loads(AvroReader(schema_of(*columns)).json(value)) == {name: i for i, name in enumerate(names)}


def test_a_table_of_as_many_columns_as_there_can_be() -> None:
    kinds = [("int4", b"7"), ("text", b"x"), ("date", b"infinity"), ("_int4", b"{1,NULL}"), ("float4", b"0.1")]
    columns = [column(f"Column {n}", kinds[n % 5][0]) for n in range(1_600)]
    row: Row = tuple(None if n % 7 == 3 else kinds[n % 5][1] for n in range(1_600))
    text = schema_of(*columns)
    value = AvroWriter(columns, text, 7).encode(row)
    assert AvroReader(text).json(value) == JSON.writer(columns).encode(row)
    parsed = fastavro.parse_schema(json.loads(text))
    assert isinstance(parsed, dict)
    assert len(parsed["fields"]) == 1_600


def test_a_table_without_columns() -> None:
    assert AvroWriter([], schema_of(), 7).encode(()) == HEAD
    assert AvroReader(schema_of()).json(HEAD) == b"{}"


def test_the_reader_tells_the_table() -> None:
    found = AvroReader(schema_of(INT, key=("c",))).table
    assert (found.bridge, found.table.qualified_name, found.table.key) == ("shop", "public.orders", ("c",))


def test_reals_are_those_that_the_text_means() -> None:
    # 1 + 2**-24 lies in the middle between two reals. A little more is nearer to the next one, which no double tells
    text = "1.000000059604644775390625000000000000000000000000001"
    assert written(column("c", "float4"), text.encode()) == HEAD + b"\x02" + struct.pack("<f", 1.0000001)
