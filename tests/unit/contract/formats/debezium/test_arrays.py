"""Arrays in Debezium's envelope: those that the topic contract has in the same form are not converted back."""

from __future__ import annotations

import pytest

from cdc.contract.formats.debezium.types import contract_reader, debezium_type
from cdc.contract.formats.values import converter_of
from cdc.contract.record import DebeziumModes

AS_IN_THE_CONTRACT = [
    ("text[]", b"{}"),
    ("text[]", b"{a,b}"),
    ("text[]", '{é,"",NULL,"NULL","null","a b","q\\"\\\\"}'.encode()),
    ("uuid[]", b"{6f9619ff-8b86-d011-b42d-00c04fc964ff,NULL}"),
    ("boolean[]", b"{t,f,NULL}"),
    ("double precision[]", b"{1.5,NaN,-Infinity,1e+308,NULL}"),
    ("real[]", b"{-0,0.1}"),
    ("numeric(4,1)[]", b"{1.5,-2.0,NaN}"),
    ("box[]", b"{(1,1),(0,0);(2,2),(1,1)}"),
    ('"public"."mood"[]', b"{sad,happy,NULL}"),
    ('"public"."odd"[]', b"not an array"),
]


@pytest.mark.parametrize(("sql_type", "cell"), AS_IN_THE_CONTRACT)
def test_the_same_as_in_the_contract(sql_type: str, cell: bytes) -> None:
    modes = DebeziumModes(decimal="string")
    assert debezium_type(sql_type, modes).write(cell) == converter_of(sql_type)(cell)
    assert contract_reader(sql_type, modes) is None


@pytest.mark.parametrize(
    ("sql_type", "cell"),
    [("date[]", b"{2026-01-31,NULL}"), ("numeric(4,1)[]", b"{1.5,-2.0}"), ("jsonb[]", b'{"{\\"a\\": 1}",NULL}')],
)
def test_others_are_converted_back(sql_type: str, cell: bytes) -> None:
    modes = DebeziumModes(decimal="precise")
    written, read = debezium_type(sql_type, modes).write(cell), contract_reader(sql_type, modes)
    assert read is not None
    assert written != converter_of(sql_type)(cell)
    assert read(written) == converter_of(sql_type)(cell)


def test_elements_of_any_type_are_escaped() -> None:
    assert debezium_type("uuid[]", DebeziumModes()).write(b"{00\x1000,11}") == b'["00\\u001000","11"]'
