"""Values, byte for byte: what each type's texts are written as, what is refused, and what damage is noticed."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from cdc.contract.change import UNCHANGED_TOAST, Column
from cdc.contract.formats.cells import BeyondType
from cdc.contract.formats.format import NOT_ENCODABLE
from cdc.contract.formats.json_format import JSON
from cdc.contract.formats.opener import ValueOpener
from cdc.contract.formats.protobuf.reader import ProtobufReader
from cdc.contract.formats.protobuf.wire import head, signed, varint
from cdc.contract.formats.protobuf.writer import ProtobufWriter
from cdc.contract.formats.varints import read_unsigned
from cdc.contract.pgtypes import BUILTIN_NAMES
from cdc.contract.record import TableSchema, WrittenSchema
from tests.unit.contract.formats.avro.tables import column
from tests.unit.contract.formats.protobuf.tables import schema_of, spelled

HEAD = b"\x00\x00\x00\x00\x07\x00"
# By hand, from the specification: the tag of field 1, then the value
GOLDEN: list[tuple[str, str, str, str]] = [
    ("bool", "t", "08 01", "true"),
    ("bool", "f", "08 00", "false"),
    ("int2", "-32768", "08 8080feffffffffffff01", "-32768"),
    ("int4", "0", "08 00", "0"),
    ("int4", "-1", "08 ffffffffffffffffff01", "-1"),
    ("int4", "127", "08 7f", "127"),
    ("int4", "128", "08 8001", "128"),
    ("int4", "16384", "08 808001", "16384"),
    ("int4", "2147483647", "08 ffffffff07", "2147483647"),
    ("int8", "9223372036854775807", "08 ffffffffffffffff7f", "9223372036854775807"),
    ("int8", "-9223372036854775808", "08 80808080808080808001", "-9223372036854775808"),
    ("oid", "4000000000", "08 80d0acf30e", "4000000000"),
    ("float4", "1.5", "0d 0000c03f", "1.5"),
    ("float4", "-0", "0d 00000080", "-0"),
    ("float8", "0.1", "09 9a9999999999b93f", "0.1"),
    ("float8", "-Infinity", "09 000000000000f0ff", '"-Infinity"'),
    ("numeric", "1.10", "0a04 312e3130", '"1.10"'),
    ("numeric", "NaN", "0a03 4e614e", '"NaN"'),
    ("date", "infinity", "0a08 696e66696e697479", '"infinity"'),
    ("timestamptz", "1970-01-01 00:00:00+00", "0a00", '"1970-01-01 00:00:00+00"'),
    ("timestamptz", "1970-01-01 00:00:01.5+00", "0a08 0801 1080cab5ee01", '"1970-01-01 00:00:01.5+00"'),
    ("timestamptz", "1969-12-31 23:59:59.999999+00", "0a11 08ffffffffffffffffff01 10988cebdc03", ""),
    ("timestamptz", "infinity", "8af104 08 696e66696e697479", '"infinity"'),
    ("bytea", "\\x", "0a00", '"\\\\x"'),
    ("bytea", "\\x00ff", "0a02 00ff", '"\\\\x00ff"'),
    ("json", ' {"a" : 1}', "0a0a 207b226122203a20317d", ' {"a" : 1}'),
    ("jsonb", "null", "0a04 6e756c6c", "null"),
    ("text", "", "0a00", '""'),
    ("text", 'é"', "0a03 c3a922", '"é\\""'),
    ("int4[]", "{}", "0a00", "[]"),
    ("int4[]", "{1,NULL,0}", "0a0a 0a020801 0a00 0a020800", "[1,null,0]"),
    ("int4[]", "{{1},{2}}", "8af104 09 7b7b317d2c7b327d7d", "[[1],[2]]"),
    ("int4[]", "[2:2]={7}", "8af104 09 5b323a325d3d7b377d", '"[2:2]={7}"'),
    ("text[]", '{a,"",NULL}', "0a0b 0a030a0161 0a020a00 0a00", '["a","",null]'),
    ("float8[]", "{0.1}", "0a0b 0a09099a9999999999b93f", "[0.1]"),
    ("json[]", '{"null"}', "8af104 08 7b226e756c6c227d", '"{\\"null\\"}"'),
    ("public.mood", "ok", "0a02 6f6b", '"ok"'),
    ("public._mood", "{ok,NULL}", "0a08 0a040a026f6b 0a00", '["ok",null]'),
]  # fmt: skip


def of_type(spelled_type: str, name: str = "c") -> Column:
    """A column of a type, with the name of the stream: ``int4[]`` is ``_int4`` there. Its number is 1."""
    is_array = spelled_type.endswith("[]")
    return column(name, f"_{spelled_type[:-2]}" if is_array else spelled_type, number=1)


def written(of: Column, cell: bytes | None, **how: Any) -> bytes:
    return ProtobufWriter([of], schema_of(of, **how), 7).encode((cell,))


@pytest.mark.parametrize(("type_name", "text", "hexadecimal", "shown"), GOLDEN)
def test_golden(type_name: str, text: str, hexadecimal: str, shown: str) -> None:
    of = of_type(type_name)
    value = written(of, text.encode())
    if "8af104" in hexadecimal:  # the tag of field 10001
        hexadecimal = hexadecimal.replace("8af104", tag_of_texts().hex())
    assert value.hex(" ") == (HEAD + bytes.fromhex(hexadecimal)).hex(" ")
    expected = JSON.writer([of]).encode((text.encode(),))
    assert ProtobufReader(schema_of(of)).json(value) == expected
    if shown:
        assert expected.decode() == f'{{"c":{shown}}}'


def tag_of_texts() -> bytes:
    return varint(10_001 << 3 | 2)


@pytest.mark.parametrize("type_name", sorted(set(BUILTIN_NAMES.values()) | {"public.mood", "public._mood"}))
def test_null_and_what_was_not_sent(type_name: str) -> None:
    of = column("c", type_name, number=1)
    assert written(of, None) == HEAD
    assert ProtobufReader(schema_of(of)).json(HEAD) == b'{"c":null}'
    for row in ((UNCHANGED_TOAST,), (), (b"1", b"2")):
        with pytest.raises(NOT_ENCODABLE):
            ProtobufWriter([of], schema_of(of), 7).encode(row)


def test_the_key_is_always_there() -> None:
    of = of_type("int4")
    assert written(of, b"0", key=("c",)) == HEAD + b"\x08\x00"
    with pytest.raises(ValueError, match="column 'c': a column of the key is missing"):
        ProtobufReader(schema_of(of, key=("c",))).json(HEAD)
    with pytest.raises(ValueError, match="NULL in a key column"):
        written(of, None, key=("c",))


def test_fields_come_in_the_order_of_their_numbers() -> None:
    columns = [column("b", "text", number=3), column("id", "int4", number=1), column("a", "_int4", number=2)]
    schema = schema_of(*columns, key=("id",))
    writer, reader = ProtobufWriter(columns, schema, 7), ProtobufReader(schema)
    value = writer.encode((b"x", b"7", b"{{1}}"))
    assert value == HEAD + b"\x08\x07" + varint(10_002 << 3 | 2) + b"\x05{{1}}" + b"\x1a\x01x"
    assert reader.json(value) == b'{"b":"x","id":7,"a":[[1]]}'
    with pytest.raises(ValueError, match="column 'id': the field comes twice, or at the wrong place"):
        reader.json(HEAD + b"\x1a\x01x" + b"\x08\x07")


@pytest.mark.parametrize(
    ("type_name", "text"),
    [
        *(("timestamptz", "infinity"), ("timestamptz", "10000-01-01 00:00:00+00")),
        *(("timestamptz", "0044-03-15 00:00:00+00 BC"), ("timestamptz", "2026-01-01 00:00:00+01")),
        *(("int4[]", "{{1}}"), ("int4[]", "[0:0]={1}"), ("timestamptz[]", "{infinity}"), ("json[]", "{null}")),
    ],
)
def test_what_does_not_fit_is_refused_and_named(type_name: str, text: str) -> None:
    of = of_type(type_name)
    writer = ProtobufWriter([of], schema_of(of, beyond="refuse"), 7)
    if text == "{null}":  # PostgreSQL spells NULL in any case; the document is in quotes
        text = '{"null"}'
    with pytest.raises(
        BeyondType, match=r"does not fit into Protobuf's \S+; with topics\.beyond: text, a second field"
    ):
        writer.encode((text.encode(),))
    assert "topics.beyond: text" in writer.problem(0, text.encode())


@pytest.mark.parametrize(
    ("type_name", "text"),
    [
        *(
            ("bool", "true"),
            ("int2", "32768"),
            ("int4", "2147483648"),
            ("int8", "x"),
            ("float4", "1e60"),
            ("bytea", "00"),
        ),
        *(("text", b"\xff"), ("timestamptz", 'a"'), ("float8", "")),
    ],
)
def test_what_is_not_a_value_is_refused(type_name: str, text: str | bytes) -> None:
    of = of_type(type_name)
    cell = text if isinstance(text, bytes) else text.encode()
    writer = ProtobufWriter([of], schema_of(of), 7)
    with pytest.raises(NOT_ENCODABLE):
        writer.encode((cell,))
    assert writer.problem(0, cell)


IN_ORDER = spelled(
    "id int4 1", "at timestamptz 2", "tags text[] 3", "doc json 4", "flag bool 5", "x float8 6", "n int2 7"
)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("", "column 'id': a column of the key is missing"),
        ("08", "column 'id': the value ends too early"),
        ("0801 12", "column 'at': the value ends too early"),
        ("0801 1202 08", "column 'at': a length of 2 is longer than the rest"),
        ("0801 1202 1001", "column 'at': not a timestamp of whole microseconds"),
        ("0801 1206 1080a8d6b907", "column 'at': not a timestamp of whole microseconds"),
        ("0801 120b 0880808080808080808001", "column 'at'"),
        ("0801 120a 08ffffffffffffff7f", "column 'at'"),
        ("0801 1202 1801", "column 'at': not a timestamp"),
        ("0801 1a02 1200", "column 'tags': not an element of an array"),
        ("0801 1a04 0a020801", "column 'tags': not the value of an element"),
        ("0801 1a05 0a030a0078", "column 'tags': an element does not end with its value"),
        ("0801 1a03 0a0578", "column 'tags': a length of 5"),
        ("0801 1a05 0a030a01ff", r"column 'tags'.*utf-8"),
        ("0801 2200", "column 'doc': a document is empty"),
        ("0801 2201ff", "column 'doc'"),
        ("0801 2802", "column 'flag': not a boolean: 2"),
        ("0801 3100000000", "column 'x': the value ends too early"),
        ("0801 38808002", "column 'n': a number of more than 16 bits: 32768"),
        ("08ffffffff0f", "column 'id': a number of more than 32 bits"),
        ("088100", "column 'id': a number is longer than it needs to be"),
        ("08ffffffffffffffffffff01", "column 'id': a number is longer than 10 bytes"),
        ("08ffffffffffffffffff7f", "column 'id': a number has more than 64 bits"),
        ("0801 0801", "column 'id': the field comes twice"),
        ("0801 2801 1200", "column 'at': the field comes twice, or at the wrong place"),
        ("0801 4001", "column 'id': then comes tag 64: field 8"),
        ("0a0131", "at its beginning: then comes tag 10: field 1 has another type"),
        ("0801 00", "then comes tag 0"),
    ],
)
def test_damage_is_told_with_its_place(body: str, said: str) -> None:
    with pytest.raises(ValueError, match=f"not a value of its schema, .*{said}"):
        ProtobufReader(IN_ORDER).json(HEAD + bytes.fromhex(body))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"", "it has only 0 bytes"),
        (HEAD[:4], "it has only 4 bytes"),
        (HEAD[:5], "not the first message of its schema"),
        (b"\x01" + HEAD[1:] + b"\x08\x01", "begins with 0x01"),
        (HEAD[:5] + b"\x02\x00\x08\x01", "not the first message of its schema: 000000000702"),
    ],
)
def test_other_heads_are_refused(value: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ProtobufReader(IN_ORDER).json(value)


def test_a_writer_for_other_columns_is_refused() -> None:
    schema = spelled("c int4 1")
    for other in (column("c", "int8"), column("d", "int4")):
        with pytest.raises(ValueError, match="other columns"):
            ProtobufWriter([other], schema, 7)
    for number in (-1, 1 << 32):
        with pytest.raises(ValueError, match="not a schema id"):
            ProtobufWriter([column("c", "int4")], schema, number)
    assert head(0xFFFFFFFF) == b"\0\xff\xff\xff\xff\0"


def test_numbers_of_any_length() -> None:
    for bits in range(65):
        for number in ((1 << bits) - 1, 1 << bits, -(1 << bits)):
            if -(1 << 63) <= number < 1 << 63:
                found, place = read_unsigned(varint(number) + b"x", 0)
                assert (signed(found), place) == (number, len(varint(number)))
    assert struct.calcsize("<d") == 8


def test_an_opener_reads_each_value_with_its_own_schema() -> None:
    of = of_type("text")
    schema = schema_of(of)
    definition = TableSchema("f", "public", "t", "t", (), (), written=(WrittenSchema(7, schema, "protobuf"),))
    opener = ValueOpener([definition])
    assert opener.json(written(of, b"x")) == b'{"c":"x"}'
    assert opener.json(b'{"c":1}') == b'{"c":1}'
    with pytest.raises(ValueError, match="the value has schema 8, which is in no definition"):
        opener.json(head(8))
