"""Logical messages in, events out: their parts, their place among rows, and what a replay sends again."""

from __future__ import annotations

from typing import Any

import pytest

from cdc.base.errors import EncodeError
from cdc.base.lsn import LSN
from cdc.bridge.encode import TableEncoder
from cdc.bridge.order.counts import CountsByTable
from cdc.bridge.order.engine import Engine
from cdc.bridge.order.messages import MessageEncoder, MessageRule
from cdc.bridge.order.needs import Definition, Filled, Rows
from cdc.bridge.order.touched import TouchedKeys
from cdc.contract.change import (
    UNCHANGED_TOAST,
    Begin,
    Column,
    Commit,
    Insert,
    LogicalMessage,
    Relation,
    ReplicaIdentity,
    Update,
)
from cdc.contract.header import header_position
from cdc.contract.record import EventParts, Position, Progress, SourceIdentity

RULES = {"raw": MessageRule("t.raw", "raw"), "json": MessageRule("t.json", "json")}
SOURCE = SourceIdentity("7", 1, 5)
TABLE = Relation(
    1,
    "public",
    "t",
    ReplicaIdentity.DEFAULT,
    (Column("id", 20, -1, "pg_catalog.int8", True), Column("long", 25, -1, "pg_catalog.text", False)),
)


def message(content: bytes, prefix: str = "json") -> LogicalMessage:
    return LogicalMessage(True, LSN(0x123), prefix, content)


def event(content: bytes, prefix: str = "json") -> Any:
    return MessageEncoder(RULES).event(message(content, prefix))


@pytest.mark.parametrize("content", [b"", b"\x00\xff", b"null", b'{"id": 1}'])
def test_a_raw_content_is_the_value_and_the_position_is_the_id(content: bytes) -> None:
    parts = EventParts(b"raw", False, (("id", b"0/123"),))
    assert event(content, "raw") == ("t.raw", b"", content, parts)


def test_messages_with_another_prefix_are_not_events() -> None:
    assert event(b"x", "other") is None


@pytest.mark.parametrize(
    ("content", "key", "value", "headers"),
    [
        (
            b'{"payload": {"n": 1.00, "m":12345678901234567890123} }',
            None,
            b'{"n": 1.00, "m":12345678901234567890123}',
            {},
        ),
        (b'{"id": "e1", "key": "k", "payload": "text"}', b"k", b'"text"', {"id": b"e1"}),
        (b'{"id": 7, "key": 1.50, "payload": null}', b"1.50", None, {"id": b"7"}),
        (b'{"id": null, "key": null, "payload": [], "headers": null}', None, b"[]", {}),
        (b'{"key": "", "payload": 1}', b"", b"1", {}),
        (
            b'{"payload": 1, "headers": {"traceparent": "00-1-1-01", "n": 3, "is": true, "no": null, "e": "\\u00e9"}}',
            None,
            b"1",
            {"traceparent": b"00-1-1-01", "n": b"3", "is": b"true", "e": "é".encode()},
        ),
    ],
)
def test_a_json_content_has_the_parts(
    content: bytes, key: bytes | None, value: bytes | None, headers: dict[str, bytes]
) -> None:
    topic, found_key, found, parts = event(content)
    assert (topic, found_key, found) == ("t.json", key or b"", value)
    assert parts == EventParts(b"json", key is not None, tuple(({"id": b"0/123"} | headers).items()))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "truncated"),
        (b"text", "malformed"),
        (b"[]", "array"),
        (b'{"payload": 1} x', "trailing"),
        (b'{"payload": "\xff"}', "utf-8"),
        (b'{"payload": 1, "id": "\\ud800"}', "truncated"),
        (b'{"Payload": 1}', "member 'Payload' has no place"),
        (b'{"id": "e"}', "member 'payload' is missing"),
        (b'{"payload": 1, "traceparent": "x"}', "put it into payload or headers"),
        (b'{"payload": 1, "key": {"a": 1}}', "member 'key' is neither text nor a number"),
        (b'{"payload": 1, "id": [1]}', "member 'id' is neither text nor a number"),
        (b'{"payload": 1, "headers": ["a"]}', "member 'headers' is not an object"),
        (b'{"payload": 1, "headers": {"a": {}}}', "header 'a' is neither text nor a number"),
        (b'{"payload": 1, "headers": {"id": "e"}}', "header 'id' is written already"),
        (b'{"payload": 1, "headers": {"cdc": "e"}}', "header 'cdc' is written already"),
    ],
)
def test_a_content_that_cannot_be_an_event_is_named(content: bytes, said: str) -> None:
    with pytest.raises(EncodeError, match=rf"message with prefix 'json' at LSN 0/123 .*{said}") as caught:
        event(content)
    assert "source.messages: {json: {content: raw}}" in caught.value.remedy


def engine_from(resume: Progress, rules: dict[str, MessageRule]) -> Engine:
    return Engine(resume=resume, xid=0, counts=CountsByTable(), touched=TouchedKeys(), messages=MessageEncoder(rules))


