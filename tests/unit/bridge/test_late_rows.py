"""What is said of rows that may stand behind newer ones, and what is asked for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from structlog.testing import capture_logs

from cdc.base.config import Config
from cdc.base.errors import TopicUnavailable
from cdc.bridge import late_rows
from cdc.bridge.late_rows import ask_again
from cdc.contract.record import RepairRequest

CONFIG = Config.model_validate(
    {"name": "app", "source": {"dsn": "postgresql://x@127.0.0.1/x"}, "kafka": {"bootstrap": "127.0.0.1:1"}}
)


def test_every_key_of_a_captured_table_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[RepairRequest] = []

    def write(_options: Any, topic: str, parts: Iterable[RepairRequest]) -> None:
        assert topic == "app.__progress"
        asked.extend(parts)

    monkeypatch.setattr(late_rows, "write_repair", write)
    late = {"app.public.a": {b"%d" % number for number in range(700)}, "app.public.b": {b"1"}, "not any more": {b"1"}}
    with capture_logs() as said:
        ask_again(CONFIG, {"app.public.a": ["public.a"], "app.public.b": ["public.b"]}, late)
    for table, topic in (("public.a", "app.public.a"), ("public.b", "app.public.b")):
        assert {key.key for each in asked if each.table == table for key in each.keys} == late[topic]
    assert len({each.request for each in asked}) == 2
    assert [each["rows"] for each in said] == [{"app.public.a": 700, "app.public.b": 1, "not any more": 1}]


def test_brokers_that_take_no_request_are_said_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(*_: Any) -> None:
        raise TopicUnavailable("no broker answers", remedy="try again")

    monkeypatch.setattr(late_rows, "write_repair", write)
    with capture_logs() as said:
        ask_again(CONFIG, {"t": ["public.t"]}, {"t": {b"1", b"2"}})
    (told,) = said
    assert told["rows"] == {"t": 2}
    assert "after newer ones" in told["event"]
    assert "no broker answers" in told["reason"]
    assert "cdc backfill --sweep" in told["remedy"]
