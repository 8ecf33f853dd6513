"""A table that the replica rejects says which, why, and what to do."""

from __future__ import annotations

from cdc.base.errors import with_remedy
from cdc.contract.ports import StoredRecord, TableRejected


def test_a_rejected_table_names_itself_its_record_and_the_remedy() -> None:
    record = StoredRecord("t", 0, 7, b"k", None, b"")
    error = TableRejected("t", "too long", record, remedy="shorten it")
    assert (error.topic, error.reason, error.record) == ("t", "too long", record)
    assert (error.message, error.remedy) == ("rows of topic 't': too long", "shorten it")
    assert error.reason_and_remedy == with_remedy("too long", "shorten it")


def test_it_may_say_more_than_its_reason() -> None:
    error = TableRejected("t", "too long", message="column v of t is too long", remedy="shorten it")
    assert (error.message, error.record) == ("column v of t is too long", None)