def row(engine: Engine, number: int) -> None:
    if isinstance(engine.insert(Insert(TABLE, (b"%d" % number, b"x"))), Definition):
        engine.table(TableEncoder(TABLE, ("id",), "t"))


def taken(engine: Engine) -> list[tuple[str, bytes | None, int]]:
    """What is ready: topic, key of a row or value of an event, and ordinal."""
    return [
        (topic, value if isinstance(parts, EventParts) else key, header_position(header).seq)
        for topic, key, value, header, parts in engine.take()
    ]


def play(engine: Engine, *, is_asked_for_messages: bool = True, until: int = 99) -> None:
    """One transaction: a message, a row, two messages, a row, a message; the first ``until`` steps of it."""
    engine.begin(Begin(LSN(200), 5, 9))
    steps: list[bytes | int] = [b"m1", 1, b"m2", b"m3", 2, b"m4"]
    for step in steps[:until]:
        if isinstance(step, int):
            row(engine, step)
        elif is_asked_for_messages:
            assert engine.message(message(step, "raw")) is None
    if until >= len(steps):
        engine.commit(Commit(LSN(200), LSN(210), 5))


START = Progress(LSN(100), None, 0, SOURCE)
KEYS = {1: b'{"id":1}', 2: b'{"id":2}'}
M1, M2, M3, M4 = (("t.raw", each, seq) for each, seq in ((b"m1", 1), (b"m2", 3), (b"m3", 4), (b"m4", 6)))
R1, R2 = (("t", KEYS[number], number) for number in (1, 2))


def test_rows_are_counted_without_messages_and_no_two_messages_have_one_ordinal() -> None:
    engine = engine_from(START, RULES)
    play(engine)
    assert taken(engine) == [M1, R1, M2, M3, R2, M4]
    assert (engine.progress().lsn, engine.progress().partial, engine.progress().messages) == (LSN(210), None, 0)


@pytest.mark.parametrize("until", range(7))
@pytest.mark.parametrize("rules", [RULES, RULES | {"other": RULES["raw"]}])
def test_a_replay_goes_on_where_the_progress_is(until: int, rules: dict[str, MessageRule]) -> None:
    first = engine_from(START, RULES)
    play(first, until=until)
    second = engine_from(first.progress(), rules)
    before = taken(first)
    play(second)
    assert before + taken(second) == [M1, R1, M2, M3, R2, M4]


def test_messages_of_other_prefixes_count_so_that_prefixes_may_change() -> None:
    first = engine_from(START, {})
    play(first, until=3)
    assert first.progress().messages == 2
    second = engine_from(first.progress(), RULES)
    play(second)
    assert taken(first) + taken(second) == [R1, M3, R2, M4]


@pytest.mark.parametrize("middle", range(7))
@pytest.mark.parametrize("until", range(7))
def test_each_row_and_each_message_comes_once_whatever_the_setting_was_between(until: int, middle: int) -> None:
    """Messages are read, are not read, are read again; each session takes a part of the same transaction."""
    first = engine_from(START, RULES)
    play(first, until=until)
    second = engine_from(first.progress(), {})
    play(second, is_asked_for_messages=False, until=middle)
    if middle > 5:
        return  # the transaction is over: its other messages never become events
    third = engine_from(second.progress(), RULES)
    play(third)
    found = taken(first) + taken(second) + taken(third)
    assert [each for each in found if each[0] == "t"] == [R1, R2]
    assert [each for each in found if each[0] == "t.raw"] == [M1, M2, M3, M4]


@pytest.mark.parametrize("is_asked_for_messages", [True, False])
def test_a_row_that_is_held_holds_messages_and_the_progress_ends_before_it(is_asked_for_messages: bool) -> None:
    """Also a session without messages keeps how many one before it has published."""
    resume = Progress(LSN(200), Position(LSN(200), 0), 0, SOURCE, messages=1)
    engine = engine_from(resume, RULES)
    engine.begin(Begin(LSN(200), 5, 9))
    if is_asked_for_messages:
        engine.message(message(b"m1", "raw"))
    need = engine.update(Update(TABLE, None, False, (b"1", UNCHANGED_TOAST)))
    assert isinstance(need, Definition)
    assert engine.table(TableEncoder(TABLE, ("id",), "t")) is None
    if is_asked_for_messages:
        assert engine.message(message(b"m2", "raw")) is None
    assert engine.take() == []
    assert (engine.progress().partial, engine.progress().messages) == (Position(LSN(200), 0), 1)
    assert engine.is_partial
    assert isinstance(engine.settle(), Rows)
    engine.rows([Filled((b"1", b"long"), is_newer=False)])
    assert taken(engine) == [R1, *([M2] if is_asked_for_messages else [])]
    assert engine.progress().messages == 1 + is_asked_for_messages


def test_a_transaction_that_is_published_sends_no_message_again() -> None:
    engine = engine_from(Progress(LSN(210), None, 0, SOURCE), RULES)
    play(engine)
    assert taken(engine) == []
