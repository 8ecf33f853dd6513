"""What is told of somebody's query: enough to know it again, and no value of it."""

from __future__ import annotations

import pytest

from cdc.sink.postgres.locks import shown_query


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("LOCK TABLE a IN SHARE MODE", "LOCK TABLE a IN SHARE MODE"),
        ("ALTER ROLE x PASSWORD 'hunter2'", "ALTER ROLE x PASSWORD …"),
        ("UPDATE t\n  SET a = $$hunter2$$", "UPDATE t SET a = …"),
        (r"SELECT E'\'hunter2'", "SELECT E…"),
        (r"\set x hunter2", "…"),
        ("SELECT " + "a, " * 100, "SELECT " + "a, " * 31 + "…"),
        ("", ""),
        ("<insufficient privilege>", "a query hidden from this role"),
    ],
)
def test_a_query_is_shown_up_to_its_first_value(query: str, shown: str) -> None:
    assert shown_query(query) == shown
