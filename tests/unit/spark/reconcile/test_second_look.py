"""A record is read by the definition that it was written with, which the table may not have any more."""

from __future__ import annotations

from dataclasses import replace

from cdc.base.lsn import LSN
from cdc.contract.header import UPDATE, HeaderStamp, with_null_documents
from cdc.contract.jobspec.deployment import JobColumn, JobTable
from cdc.contract.record import SchemaColumn, TableSchema
from cdc.spark.reconcile.second_look import Rule, TopicRow, UnreadableValue, compared_columns, topic_row

TODAY = JobTable(
    namespace="public",
    name="client",
    topic="t.public.client",
    key=("id",),
    columns=(
        JobColumn(name="id", sql_type="text", kind="text"),
        JobColumn(name="j", sql_type="jsonb", kind="json"),
        JobColumn(name="k", sql_type="jsonb", kind="json"),
    ),
)
WRITTEN = "00000000000000aa"
OLDER = TableSchema(
    WRITTEN,
    "public",
    "client",
    TODAY.topic,
    ("id",),
    tuple(SchemaColumn(*each) for each in (("id", "int4"), ("x", "text"), ("j", "jsonb"), ("k", "jsonb"))),
)
RULE = Rule(TODAY, 1, 0, False, ("id", "j", "k"), {WRITTEN: OLDER})


def row(value: bytes, *null_documents: int, schema: str = WRITTEN) -> TopicRow:
    header = HeaderStamp(LSN(1), 5, 1).header(UPDATE, 1, schema)
    if null_documents:
        header = with_null_documents(header, null_documents)
    return topic_row({"offset": 0, "value": value, "header": header.decode()}, RULE)


def test_documents_null_are_counted_by_the_definition_of_the_record() -> None:
    both = b'{"id":1,"x":"a","j":null,"k":null}'
    assert row(both, 2) == {"id": "1", "x": "a", "j": "null", "k": None}
    assert row(both, 3) == {"id": "1", "x": "a", "j": None, "k": "null"}
    assert row(both, 2, 3) == {"id": "1", "x": "a", "j": "null", "k": "null"}


def test_a_column_had_another_type() -> None:
    assert row(b'{"id":7,"x":null,"j":{},"k":null}') == {"id": "7", "x": None, "j": "{}", "k": None}
    assert row(b'{"id":"7","j":{},"k":null}', schema="of nobody") == {"id": "7", "j": "{}", "k": None}


def test_a_definition_that_nobody_has_is_no_row_of_the_contract() -> None:
    found = row(b'{"id":"7","j":null,"k":null}', 1, schema="00000000000000bb")
    assert isinstance(found, UnreadableValue)
    assert "which the schemas topic lacks" in found.why


def test_what_is_no_row_differs_from_a_row_of_nothing_but_null() -> None:
    """``--columns j`` over a row whose ``j`` is NULL called garbage identical."""
    rule = replace(RULE, compared=("j",))
    for value in (b"not json", b"null", b"", b"[]", b"\xff\xfe", b'{"id":1,"j":null,"nobody":1}'):
        found = row(value)
        assert isinstance(found, UnreadableValue), value
        assert found.why, value
        assert compared_columns(found, rule) != compared_columns({"id": "1", "j": None}, rule)
