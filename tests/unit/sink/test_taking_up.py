"""What a session finds of a replica table, and whether it reads the topic anew for that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.contract.record import SchemaColumn, TableSchema
from cdc.sink.taking_up import FoundTable, is_stripped

AS_LEFT = FoundTable(
    resumes=True,
    is_created=False,
    is_stripped=False,
    is_recorded=True,
    is_rebuilt=False,
    holds_rows=True,
    reason=None,
    why_empty="it was emptied",
)
NEW = AS_LEFT._replace(resumes=False, is_created=True, is_recorded=False, holds_rows=False)
TOLD = "the topic was recreated"


@pytest.mark.parametrize(
    ("found", "told", "why"),
    [
        (AS_LEFT, "", ""),
        (AS_LEFT, TOLD, TOLD),
        (AS_LEFT._replace(is_created=True), "", "the replica table was gone"),
        (AS_LEFT._replace(is_stripped=True), TOLD, "a column of the replica table was gone"),
        (AS_LEFT._replace(is_recorded=False), "", "what the sink had recorded of the table was gone"),
        (AS_LEFT._replace(holds_rows=False), "", "it was emptied"),
        (AS_LEFT._replace(holds_rows=False, why_empty=""), "", ""),
        (NEW, "", ""),
        (NEW._replace(is_rebuilt=True, reason="as before"), "", "as before"),
        (NEW._replace(is_rebuilt=True), "", "it was being rebuilt when it was stopped"),
    ],
)
def test_why_a_topic_is_read_anew(found: FoundTable, told: str, why: str) -> None:
    assert found.why_anew(told, is_asked=False) == why
    assert found.why_anew(told, is_asked=True) == "the operator asked for it"


def test_rows_are_foreign_if_nothing_tells_where_they_come_from() -> None:
    held = NEW._replace(holds_rows=True)
    assert held.has_foreign_rows
    assert not any(each.has_foreign_rows for each in (NEW, AS_LEFT, held._replace(is_rebuilt=True)))


def test_a_column_that_was_there_before_and_had_to_be_added_again() -> None:
    old = TableSchema("a" * 16, "public", "t", "n.public.t", ("id",), (SchemaColumn("id", "int4"),))
    new = replace(old, fingerprint="b" * 16, columns=(*old.columns, SchemaColumn("note", "text")))
    assert not is_stripped(old.fingerprint, [old, new], ["note"])
    assert is_stripped(new.fingerprint, [old, new], ["note"])
    assert not is_stripped("of a definition that nobody knows", [old, new], ["note"])
