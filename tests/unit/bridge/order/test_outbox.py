"""Rows of an outbox in, events out: topic, key, value and headers, and what cannot be an event."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc.base.errors import EncodeError, SourceRefused
from cdc.base.lsn import LSN
from cdc.bridge.order.counts import CountsByTable
from cdc.bridge.order.engine import Engine
from cdc.bridge.order.needs import Definition, EventTopic
from cdc.bridge.order.outbox import OutboxEncoder, OutboxRule
from cdc.bridge.order.touched import TouchedKeys
from cdc.contract.change import Begin, Column, Commit, Delete, Insert, Relation, ReplicaIdentity, Row
from cdc.contract.header import header_position
from cdc.contract.record import EventParts, Position, Progress, SourceIdentity

OUTBOX = Relation(
    7,
    "public",
    "outbox",
    ReplicaIdentity.DEFAULT,
    (
        Column("id", 2950, -1, "pg_catalog.uuid", True),
        Column("aggregatetype", 25, -1, "pg_catalog.text", False),
        Column("aggregateid", 25, -1, "pg_catalog.text", False),
        Column("payload", 17, -1, "pg_catalog.bytea", False),
        Column("trace", 25, -1, "pg_catalog.text", False),
    ),
)
RULE = OutboxRule("outbox.event.{aggregatetype}", "id", "aggregateid", "payload", {"traceparent": "trace"})
ROW: Row = (b"e1", b"order", b"42", b"\\x00ff", b"00-1-1-01")
SOURCE = SourceIdentity("7", 1, 5)


def test_a_row_is_an_event() -> None:
    parts = EventParts(b"e1", True, (("id", b"e1"), ("traceparent", b"00-1-1-01")))
    assert OutboxEncoder(OUTBOX, RULE).event(ROW, LSN(1)) == ("outbox.event.order", b"42", b"\x00\xff", parts)


def test_null_is_no_key_no_value_and_no_header() -> None:
    parts = EventParts(b"e1", False, (("id", b"e1"),))
    row = (b"e1", b"order", None, None, None)
    assert OutboxEncoder(OUTBOX, RULE).event(row, LSN(1)) == ("outbox.event.order", b"", None, parts)


def test_texts_are_as_postgresql_prints_them() -> None:
    rule = replace(RULE, topic="{aggregatetype}-{aggregateid}.x", payload="aggregatetype")
    assert OutboxEncoder(OUTBOX, rule).event(ROW, LSN(1))[:3] == ("order-42.x", b"42", b"order")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ((b"e1", b"a b", b"42", None, None), r"event e1 at LSN 0/1: 'outbox.event.a b' cannot be the name of a topic"),
        ((b"e1", None, b"42", None, None), r"event e1 at LSN 0/1: column aggregatetype is NULL, and the topic's name"),
        ((None, b"order", b"42", None, None), r"column id with the event's id is NULL"),
        ((b"e1", b"x" * 250, b"42", None, None), r"cannot be the name of a topic"),
    ],
)
def test_a_row_that_cannot_be_an_event_is_named(row: Row, said: str) -> None:
    with pytest.raises(EncodeError, match=said) as caught:
        OutboxEncoder(OUTBOX, RULE).event(row, LSN(1))
    assert "source.outbox: {public.outbox: {topic: …}}" in caught.value.remedy


def test_a_column_that_does_not_exist_is_refused() -> None:
    with pytest.raises(SourceRefused, match=r"no column 'body', which source\.outbox names") as caught:
        OutboxEncoder(OUTBOX, replace(RULE, payload="body"))
    assert "its columns are id, aggregatetype, aggregateid, payload, trace" in caught.value.remedy


def fed(resume: Progress) -> tuple[list[tuple[str, bytes, Position]], list[str], Progress]:
    """What an engine makes of two transactions with events, a delete between them, and which topics it asked for."""
    engine = Engine(resume=resume, xid=0, counts=CountsByTable(), touched=TouchedKeys())
    asked: list[str] = []
    for lsn, ids in ((200, (b"1", b"2")), (300, (b"3",))):
        engine.begin(Begin(LSN(lsn), 5, 9))
        for each in ids:
            need = engine.insert(Insert(OUTBOX, (each, b"t", b"k", None, None)))
            while need is not None:
                if isinstance(need, EventTopic):
                    asked.append(need.topic)
                    need = engine.has_topic()
                else:
                    assert isinstance(need, Definition)
                    need = engine.table(OutboxEncoder(OUTBOX, RULE))
            assert engine.delete(Delete(OUTBOX, (each, None, None, None, None), False)) is None
        engine.commit(Commit(LSN(lsn), LSN(lsn + 10), 5))
    found = [(topic, dict(parts.headers)["id"], header_position(header)) for topic, header, parts in _events(engine)]
    return found, asked, engine.progress()


def _events(engine: Engine) -> list[tuple[str, bytes, EventParts]]:
    events = []
    for topic, _, _, header, parts in engine.take():
        assert isinstance(parts, EventParts)
        events.append((topic, header, parts))
    return events


def test_events_have_the_position_of_their_row_and_deletes_only_count() -> None:
    events, asked, progress = fed(Progress(LSN(100), None, 0, SOURCE))
    assert events == [
        ("outbox.event.t", b"1", Position(LSN(200), 1)),
        ("outbox.event.t", b"2", Position(LSN(200), 3)),
        ("outbox.event.t", b"3", Position(LSN(300), 1)),
    ]
    assert asked == ["outbox.event.t"]
    assert progress.lsn == LSN(310)


@pytest.mark.parametrize(
    ("resume", "left"),
    [
        (Progress(LSN(200), Position(LSN(200), 2), 0, SOURCE), [b"2", b"3"]),
        (Progress(LSN(200), Position(LSN(200), 4), 0, SOURCE), [b"3"]),
        (Progress(LSN(310), None, 0, SOURCE), []),
    ],
)
def test_what_the_progress_covers_is_not_sent_again(resume: Progress, left: list[bytes]) -> None:
    events, _, _ = fed(resume)
    assert [event_id for _, event_id, _ in events] == left
