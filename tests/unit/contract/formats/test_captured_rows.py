"""Captured rows of every kind of column, through decoder and encoder: what SELECT said is what the record says."""

from __future__ import annotations

import json

import pytest

from cdc.bridge.decode.pgoutput import PgOutputDecoder
from cdc.bridge.encode import TableEncoder
from cdc.contract.change import Insert
from tests.golden.files import MAJORS, captured, messages


@pytest.mark.parametrize("major", MAJORS)
def test_values_are_what_select_returns(major: int) -> None:
    decoder = PgOutputDecoder()
    decoded = [decoder.decode(data) for data in messages(major, 1)]
    inserts = [message for message in decoded if isinstance(message, Insert) and message.relation.name == "kinds"]
    assert len(inserts) == 2
    for relation, new in inserts:
        table = TableEncoder(relation, ("id",), "t")
        key, value = json.loads(table.key(new)), json.loads(table.value(new))
        selected = captured(major)["protocol_1"]["tables"]["kinds"][str(key["id"])]
        assert list(value) == [column.name for column in relation.columns]
        for (name, cell), text in zip(value.items(), selected, strict=True):
            if text is None:
                assert cell is None, name
            elif isinstance(cell, str) and name not in ("j", "jb"):
                assert cell == text, name
            elif isinstance(cell, bool):
                assert cell == (text == "t"), name
            elif isinstance(cell, int):
                assert str(cell) == text, name


@pytest.mark.parametrize("major", MAJORS)
def test_documents_and_arrays(major: int) -> None:
    decoder = PgOutputDecoder()
    decoded = [decoder.decode(data) for data in messages(major, 1)]
    (relation, new), _ = (message for message in decoded if isinstance(message, Insert) and message[0].name == "kinds")
    value = TableEncoder(relation, ("id",), "t").value(new)
    assert b'"j":{"a": 1.10, "a" : [1,\n 2], "\\u0041": "\xc3\xa9"},' in value
    assert b'"f8":1e+20,"n":"NaN","n2":"1.10"' in value
    assert b'"fa":["NaN",1.5,"-Infinity",null,1e+300],"ba":[true,false,null]' in value
    assert json.loads(value)["ta"] == ["plain", "a b", 'q"\\', None, "NULL", "", "é"]
    assert json.loads(value)["boxes"] == ["(1,1),(0,0)", "(3,3),(2,2)"]
    assert json.loads(value)["mds"] == ["sad", "very happy", None]
    assert json.loads(value)["tg"] == ["x", "y z"]
