"""The judgement alone: which facts mean that changes may be missing, and in which words it is said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cdc.base.errors import DecodeError
from cdc.base.lsn import LSN
from cdc.bridge.capture.timeline import parse_history
from cdc.contract.gaps import (
    PublicationGap,
    SlotGap,
    TopicGap,
    foreign_source,
    lost_before_the_first_progress,
    publication_gaps,
    stream_gap,
    topic_gaps,
)
from cdc.contract.known_topic import KnownTopic, known_topic_key, known_topic_value, named_topic, parse_known_topic
from cdc.contract.membership import Membership, member_table, membership_key, membership_value, parse_membership
from cdc.contract.progress import stream_key
from cdc.contract.record import Position, Progress, SourceIdentity
from cdc.contract.slot_state import SlotState

SOURCE = SourceIdentity("7710", 1, 5)
STORED = Progress(LSN(1000), None, 1, SOURCE)
SLOT = SlotState(
    name="cdc_shop",
    plugin="pgoutput",
    database="shop",
    active=False,
    active_pid=None,
    confirmed_flush_lsn=LSN(900),
    restart_lsn=LSN(800),
    wal_status="reserved",
    safe_wal_size=None,
    retained_bytes=0,
    lag_bytes=0,
    invalidation_reason=None,
)
TOPIC = KnownTopic("id-1", (0, 0), (10, 20))


def found(**facts: Any) -> SlotGap | None:
    usual: dict[str, Any] = {
        "name": "cdc_shop",
        "stored": STORED,
        "slot": SLOT,
        "source": SOURCE,
        "wal_end": LSN(2000),
        "left_at": lambda: LSN(1000),
    }
    return stream_gap(**{**usual, **facts})


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"slot": replace(SLOT, confirmed_flush_lsn=LSN(1000))},
        {"wal_end": LSN(1000)},
        {"wal_end": None},
        {"source": replace(SOURCE, timeline=2)},
        {"source": replace(SOURCE, timeline=2), "stored": replace(STORED, partial=Position(LSN(999), 3))},
    ],
)
def test_nothing_is_missing(facts: dict[str, Any]) -> None:
    assert found(**facts) is None


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"slot": None}, "slot 'cdc_shop' is gone, but topics were published up to 0/3E8"),
        (
            {"slot": None, "source": replace(SOURCE, timeline=2)},
            "the server was promoted (timeline 1 → 2), and its slots did not follow",
        ),
        ({"slot": replace(SLOT, wal_status="lost")}, "is lost (lost): changes since 0/3E8 are missing"),
        (
            {"slot": replace(SLOT, invalidation_reason="idle_timeout")},
            "is lost (idle_timeout: nobody read from it for longer than idle_replication_slot_timeout)",
        ),
        ({"slot": replace(SLOT, invalidation_reason="something_new")}, "is lost (something_new): "),
        ({"slot": replace(SLOT, confirmed_flush_lsn=LSN(1001))}, "was confirmed up to 0/3E9, beyond what is published"),
        ({"wal_end": LSN(999)}, "the server's WAL ends at 0/3E7, before 0/3E8, which is published: it was restored"),
        (
            {"source": replace(SOURCE, timeline=3), "left_at": lambda: LSN(999)},
            "the server is on timeline 3, which left timeline 1 at 0/3E7, and 0/3E8 is published",
        ),
        (
            {"source": replace(SOURCE, timeline=3), "left_at": lambda: None},
            "on timeline 3, which does not descend from timeline 1, and 0/3E8 is published",
        ),
        (
            {"source": replace(SOURCE, timeline=2), "stored": replace(STORED, partial=Position(LSN(1000), 3))},
            "left timeline 1 at 0/3E8, and 0/3E9 is published",
        ),
    ],
)
def test_the_stream_does_not_connect(facts: dict[str, Any], words: str) -> None:
    gap = found(**facts)
    assert gap is not None
    assert words in gap.message
    assert "CDC_SOURCE__ON_GAP=rebackfill cdc run" in gap.remedy


def test_another_server_or_database() -> None:
    assert foreign_source("shop", STORED, replace(SOURCE, timeline=9), "shop") is None
    server = foreign_source("shop", STORED, replace(SOURCE, system_identifier="1"), "shop")
    database = foreign_source("shop", STORED, replace(SOURCE, database_oid=6), "shop")
    assert server is not None
    assert "the topics of 'shop' were published from another server" in server.message
    assert database is not None
    assert "its oid was 5, that of 'shop' is 6" in database.message


@pytest.mark.parametrize(
    ("now", "words", "heals"),
    [
        ({}, "topic 't' is gone", True),
        ({"t": replace(TOPIC, topic_id="id-2")}, "topic 't' was deleted and recreated", True),
        ({"t": replace(TOPIC, ends=(10, 19))}, "partition 1 ends at offset 19, but reached 20 before", True),
        ({"t": replace(TOPIC, low=(3, 0))}, "partition 0 begins at offset 3, but began at 0 before", True),
        ({"t": KnownTopic("id-1", (0, 0, 0), (10, 20, 0))}, "topic 't' has 3 partitions now, but 2 when", False),
    ],
)
def test_a_topic_lost_something(now: dict[str, KnownTopic], words: str, heals: bool) -> None:
    (gap,) = topic_gaps({"t": TOPIC}, now, {"t": ["public.items"]})
    assert words in gap.message
    assert isinstance(gap, TopicGap) is heals
    assert not isinstance(gap, TopicGap) or gap.tables == ("public.items",)


def test_a_topic_that_grew_or_is_new_or_not_ours_any_more() -> None:
    grown = replace(TOPIC, ends=(11, 20))
    assert topic_gaps({"t": TOPIC, "old": TOPIC}, {"t": grown, "new": grown}, {"t": ["a.b"], "new": ["a.c"]}) == []


def test_a_slot_that_was_lost_before_anything_was_published() -> None:
    gap = lost_before_the_first_progress(replace(SLOT, wal_status="lost"))
    assert "is lost (lost): changes since it was created are missing" in gap.message


def test_known_topics_are_read_back() -> None:
    assert parse_known_topic(known_topic_value(TOPIC)) == TOPIC
    assert named_topic(known_topic_key("shop.public.ü")) == "shop.public.ü"
    assert named_topic(stream_key("cdc_shop")) is None
    assert named_topic(None) is None
    for value in (b"{}", b"[]", b'{"v":2}', b'{"v":1,"topic_id":"x","low":["0"],"ends":[1]}', b"nonsense"):
        with pytest.raises(DecodeError):
            parse_known_topic(value)


def test_timeline_history() -> None:
    content = "1\t0/3000000\tno recovery target specified\n\n# a comment\n2\t1/A0\tbefore 2000-01-01 00:00:00+00\n"
    assert parse_history(content) == {1: LSN.parse("0/3000000"), 2: LSN.parse("1/A0")}


MEMBER = Membership(16400, "751", 10, 16390, ("pg_publication_rel 16401",))


@pytest.mark.parametrize(
    ("now", "options_tell", "kind"),
    [
        (MEMBER, True, None),
        (replace(MEMBER, routes=(*MEMBER.routes, "pg_publication_namespace 16500")), True, None),
        (replace(MEMBER, table=16777, routes=("pg_publication_rel 16778",)), True, None),  # made anew: not this table
        (replace(MEMBER, version="760"), False, None),  # PostgreSQL 14, where attaching a partition writes it
        (replace(MEMBER, version="760", owner=11), True, None),
        (replace(MEMBER, version="760"), True, SlotGap),
        (replace(MEMBER, publication=16999, version="760", owner=11), False, SlotGap),
        (replace(MEMBER, routes=("pg_publication_rel 16409",)), True, PublicationGap),
        (replace(MEMBER, version="760", owner=11, routes=("pg_publication_rel 16409",)), True, PublicationGap),
    ],
)
def test_what_the_publication_may_have_left_out(now: Membership, options_tell: bool, kind: type | None) -> None:
    recorded = {"public.items": MEMBER, "public.gone": MEMBER}
    found = publication_gaps(
        "cdc_shop", recorded, {"public.items": now, "public.new": MEMBER}, options_tell=options_tell
    )
    assert [type(each) for each in found] == ([kind] if kind else [])
    if kind is PublicationGap:
        assert isinstance(found[0], PublicationGap)
        assert found[0].tables == ("public.items",)


def test_a_membership_is_read_back() -> None:
    assert parse_membership(membership_value(MEMBER)) == MEMBER
    assert member_table(membership_key('public."ü')) == 'public."ü'
    assert member_table(known_topic_key("shop.public.x")) is None
    assert named_topic(membership_key("public.x")) is None
    for bad in (b"{}", b"[]", b'{"v":2}', membership_value(replace(MEMBER, owner=True))):
        with pytest.raises(DecodeError, match="published record is not of topic contract version 1"):
            parse_membership(bad)
