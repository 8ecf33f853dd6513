"""A topic's value as PostgreSQL's texts: nothing is rounded, trimmed or re-rendered, and what is wrong is said."""

from __future__ import annotations

import pytest

from cdc.base.errors import DecodeError
from cdc.spark.values.columns import ArrayOf, Kind, Scalar, column_text, kind_of, row_texts
from cdc.spark.values.objects import split_array, split_object, unquote

NUMBER, BOOL, TEXT, JSON = Scalar.NUMBER, Scalar.BOOL, Scalar.TEXT, Scalar.JSON


def test_members_keep_their_text() -> None:
    text = '{"a":1.50,"b":"x\\u00e9,}","c": {"k" : [1e2, "}"]} ,"d":12345678901234567890123.00,"":null}'
    assert split_object(text) == {
        "a": "1.50",
        "b": '"x\\u00e9,}"',
        "c": ' {"k" : [1e2, "}"]} ',
        "d": "12345678901234567890123.00",
        "": "null",
    }
    assert split_object(" { } ") == {}
    assert split_object('{"n":' + "9" * 5000 + "}")["n"] == "9" * 5000
    deep = "[" * 100_000 + '"]"' + "]" * 100_000
    assert split_object(f'{{"d":{deep},"e":{{}}}}') == {"d": deep, "e": "{}"}
    assert split_object('{"d":{"a":1,"a":2}}') == {"d": '{"a":1,"a":2}'}


def test_elements_keep_their_text() -> None:
    assert split_array('[1.0,"a,b",[1,2], null ]') == ["1.0", '"a,b"', "[1,2]", " null "]
    assert split_array("[ ]") == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "expected an object"),
        ("[]", "expected an object"),
        ("null", "expected an object"),
        ("{", "member's name"),
        ("{]", "member's name"),
        ('{"a"}', "':'"),
        ('{"a":}', "a JSON value"),
        ('{"a":1', "',' or '}'"),
        ('{"a":1 2}', "',' or '}'"),
        ('{"a":1,}', "member's name"),
        ('{"a":01}', "',' or '}'"),
        ('{"a":1}x', "the end"),
        ("{}x", "the end"),
        ('{"a":NaN}', "a JSON value"),
        ('{"a":"\n"}', "a JSON value"),
        ('{"a":1,"\\u0061":2}', "'a' comes twice"),
        ('{"a":' + "[" * 100_000 + "]" * 99_998 + "}", "a JSON value"),
    ],
)
def test_no_object(text: str, wrong: str) -> None:
    with pytest.raises(DecodeError, match=wrong):
        split_object(text)


@pytest.mark.parametrize("text", ["[1", "[1,]", "[}", "{]", "[1]x", "x"])
def test_no_array(text: str) -> None:
    with pytest.raises(DecodeError, match="expected"):
        split_array(text)


@pytest.mark.parametrize("text", ["", "x", '"', '"a"b', "1"])
def test_no_string(text: str) -> None:
    with pytest.raises(DecodeError, match="expected"):
        unquote(text)


@pytest.mark.parametrize(
    ("raw", "kind", "text"),
    [
        ("1.50", NUMBER, "1.50"),
        ("-0", NUMBER, "-0"),
        ("1e+20", NUMBER, "1e+20"),
        ('"NaN"', NUMBER, "NaN"),
        ('"-Infinity"', NUMBER, "-Infinity"),
        ("true", BOOL, "t"),
        (" false", BOOL, "f"),
        ('"a\\n\\u00e9\\""', TEXT, 'a\né"'),
        ('"null"', TEXT, "null"),
        ('"1.50"', TEXT, "1.50"),
        (' {"a" :1} ', JSON, ' {"a" :1} '),
        ("null", TEXT, None),
        ("null", JSON, None),
        ("null", ArrayOf(NUMBER), None),
        ("[]", ArrayOf(NUMBER), "{}"),
        ("[1,null,-2]", ArrayOf(NUMBER), "{1,NULL,-2}"),
        ("[[1,2],[3,4]]", ArrayOf(NUMBER), "{{1,2},{3,4}}"),
        ('[1.10,"NaN"]', ArrayOf(NUMBER), "{1.10,NaN}"),
        ("[true,false,null]", ArrayOf(BOOL), "{t,f,NULL}"),
        ('["","null","NuLl","a b","a,b","a;b","{","\\\\","\\"","\\t","é"]', ArrayOf(TEXT), None),
        ('["(1,1),(0,0)","(2,2),(1,1)"]', ArrayOf(TEXT, ";"), "{(1,1),(0,0);(2,2),(1,1)}"),
        ('[[1, 2],{"a": null},"s",null]', ArrayOf(JSON), '{"[1, 2]","{\\"a\\": null}","\\"s\\"",NULL}'),
        ('"[0:1]={a,b}"', ArrayOf(TEXT), "[0:1]={a,b}"),
    ],
)
def test_texts(raw: str, kind: Kind, text: str | None) -> None:
    if raw.startswith('["","null"'):
        text = '{"","null","NuLl","a b","a,b",a;b,"{","\\\\","\\"","\t",é}'
    assert column_text(raw, kind) == text


def test_the_document_null_is_not_null() -> None:
    assert column_text("null", JSON, json_null=True) == "null"
    assert column_text(" null", JSON, json_null=True) == " null"
    assert column_text("null", TEXT, json_null=True) is None


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        ('"1"', NUMBER),
        ("true", NUMBER),
        ("1", BOOL),
        ('"t"', BOOL),
        ("1", TEXT),
        ("{}", TEXT),
        ("1", ArrayOf(NUMBER)),
        ('["1"]', ArrayOf(NUMBER)),
        ("{}", ArrayOf(TEXT)),
    ],
)
def test_a_value_of_another_kind(raw: str, kind: Kind) -> None:
    with pytest.raises(DecodeError):
        column_text(raw, kind)


@pytest.mark.parametrize(
    ("sql_type", "kind"),
    [
        ("int4", NUMBER),
        ("float8", NUMBER),
        ("numeric(12,2)", TEXT),
        ("bool", BOOL),
        ("jsonb", JSON),
        ('"public"."json"', TEXT),
        ("char(8)", TEXT),
        ("bool[]", ArrayOf(BOOL)),
        ("box[]", ArrayOf(TEXT, ";")),
        ("timestamptz(3)[]", ArrayOf(TEXT)),
        ('"public"."mood"[]', ArrayOf(TEXT)),
    ],
)
def test_kinds_by_type(sql_type: str, kind: Kind) -> None:
    assert kind_of(sql_type) == kind


def test_a_row() -> None:
    kinds = {"id": NUMBER, "ok": BOOL, "doc": JSON, "none": JSON}
    value = '{"id":1,"ok":true,"doc":null,"none":null,"other":"é"}'.encode()
    assert row_texts(value, kinds, frozenset({"doc"})) == {
        "id": "1",
        "ok": "t",
        "doc": "null",
        "none": None,
        "other": "é",
    }
    with pytest.raises(DecodeError, match="column 'ok': not a bool: '1'"):
        row_texts(b'{"id":1,"ok":1}', kinds)
    with pytest.raises(DecodeError, match="column 'ok': an array that is nested too deep"):
        row_texts(b'{"ok":' + b"[" * 5_000 + b"]" * 5_000 + b"}", {"ok": ArrayOf(TEXT)})
    with pytest.raises(DecodeError, match="not UTF-8"):
        row_texts(b'{"id":"\xff"}', kinds)
